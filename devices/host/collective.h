// SPDX-License-Identifier: Apache-2.0
// The host's side of an infos_group: ranks of one process meet and hand each other a value. Owns
// the meeting's state; never looks at what is handed. Spins briefly, then sleeps; no system call
// when the ranks come at about the same time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "devices/abi/infos_device.h"

namespace infos {

class Collective {
 public:
  /// A rank that waits spins for `spin_us` before it sleeps.
  explicit Collective(std::uint32_t ranks, std::uint32_t spin_us = 100);
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  std::uint32_t ranks() const { return static_cast<std::uint32_t>(members_.size()); }
  /// What a device of this rank is opened with; lives as long as this.
  const infos_group* group(std::uint32_t rank) const { return &members_[rank].group; }

  /// A rank has failed: every wait that runs or comes until reset() ends with INFOS_CANCELLED.
  /// Thread: any.
  void fail();
  bool failed() const { return (state_.load(std::memory_order_acquire) & kFailed) != 0; }
  /// Makes a failed group whole. Requires: no rank is within a call of its device.
  void reset();

 private:
  // state_: bit 0 says failed, the rest counts meetings and may wrap.
  static constexpr std::uint32_t kFailed = 1, kTurn = 2;
  struct alignas(64) Member {
    infos_group group{};
    Collective* owner = nullptr;
    std::uint32_t turn = 0;  // of state_, as this rank last saw it; its own thread's
    // What it hands over, by the meeting's parity: a rank that is a meeting ahead must not
    // overwrite what a slow one still reads, and nobody can be two ahead.
    std::atomic<std::uint64_t> hand[2] = {0, 0};
  };
  static infos_code exchange(void* context, std::uint64_t mine, std::uint64_t* all);
  void wait(std::uint32_t turn) const;

  std::vector<Member> members_;
  std::uint32_t spin_us_;
  alignas(64) std::atomic<std::uint32_t> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> state_{0};
};

}  // namespace infos
