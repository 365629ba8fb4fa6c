// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/connection.h"

#include <algorithm>
#include <cstring>

#include "transports/tcp/crc32c.h"

namespace infos {
namespace {

constexpr std::size_t kBatchBytes = 256 * 1024;  ///< what one call gathers; fits the second cache
constexpr std::size_t kBatchRunsMax = 1000;      ///< the kernel takes 1024
constexpr std::size_t kBatchFramesMax = 64;
constexpr std::size_t kSendBudget = 2u << 20;

}  // namespace

Connection::Connection(std::unique_ptr<Stream> stream, ConnectionOwner& owner, Checksums checksums)
    : stream_(std::move(stream)), owner_(owner), checksums_(checksums) {
  heads_.reserve(kBatchFramesMax);
}

Connection::~Connection() = default;

void Connection::send_frame(FrameKind kind, std::uint64_t part, std::uint64_t offset,
                            std::span<const std::byte> payload) {
  FrameHead head{magic_kind(kind), static_cast<std::uint32_t>(payload.size()), part, offset, 0};
  head.check = check_of(head, crc32c(0, payload.data(), payload.size()));
  const auto* bytes = reinterpret_cast<const std::byte*>(&head);
  control_.insert(control_.end(), bytes, bytes + sizeof head);
  control_.insert(control_.end(), payload.begin(), payload.end());
}

std::uint64_t Connection::sum_of(std::span<const iovec> runs) const {
  std::uint32_t crc = 0;
  if (checksums_ == Checksums::on)
    for (const iovec& run : runs) crc = crc32c(crc, run.iov_base, run.iov_len);
  return crc;
}

/// The next bytes of the part, as a frame of the batch.
void Connection::add_data_frame(PartOut& part) {
  heads_.push_back({magic_kind(FrameKind::data), 0, part.id, part.sent, 0});
  FrameHead& head = heads_.back();
  batch_.push_back({&head, sizeof head});
  const std::size_t first = batch_.size();
  std::size_t bytes = 0;
  while (bytes < kDataBytesMax && batch_.size() < kBatchRunsMax && part.run < part.runs.size()) {
    const iovec& run = part.runs[part.run];
    const std::size_t take = std::min(run.iov_len - part.byte, kDataBytesMax - bytes);
    batch_.push_back({static_cast<char*>(run.iov_base) + part.byte, take});
    bytes += take;
    part.byte += take;
    if (part.byte == run.iov_len) {
      ++part.run;
      part.byte = 0;
    }
  }
  head.bytes = static_cast<std::uint32_t>(bytes);
  head.check = check_of(head, sum_of({batch_.data() + first, batch_.size() - first}));
  part.sent += bytes;
  bytes_out += bytes;
}

void Connection::fill_batch() {
  batch_.clear();
  heads_.clear();
  batch_at_ = 0;
  std::size_t bytes = 0;
  if (!control_.empty()) {
    control_batch_.swap(control_);
    control_.clear();
    batch_.push_back({control_batch_.data(), control_batch_.size()});
    bytes = control_batch_.size();
  }
  while (!parts_out_.empty() && bytes < kBatchBytes && batch_.size() + 2 < kBatchRunsMax &&
         heads_.size() < kBatchFramesMax) {
    PartOut& part = parts_out_.front();
    add_data_frame(part);
    bytes += heads_.back().bytes;
    if (part.sent == part.bytes) parts_out_.pop_front();
  }
}

bool Connection::send() {
  std::size_t sent_now = 0;
  while (sent_now < kSendBudget) {
    if (batch_at_ == batch_.size()) fill_batch();
    if (batch_.empty() && !stream_->has_unsent()) return true;
    const ssize_t sent = stream_->write({batch_.data() + batch_at_, batch_.size() - batch_at_});
    if (sent == Stream::kClosed) return false;
    if (sent == Stream::kAgain) return true;
    spoken_ = spoken_ || sent > 0;
    sent_now += static_cast<std::size_t>(sent);
    auto left = static_cast<std::size_t>(sent);
    while (left > 0) {
      iovec& run = batch_[batch_at_];
      const std::size_t take = std::min(left, run.iov_len);
      run = {static_cast<char*>(run.iov_base) + take, run.iov_len - take};
      left -= take;
      if (run.iov_len == 0) ++batch_at_;
    }
    if (batch_at_ == batch_.size()) {
      batch_.clear();
      batch_at_ = 0;
    } else if (stream_->wants_room()) {
      return true;
    }
    if (batch_.empty() && control_.empty() && parts_out_.empty()) return true;
  }
  return true;
}

/// What is left of the batch is copied, so that the memory it gathers from is free.
void Connection::own_batch() {
  std::vector<std::byte> copy;
  for (std::size_t i = batch_at_; i < batch_.size(); ++i) {
    const auto* from = static_cast<const std::byte*>(batch_[i].iov_base);
    copy.insert(copy.end(), from, from + batch_[i].iov_len);
  }
  owned_batch_ = std::move(copy);
  batch_.clear();
  batch_at_ = 0;
  if (!owned_batch_.empty()) batch_.push_back({owned_batch_.data(), owned_batch_.size()});
}

std::vector<std::uint64_t> Connection::drop_out(std::uint64_t owner) {
  if (batch_at_ < batch_.size()) own_batch();
  std::vector<std::uint64_t> dropped;
  std::erase_if(parts_out_, [&](const PartOut& part) {
    if (part.owner != owner) return false;
    dropped.push_back(part.id);
    return true;
  });
  return dropped;
}

std::vector<std::uint64_t> Connection::discard_in(std::uint64_t owner, Verdict verdict) {
  std::vector<std::uint64_t> ids;
  for (auto& [id, part] : parts_in_) {
    if (part.owner != owner || part.fate == PartIn::Fate::discard) continue;
    part.fate = PartIn::Fate::discard;
    part.verdict = verdict;
    part.runs.clear();
    ids.push_back(id);
  }
  return ids;
}

}  // namespace infos
