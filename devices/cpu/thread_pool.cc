// SPDX-License-Identifier: Apache-2.0
#include "devices/cpu/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>

namespace infos::cpu {
namespace {

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// Best effort: a core outside the process's set leaves the thread where it is.
void pin(std::uint32_t core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (core < CPU_SETSIZE) CPU_SET(core, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/// Spins until `ready()` or `us` have passed; the clock is read rarely.
template <typename Ready>
bool spin(std::uint32_t us, Ready ready) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(us);
  do {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      pause_briefly();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

ThreadPool::ThreadPool(std::uint32_t threads, std::span<const std::uint32_t> cores,
                       std::uint32_t spin_us)
    : spin_us_(spin_us) {
  workers_.reserve(threads);
  for (std::uint32_t i = 1; i < threads; ++i) {
    const bool pinned = !cores.empty();
    const std::uint32_t core = pinned ? cores[i % cores.size()] : 0;
    workers_.emplace_back([this, i, pinned, core] {
      if (pinned) pin(core);
      work(i);
    });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(std::uint32_t tasks, Task task, const void* context) {
  if (tasks == 0) return;
  if (tasks == 1 || workers_.empty()) {
    for (std::uint32_t i = 0; i < tasks; ++i) task(context, i, 0);
    return;
  }
  const std::uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  // Close the old job first: a late thread that reads a field of the new job cannot then take a
  // ticket of the old one.
  const std::uint64_t first = std::uint64_t{epoch} << 32;
  ticket_.store(first | 0xFFFFFFFFU, std::memory_order_release);
  tasks_.store(tasks, std::memory_order_release);
  task_.store(task, std::memory_order_release);
  context_.store(context, std::memory_order_release);
  done_.store(0, std::memory_order_release);
  ticket_.store(first, std::memory_order_release);
  epoch_.store(epoch);  // sequentially consistent with the sleepers' count below
  if (sleepers_.load() != 0) epoch_.notify_all();
  drain(epoch, 0);
  while (done_.load(std::memory_order_acquire) != tasks) pause_briefly();
}

void ThreadPool::drain(std::uint32_t epoch, std::uint32_t thread) {
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  for (;;) {
    // Read before the ticket is taken: when the exchange succeeds, the job was this one all along.
    const std::uint32_t tasks = tasks_.load(std::memory_order_acquire);
    const Task task = task_.load(std::memory_order_acquire);
    const void* context = context_.load(std::memory_order_acquire);
    if (ticket >> 32 != epoch) return;
    const auto next = static_cast<std::uint32_t>(ticket);
    if (next >= tasks) return;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire))
      continue;
    task(context, next, thread);
    done_.fetch_add(1, std::memory_order_release);
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadPool::work(std::uint32_t thread) {
  std::uint32_t seen = 0;
  for (;;) {
    const auto changed = [this, &seen] { return epoch_.load(std::memory_order_acquire) != seen; };
    if (!spin(spin_us_, changed)) {
      sleepers_.fetch_add(1);
      epoch_.wait(seen);
      sleepers_.fetch_sub(1);
    }
    seen = epoch_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    drain(seen, thread);
  }
}

}  // namespace infos::cpu
