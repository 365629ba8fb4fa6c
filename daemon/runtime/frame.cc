// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/frame.h"

#include <fmt/format.h>

#include "daemon/control/codec.h"

namespace infos {
namespace {

void append_u32(std::string& out, std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(value >> shift & 0xffU);
}

std::uint32_t read_u32(const char* bytes) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace

void append_frame(std::string& out, Generation generation, std::string_view payload) {
  INFOS_CHECK(payload.size() <= kFrameBytesMax);
  append_u32(out, static_cast<std::uint32_t>(payload.size()));
  append_u32(out, generation.value);
  out += payload;
}

void FrameReader::append(std::string_view bytes) {
  if (begin_ == buffer_.size()) {
    buffer_.clear();
    begin_ = 0;
  } else if (begin_ > buffer_.size() / 2) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  buffer_ += bytes;
}

Result<std::optional<std::string_view>> FrameReader::next() {
  const std::string_view rest = std::string_view(buffer_).substr(begin_);
  if (rest.size() < kFrameHeaderBytes) return std::optional<std::string_view>();
  const std::uint32_t length = read_u32(rest.data());
  const Generation generation{read_u32(rest.data() + 4)};
  if (length > kFrameBytesMax)
    return Error{ErrorCode::corrupt,
                 fmt::format("frame of {} bytes: at most {} are allowed", length, kFrameBytesMax)};
  if (generation != generation_)
    return Error{ErrorCode::corrupt, fmt::format("frame of process generation {}: want {}",
                                                 generation.value, generation_.value)};
  if (rest.size() - kFrameHeaderBytes < length) return std::optional<std::string_view>();
  begin_ += kFrameHeaderBytes + length;
  return std::optional<std::string_view>(rest.substr(kFrameHeaderBytes, length));
}

}  // namespace infos
