// SPDX-License-Identifier: Apache-2.0
// Receiving: one call reads the rest of a payload to where it belongs and the head after it. A
// frame that is not plausible, not expected or not what its check says ends the connection.
#include <algorithm>
#include <cstring>

#include "transports/tcp/connection.h"
#include "transports/tcp/crc32c.h"

namespace infos {
namespace {

constexpr std::size_t kReceiveBudget = 2u << 20;
constexpr std::size_t kRunsMax = 1000;
constexpr std::size_t kScratchBytes = 64 * 1024;

}  // namespace

/// A whole head has come: is its payload one that we expect?
bool Connection::take_head() {
  head_ = next_head_;
  head_got_ = 0;
  if (!plausible(head_)) return false;
  if (kind_of(head_) == FrameKind::data) {
    const auto at = parts_in_.find(head_.part);
    if (at == parts_in_.end() || head_.offset != at->second.received ||
        head_.bytes > at->second.bytes - at->second.received)
      return false;
  } else {
    payload_.resize(head_.bytes);
  }
  payload_got_ = payload_crc_ = 0;
  in_payload_ = true;
  return head_.bytes > 0 || finish_frame();
}

/// Where the next bytes go.
void Connection::target(std::vector<iovec>& into) {
  into.clear();
  std::size_t left = in_payload_ ? head_.bytes - payload_got_ : 0;
  if (left > 0 && kind_of(head_) != FrameKind::data) {
    into.push_back({payload_.data() + payload_got_, left});
    left = 0;
  } else if (left > 0) {
    const PartIn& part = parts_in_.at(head_.part);
    if (part.fate == PartIn::Fate::discard) {
      scratch_.resize(kScratchBytes);
      const std::size_t take = std::min(left, kScratchBytes);
      into.push_back({scratch_.data(), take});
      left -= take;
    } else {
      std::size_t byte = part.byte;
      for (std::size_t run = part.run; left > 0 && into.size() < kRunsMax; ++run, byte = 0) {
        const std::size_t take = std::min(left, part.runs[run].iov_len - byte);
        into.push_back({static_cast<char*>(part.runs[run].iov_base) + byte, take});
        left -= take;
      }
    }
  }
  if (left == 0)
    into.push_back(
        {reinterpret_cast<std::byte*>(&next_head_) + head_got_, sizeof next_head_ - head_got_});
}

/// The part has so many bytes more.
void Connection::advance(std::size_t bytes) {
  PartIn& part = parts_in_.at(head_.part);
  part.received += bytes;
  bytes_in += bytes;
  if (part.fate == PartIn::Fate::discard) return;
  while (bytes > 0) {
    const std::size_t take = std::min(bytes, part.runs[part.run].iov_len - part.byte);
    part.byte += take;
    bytes -= take;
    if (part.byte < part.runs[part.run].iov_len) return;
    ++part.run;
    part.byte = 0;
  }
}

/// So many bytes came to where target() said.
void Connection::took(std::size_t bytes) {
  std::size_t payload = in_payload_ ? head_.bytes - payload_got_ : 0;
  const std::size_t of_payload = std::min(bytes, payload);
  std::size_t left = of_payload;
  const bool is_data = in_payload_ && kind_of(head_) == FrameKind::data;
  if (checksums_ == Checksums::on || !is_data) {
    for (const iovec& run : into_) {
      const std::size_t take = std::min(left, run.iov_len);
      payload_crc_ = crc32c(payload_crc_, run.iov_base, take);
      left -= take;
      if (left == 0) break;
    }
  }
  if (of_payload > 0 && is_data) advance(of_payload);
  payload_got_ += static_cast<std::uint32_t>(of_payload);
  head_got_ += bytes - of_payload;
}

bool Connection::finish_frame() {
  in_payload_ = false;
  const FrameKind kind = kind_of(head_);
  const bool checked = checksums_ == Checksums::on || kind != FrameKind::data;
  if (check_of(head_, checked ? payload_crc_ : 0) != head_.check) {
    corrupt_ = true;
    return false;
  }
  if (kind == FrameKind::beat) return true;
  if (kind != FrameKind::data) return owner_.on_frame(head_, payload_);
  const auto at = parts_in_.find(head_.part);
  if (at == parts_in_.end() || at->second.received < at->second.bytes) return true;
  const PartIn part = std::move(at->second);
  parts_in_.erase(at);
  owner_.on_part(head_.part, part);
  return true;
}

bool Connection::receive() {
  more_to_read_ = false;
  for (std::size_t total = 0; total < kReceiveBudget;) {
    target(into_);
    const ssize_t got = stream_->read(into_);
    if (got == Stream::kClosed) return false;
    if (got == Stream::kAgain) return true;
    heard_ = true;
    total += static_cast<std::size_t>(got);
    took(static_cast<std::size_t>(got));
    if (in_payload_ && payload_got_ == head_.bytes && !finish_frame()) return false;
    if (head_got_ == sizeof next_head_ && !take_head()) return false;
  }
  more_to_read_ = true;
  return true;
}

}  // namespace infos
