// SPDX-License-Identifier: Apache-2.0
// The threads of an engine's tensor-parallel ranks: each rank's device is always called from the
// same one. Owns all but rank 0's, which is the caller's. Spins briefly between jobs, then sleeps;
// never allocates after construction.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace infos {

class RankThreads {
 public:
  /// A thread without a job spins for `spin_us` before it sleeps.
  explicit RankThreads(std::uint32_t ranks, std::uint32_t spin_us = 200);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  /// Runs job(rank) on every rank's thread at once and returns when all have ended. Thread: one at
  /// a time.
  template <typename Job>
  void run(const Job& job) {
    run_all([](const void* f, std::uint32_t rank) { (*static_cast<const Job*>(f))(rank); }, &job);
  }

 private:
  using Call = void (*)(const void* job, std::uint32_t rank);
  void run_all(Call call, const void* job);
  void work(std::uint32_t rank);

  std::uint32_t spin_us_;
  Call call_ = nullptr;  // call_ and job_ are published by jobs_
  const void* job_ = nullptr;
  alignas(64) std::atomic<std::uint32_t> jobs_{0};  ///< begun; the threads stop when call_ is null
  alignas(64) std::atomic<std::uint32_t> ended_{0};
  std::vector<std::thread> threads_;
};

}  // namespace infos
