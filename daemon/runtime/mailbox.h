// SPDX-License-Identifier: Apache-2.0
// A bounded queue between the thread that reads a worker's socket and the thread that computes.
// Looking whether something is there costs one relaxed load, so the computing thread may look
// between any two steps. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "topology/base/units.h"

namespace infos {

template <typename T>
class Mailbox {
 public:
  explicit Mailbox(std::size_t capacity) : capacity_(capacity) {}

  /// Waits while the box is full; a closed box swallows.
  void push(T item) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return items_.size() < capacity_ || closed_; });
    if (closed_) return;
    items_.push_back(std::move(item));
    filled_.store(true, std::memory_order_release);
    lock.unlock();
    arrived_.notify_one();
  }

  /// Appends what is there, in order.
  void drain(std::vector<T>& out) {
    if (!filled_.load(std::memory_order_acquire)) return;
    {
      const std::lock_guard lock(mutex_);
      for (T& item : items_) out.push_back(std::move(item));
      items_.clear();
      filled_.store(false, std::memory_order_release);
    }
    room_.notify_all();
  }

  /// Parks until something is there, the box is closed or poked, or `limit` has passed.
  void wait_for(Duration limit) {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, std::chrono::nanoseconds(limit.ns),
                      [&] { return !items_.empty() || closed_ || poked_; });
    poked_ = false;
  }

  /// Ends the wait, or the next one: there is something to do elsewhere.
  void poke() {
    {
      const std::lock_guard lock(mutex_);
      poked_ = true;
    }
    arrived_.notify_all();
  }

  /// No more comes; what is there stays.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    arrived_.notify_all();
    room_.notify_all();
  }
  bool closed() const { return closed_.load(std::memory_order_acquire); }

 private:
  const std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable room_;
  std::vector<T> items_;
  bool poked_ = false;
  std::atomic<bool> closed_{false};  ///< written under the mutex
  std::atomic<bool> filled_{false};  ///< likewise
};

}  // namespace infos
