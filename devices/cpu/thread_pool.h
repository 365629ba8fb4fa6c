// SPDX-License-Identifier: Apache-2.0
// The persistent threads of one opened CPU device. run() is called from one thread at a time, which
// takes part in the work; the others spin for a while after each job and then sleep. Never
// allocates after construction.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

namespace infos::cpu {

class ThreadPool {
 public:
  /// Gets the task's index and the index of the thread that runs it, in [0, threads()).
  using Task = void (*)(const void* context, std::uint32_t task, std::uint32_t thread);

  /// Thread i runs on cores[i % cores.size()]; no pinning when cores is empty. The caller of run()
  /// is thread 0 and is not pinned: it belongs to somebody else.
  ThreadPool(std::uint32_t threads, std::span<const std::uint32_t> cores, std::uint32_t spin_us);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::uint32_t threads() const { return static_cast<std::uint32_t>(workers_.size()) + 1; }

  /// Runs tasks [0, tasks) on all threads, in any order, and returns when all are done.
  void run(std::uint32_t tasks, Task task, const void* context);

  /// run() with a callable of (task, thread).
  template <typename Function>
  void for_each(std::uint32_t tasks, const Function& function) {
    run(
        tasks,
        [](const void* f, std::uint32_t task, std::uint32_t thread) {
          (*static_cast<const Function*>(f))(task, thread);
        },
        &function);
  }

 private:
  void work(std::uint32_t thread);
  void drain(std::uint32_t epoch, std::uint32_t thread);

  // One job at a time. `ticket_` holds (epoch, next task): a thread that is late cannot take a task
  // of another job, so run() need not wait for threads that took none.
  alignas(64) std::atomic<std::uint64_t> ticket_{0};
  alignas(64) std::atomic<std::uint32_t> done_{0};
  alignas(64) std::atomic<std::uint32_t> epoch_{0};
  std::atomic<std::uint32_t> tasks_{0};
  std::atomic<Task> task_{nullptr};
  std::atomic<const void*> context_{nullptr};
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::uint32_t spin_us_;
  std::vector<std::thread> workers_;
};

}  // namespace infos::cpu
