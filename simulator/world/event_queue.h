// SPDX-License-Identifier: Apache-2.0
// EventQueue: what will happen, in order of (time, insertion). A 4-ary heap of small values;
// payloads live with their owner.
#pragma once

#include <cstdint>
#include <vector>

#include "topology/base/units.h"

namespace infos {

struct WorldEvent {
  enum class Kind : std::uint8_t {
    arrive,
    client_gone,
    client_stop,
    to_worker,
    from_worker,
    step_done,
    spawned,
    spawn_failed,
    serving,
    exited,
    alive,
    agent_tick,
    gateway_tick,
    worker_death,
    worker_hang,
    worker_slow,
    worker_roll,
    node_death,
    link_cut,
    worker_tick,
    network,
    action,
  };
  Time at;
  std::uint64_t order = 0;
  Kind kind = Kind::arrive;
  std::uint32_t slot = 0;        ///< worker slot
  std::uint32_t generation = 0;  ///< of its process
  std::uint64_t value = 0;       ///< request or payload
};

class EventQueue {
 public:
  bool empty() const { return heap_.empty(); }
  std::size_t size() const { return heap_.size(); }
  const WorldEvent& next() const { return heap_.front(); }

  void push(WorldEvent event) {
    event.order = ++orders_;
    std::size_t at = heap_.size();
    heap_.push_back(event);
    while (at > 0) {
      const std::size_t parent = (at - 1) / 4;
      if (!before(event, heap_[parent])) break;
      heap_[at] = heap_[parent];
      at = parent;
    }
    heap_[at] = event;
  }

  WorldEvent pop() {
    const WorldEvent top = heap_.front();
    const WorldEvent last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sink(last);
    return top;
  }

 private:
  static bool before(const WorldEvent& a, const WorldEvent& b) {
    return a.at != b.at ? a.at < b.at : a.order < b.order;
  }
  void sink(const WorldEvent& event) {
    std::size_t at = 0;
    for (;;) {
      const std::size_t first = at * 4 + 1;
      if (first >= heap_.size()) break;
      std::size_t least = first;
      for (std::size_t i = first + 1; i < first + 4 && i < heap_.size(); ++i) {
        if (before(heap_[i], heap_[least])) least = i;
      }
      if (!before(heap_[least], event)) break;
      heap_[at] = heap_[least];
      at = least;
    }
    heap_[at] = event;
  }

  std::vector<WorldEvent> heap_;
  std::uint64_t orders_ = 0;
};

/// Keeps payloads of events under small numbers.
template <typename T>
class Parcels {
 public:
  std::uint64_t put(T value) {
    if (free_.empty()) {
      items_.push_back(std::move(value));
      return items_.size() - 1;
    }
    const std::uint64_t at = free_.back();
    free_.pop_back();
    items_[at] = std::move(value);
    return at;
  }
  T take(std::uint64_t at) {
    free_.push_back(at);
    return std::move(items_[at]);
  }

 private:
  std::vector<T> items_;
  std::vector<std::uint64_t> free_;
};

}  // namespace infos
