// SPDX-License-Identifier: Apache-2.0
#include "transports/shm/copier.h"

#include <sys/eventfd.h>

#include <algorithm>

#include "topology/base/check.h"
#include "transports/shm/stream_copy.h"

namespace infos {
namespace {

/// Small enough that a fence waits for microseconds, large enough that a claim costs nothing.
constexpr std::uint64_t kChunkBytes = 256 * 1024;
constexpr std::size_t kChunkRunsMax = 1024;
/// Waking a helper costs some 50 us: the time of copying half a megabyte.
constexpr std::uint64_t kHelpBytesMin = 1024 * 1024;

}  // namespace

Copier::Copier(std::uint32_t helpers, int event_fd) : event_fd_(event_fd) {
  for (std::uint32_t i = 0; i < helpers; ++i) helpers_.emplace_back([this] { help(); });
}

Copier::~Copier() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void Copier::give(CopyJob* job) {
  std::uint64_t bytes = 0;
  for (const CopyRun& run : job->runs) bytes += run.bytes;
  const std::lock_guard lock(mutex_);
  if (job->runs.empty()) {
    over_.push_back(job);
    return;
  }
  waiting_.push_back(job);
  waiting_bytes_ += bytes;
  if (waiting_bytes_ >= kHelpBytesMin) wake_.notify_one();
}

void Copier::abort(CopyJob* job) {
  const std::lock_guard lock(mutex_);
  if (job->exhausted()) return;  // over, or its last chunk is under way
  const auto at = std::find(waiting_.begin(), waiting_.end(), job);
  INFOS_CHECK(at != waiting_.end());
  waiting_.erase(at);
  std::uint64_t left = job->runs[job->next_run].bytes - job->next_byte;
  for (std::size_t i = job->next_run + 1; i < job->runs.size(); ++i) left += job->runs[i].bytes;
  waiting_bytes_ -= left;
  job->aborted = true;
  if (job->active == 0) over_.push_back(job);
}

bool Copier::claim(Chunk& chunk) {
  if (waiting_.empty()) return false;
  CopyJob* job = waiting_.front();
  chunk = {job, job->next_run, job->next_byte, 0};
  for (std::size_t runs = 0; runs < kChunkRunsMax && chunk.bytes < kChunkBytes; ++runs) {
    const std::uint64_t left = job->runs[job->next_run].bytes - job->next_byte;
    const std::uint64_t take = std::min(left, kChunkBytes - chunk.bytes);
    chunk.bytes += take;
    job->next_byte += take;
    if (take < left) break;
    job->next_byte = 0;
    if (++job->next_run == job->runs.size()) break;
  }
  waiting_bytes_ -= chunk.bytes;
  ++job->active;
  if (job->exhausted()) waiting_.pop_front();
  return true;
}

void Copier::copy(const Chunk& chunk) {
  std::uint64_t left = chunk.bytes, byte = chunk.byte;
  for (std::size_t i = chunk.run; left > 0; ++i, byte = 0) {
    const CopyRun& run = chunk.job->runs[i];
    const std::uint64_t take = std::min(left, run.bytes - byte);
    stream_copy(run.to + byte, run.from + byte, take);
    left -= take;
  }
  stream_fence();
}

bool Copier::settle(CopyJob* job) {
  --job->active;
  if (job->active > 0 || !job->exhausted()) return false;
  over_.push_back(job);
  return true;
}

bool Copier::work() {
  Chunk chunk;
  {
    const std::lock_guard lock(mutex_);
    if (!claim(chunk)) return false;
  }
  copy(chunk);
  const std::lock_guard lock(mutex_);
  settle(chunk.job);
  return true;
}

bool Copier::has_work() {
  const std::lock_guard lock(mutex_);
  return !waiting_.empty() || !over_.empty();
}

std::vector<CopyJob*> Copier::collect() {
  std::vector<CopyJob*> over;
  const std::lock_guard lock(mutex_);
  over.swap(over_);
  if (signalled_) {
    eventfd_t count = 0;
    eventfd_read(event_fd_, &count);
    signalled_ = false;
  }
  return over;
}

void Copier::help() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || waiting_bytes_ >= kHelpBytesMin; });
    if (stop_) return;
    Chunk chunk;
    while (!stop_ && claim(chunk)) {
      lock.unlock();
      copy(chunk);
      lock.lock();
      if (!settle(chunk.job) || signalled_) continue;
      eventfd_write(event_fd_, 1);
      signalled_ = true;
    }
  }
}

}  // namespace infos
