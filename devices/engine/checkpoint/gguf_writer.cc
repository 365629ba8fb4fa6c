// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/gguf_writer.h"

#include <array>
#include <cstring>
#include <utility>

#include "devices/engine/checkpoint/gguf_file.h"

namespace infos {
namespace {

template <typename T>
void put(std::vector<std::byte>& out, T value) {
  const auto* raw = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), raw, raw + sizeof value);
}

void put_text(std::vector<std::byte>& out, std::string_view text) {
  put<std::uint64_t>(out, text.size());
  const auto raw = std::as_bytes(std::span(text));
  out.insert(out.end(), raw.begin(), raw.end());
}

std::uint32_t number_of(GgufType type) { return static_cast<std::uint32_t>(type); }

std::uint32_t tensor_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 0;
    case DType::f16:
      return 1;
    case DType::q4_0:
      return 2;
    case DType::q8_0:
      return 8;
    case DType::q4_k:
      return 12;
    case DType::q6_k:
      return 14;
    case DType::i8:
      return 24;
    case DType::i32:
      return 26;
    case DType::f64:
      return 28;
    case DType::bf16:
      return 30;
    case DType::none:
      break;
  }
  INFOS_CHECK(dtype != DType::none);
  return 0;
}

std::uint64_t padding(std::uint64_t size) {
  return (GgufHeader::kAlignment - size % GgufHeader::kAlignment) % GgufHeader::kAlignment;
}

}  // namespace

void GgufHeader::put_key(std::string_view key, std::uint32_t type) {
  put_text(keys_, key);
  put(keys_, type);
  ++key_count_;
}

void GgufHeader::add_u32(std::string_view key, std::uint32_t value) {
  put_key(key, number_of(GgufType::u32));
  put(keys_, value);
}

void GgufHeader::add_f32(std::string_view key, float value) {
  put_key(key, number_of(GgufType::f32));
  put(keys_, value);
}

void GgufHeader::add_flag(std::string_view key, bool value) {
  put_key(key, number_of(GgufType::boolean));
  put<std::uint8_t>(keys_, value ? 1 : 0);
}

void GgufHeader::add_text(std::string_view key, std::string_view value) {
  put_key(key, number_of(GgufType::string));
  put_text(keys_, value);
}

void GgufHeader::add_texts(std::string_view key, std::span<const std::string> values) {
  put_key(key, number_of(GgufType::array));
  put(keys_, number_of(GgufType::string));
  put<std::uint64_t>(keys_, values.size());
  for (const auto& value : values) put_text(keys_, value);
}

void GgufHeader::add_floats(std::string_view key, std::span<const float> values) {
  put_key(key, number_of(GgufType::array));
  put(keys_, number_of(GgufType::f32));
  put<std::uint64_t>(keys_, values.size());
  for (const float value : values) put(keys_, value);
}

void GgufHeader::add_integers(std::string_view key, std::span<const std::int32_t> values) {
  put_key(key, number_of(GgufType::array));
  put(keys_, number_of(GgufType::i32));
  put<std::uint64_t>(keys_, values.size());
  for (const std::int32_t value : values) put(keys_, value);
}

void GgufHeader::add_tensor(std::string_view name, DType dtype,
                            std::span<const std::int64_t> dims) {
  const auto block = block_shape(dtype);
  INFOS_CHECK(!dims.empty());
  INFOS_CHECK(dims.back() % block.elements == 0);
  put_text(directory_, name);
  put<std::uint32_t>(directory_, static_cast<std::uint32_t>(dims.size()));
  std::uint64_t elements = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    put<std::uint64_t>(directory_, static_cast<std::uint64_t>(dims[i]));
    elements *= static_cast<std::uint64_t>(dims[i]);
  }
  put(directory_, tensor_type(dtype));
  put(directory_, next_offset_);
  const std::uint64_t size = elements / block.elements * block.bytes;
  sizes_.push_back(size);
  next_offset_ += size + padding(size);
}

std::vector<std::byte> GgufHeader::bytes() const {
  std::vector<std::byte> out;
  for (const char c : {'G', 'G', 'U', 'F'}) out.push_back(static_cast<std::byte>(c));
  put<std::uint32_t>(out, 3);
  put<std::uint64_t>(out, sizes_.size());
  put<std::uint64_t>(out, key_count_);
  out.insert(out.end(), keys_.begin(), keys_.end());
  out.insert(out.end(), directory_.begin(), directory_.end());
  out.resize(out.size() + padding(out.size()));
  return out;
}

Result<GgufWriter> GgufWriter::create(const std::string& path, const GgufHeader& header) {
  auto file = INFOS_TRY(AtomicFile::create(path));
  INFOS_TRY(file.write(header.bytes()));
  const auto sizes = header.tensor_bytes();
  return GgufWriter(std::move(file), {sizes.begin(), sizes.end()});
}

Status GgufWriter::append(std::span<const std::byte> bytes) {
  INFOS_CHECK(tensor_ < sizes_.size());
  INFOS_CHECK(bytes.size() <= sizes_[tensor_] - in_tensor_);
  INFOS_TRY(file_.write(bytes));
  in_tensor_ += bytes.size();
  if (in_tensor_ < sizes_[tensor_]) return {};
  constexpr std::array<std::byte, GgufHeader::kAlignment> kZeros{};
  INFOS_TRY(file_.write(std::span(kZeros).first(padding(in_tensor_))));
  ++tensor_;
  in_tensor_ = 0;
  return {};
}

Status GgufWriter::commit() {
  INFOS_CHECK(tensor_ == sizes_.size());
  return file_.commit();
}

}  // namespace infos
