// SPDX-License-Identifier: Apache-2.0
#include "devices/host/collective.h"

#include "devices/host/spin.h"

namespace infos {

Collective::Collective(std::uint32_t ranks, std::uint32_t spin_us)
    : members_(ranks), spin_us_(spin_us) {
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    Member& m = members_[rank];
    m.owner = this;
    m.group = {sizeof(infos_group), rank, ranks, &m, &Collective::exchange};
  }
}

void Collective::fail() {
  state_.fetch_or(kFailed, std::memory_order_acq_rel);
  state_.notify_all();
}

void Collective::reset() {
  arrived_.store(0, std::memory_order_relaxed);
  state_.store(0, std::memory_order_release);
  for (Member& m : members_) m.turn = 0;
}

void Collective::wait(std::uint32_t turn) const {
  const auto moved = [&] { return state_.load(std::memory_order_acquire) != turn; };
  while (!spin_until(spin_us_, moved)) state_.wait(turn, std::memory_order_acquire);
}

infos_code Collective::exchange(void* context, std::uint64_t mine, std::uint64_t* all) {
  Member& m = *static_cast<Member*>(context);
  Collective& c = *m.owner;
  const std::uint32_t parity = m.turn / kTurn % 2;
  m.hand[parity].store(mine, std::memory_order_relaxed);
  if (c.arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == c.ranks()) {
    c.arrived_.store(0, std::memory_order_relaxed);
    c.state_.fetch_add(kTurn, std::memory_order_acq_rel);
    c.state_.notify_all();
  } else {
    c.wait(m.turn);
  }
  if (c.failed()) return INFOS_CANCELLED;
  m.turn += kTurn;
  for (std::uint32_t rank = 0; rank < c.ranks(); ++rank)
    all[rank] = c.members_[rank].hand[parity].load(std::memory_order_relaxed);
  return INFOS_OK;
}

}  // namespace infos
