// SPDX-License-Identifier: Apache-2.0
// Goal: every task of every job runs exactly once, by a thread with a valid index, whether threads
// spin or sleep. Method: many jobs of many sizes, counted; run under the thread sanitizer too.
#include "devices/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace infos::cpu {
namespace {

void run_jobs(ThreadPool& pool, int jobs) {
  std::vector<std::uint32_t> counts(97);  // plain: run() must order them
  for (int job = 0; job < jobs; ++job) {
    const auto tasks = static_cast<std::uint32_t>(job % 97 + 1);
    std::atomic<bool> bad{false};
    pool.for_each(tasks, [&](std::uint32_t task, std::uint32_t thread) {
      ++counts[task];
      if (thread >= pool.threads()) bad = true;
    });
    for (std::uint32_t t = 0; t < counts.size(); ++t) {
      ASSERT_EQ(counts[t], t < tasks ? 1U : 0U) << "job " << job << " task " << t;
      counts[t] = 0;
    }
    ASSERT_FALSE(bad);
  }
}

TEST(ThreadPool, EveryTaskRunsOnce_SpinningThreads) {
  ThreadPool pool(4, {}, 50);
  run_jobs(pool, 2000);
}

TEST(ThreadPool, EveryTaskRunsOnce_SleepingThreads) {
  ThreadPool pool(4, {}, 0);
  run_jobs(pool, 2000);
}

TEST(ThreadPool, OneThread_RunsEverythingOnTheCaller) {
  ThreadPool pool(1, {}, 0);
  run_jobs(pool, 200);
}

TEST(ThreadPool, PinnedThreads_AndCoresThatAreNotThere_StillWork) {
  const std::uint32_t cores[] = {0, 100000};
  ThreadPool pool(3, cores, 10);
  run_jobs(pool, 200);
}

TEST(ThreadPool, NoTasks_ReturnsAtOnce) {
  ThreadPool pool(2, {}, 0);
  pool.for_each(0, [](std::uint32_t, std::uint32_t) { FAIL(); });
}

}  // namespace
}  // namespace infos::cpu
