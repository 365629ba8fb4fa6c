// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/engine/rank_threads.h"

#include "devices/host/spin.h"

namespace infos {

RankThreads::RankThreads(std::uint32_t ranks, std::uint32_t spin_us) : spin_us_(spin_us) {
  threads_.reserve(ranks);
  for (std::uint32_t rank = 1; rank < ranks; ++rank)
    threads_.emplace_back([this, rank] { work(rank); });
}

RankThreads::~RankThreads() {
  call_ = nullptr;
  jobs_.fetch_add(1, std::memory_order_release);
  jobs_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void RankThreads::run_all(Call call, const void* job) {
  const auto others = static_cast<std::uint32_t>(threads_.size());
  call_ = call;
  job_ = job;
  ended_.store(0, std::memory_order_relaxed);
  jobs_.fetch_add(1, std::memory_order_release);
  jobs_.notify_all();
  call(job, 0);
  const auto ended = [&] { return ended_.load(std::memory_order_acquire) == others; };
  while (!spin_until(spin_us_, ended)) {
    const std::uint32_t seen = ended_.load(std::memory_order_acquire);
    if (seen != others) ended_.wait(seen, std::memory_order_acquire);
  }
}

void RankThreads::work(std::uint32_t rank) {
  for (std::uint32_t seen = 0;; ++seen) {
    const auto begun = [&] { return jobs_.load(std::memory_order_acquire) != seen; };
    while (!spin_until(spin_us_, begun)) jobs_.wait(seen, std::memory_order_acquire);
    if (call_ == nullptr) return;
    call_(job_, rank);
    ended_.fetch_add(1, std::memory_order_release);
    ended_.notify_one();
  }
}

}  // namespace infos
