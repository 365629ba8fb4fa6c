// SPDX-License-Identifier: Apache-2.0
// World: the network, what goes wrong, and the invariants of workers and gateway.
#include <algorithm>

#include "simulator/world/world.h"

namespace infos {

/// True if a fault of this chance happens now. Draws only when it may happen.
bool World::strikes(double chance, const char* kind) {
  if (chance <= 0 || is_healed() || !rng_.chance(chance)) return false;
  ++report_.faults[kind];
  return true;
}

/// A message between gateway and worker. Streams keep their order, except for faults.
void World::send(Slot& slot, Direction direction, std::uint64_t parcel) {
  const bool to = direction == Direction::to_worker;
  const Kind kind = to ? Kind::to_worker : Kind::from_worker;
  const FaultFigures& faults = options_.faults;
  const std::uint32_t i = index(slot);
  Time& last = to ? slot.sent_to : slot.sent_from;
  const auto some = [&](double mean_seconds) {
    return Duration{static_cast<std::int64_t>(rng_.exponential(mean_seconds * 1e9))};
  };
  Time at = std::max(now_ + options_.latency, last);
  if (strikes(faults.message_lost, "message-lost")) {
    // TCP says so by breaking: neither side goes on.
    if (to)
      to_worker_.take(parcel);
    else
      from_worker_.take(parcel);
    return end_process(slot, "its stream broke");
  }
  bool keeps_order = true;
  if (strikes(faults.message_late, "message-late")) {
    at = at + some(0.3);
    keeps_order = rng_.chance(0.5);
  }
  if (keeps_order) last = at;
  if (strikes(faults.message_twice, "message-twice")) {
    std::uint64_t twin = 0;
    if (to) {
      ToWorker message = to_worker_.take(parcel);
      twin = to_worker_.put(message);
      parcel = to_worker_.put(std::move(message));
    } else {
      FromWorker report = from_worker_.take(parcel);
      twin = from_worker_.put(report);
      parcel = from_worker_.put(std::move(report));
    }
    push(at + some(0.1), kind, i, slot.generation.value, twin);
    ++in_flight_;
  }
  push(at, kind, i, slot.generation.value, parcel);
  ++in_flight_;
}

void World::arm_fault(Kind kind, Duration gap) {
  if (gap.ns <= 0) return;
  const Time at =
      now_ + Duration{static_cast<std::int64_t>(rng_.exponential(static_cast<double>(gap.ns)))};
  if (at < heal_at()) push(at, kind);
}

void World::strike(Kind kind) {
  const FaultFigures& faults = options_.faults;
  Slot& slot = slots_[rng_.below(slots_.size())];
  switch (kind) {
    case Kind::worker_death:
      arm_fault(kind, faults.worker_death_gap);
      if (!slot.alive) return;
      ++report_.faults["worker-death"];
      end_process(slot, "the modelled process crashed");
      return;
    case Kind::worker_hang:
      arm_fault(kind, faults.worker_hang_gap);
      if (!slot.serving) return;
      ++report_.faults["worker-hang"];
      slot.hung = true;
      return;
    case Kind::worker_slow:
      arm_fault(kind, faults.worker_slow_gap);
      ++report_.faults["worker-slow"];
      slot.slow_until = now_ + seconds(1 + static_cast<std::int64_t>(rng_.below(5)));
      return;
    case Kind::worker_roll:
      arm_fault(kind, faults.worker_roll_gap);
      ++report_.faults["worker-roll"];
      slot.spec.options["roll"] = std::to_string(report_.faults["worker-roll"]);
      tell_agent(slot.node, desired(slot.node));
      return;
    case Kind::node_death:
      arm_fault(kind, faults.node_death_gap);
      if (nodes_.size() > 1)
        end_node(1 + static_cast<std::uint32_t>(rng_.below(nodes_.size() - 1)));
      return;
    case Kind::link_cut: {
      arm_fault(kind, faults.link_cut_gap);
      if (nodes_.size() < 2) return;
      const auto a = static_cast<std::uint32_t>(rng_.below(nodes_.size()));
      const auto b = static_cast<std::uint32_t>(rng_.below(nodes_.size() - 1));
      return cut_link(a, b < a ? b : b + 1);
    }
    default:
      return;
  }
}

/// KV accounting, counted anew from the sequences' block tables.
void World::check_worker(std::uint32_t i) {
  const Slot& slot = slots_[i];
  const WorkerAudit audit = slot.core->audit();
  const std::string name = "worker " + std::to_string(i + 1) + ": ";
  if (!audit.broken.empty()) return violated(name + audit.broken);
  std::vector<std::uint32_t> references(audit.references.size());
  for (const WorkerAudit::Held& held : audit.sequences) {
    for (const BlockId block : held.blocks) ++references[block.value];
  }
  std::vector<std::uint8_t> moving(references.size());  // 1: may be read, 2: may be written
  for (const WorkerAudit::Transfer& t : audit.transfers) {
    for (const BlockId block : t.blocks) {
      if (t.is_orphan) ++references[block.value];
      moving[block.value] |= t.is_fetch ? 2 : t.is_orphan ? 1 : 0;
    }
  }
  std::uint32_t used = 0;
  for (std::size_t b = 0; b < references.size(); ++b) {
    const std::string block = name + "block " + std::to_string(b);
    if (references[b] != audit.references[b]) {
      return violated(block + " is in " + std::to_string(references[b]) +
                      " sequences and transfers but has " + std::to_string(audit.references[b]) +
                      " references");
    }
    if (references[b] > 1 && !audit.published[b])
      return violated(block + " is in two sequences while it may still be written");
    if (moving[b] > 1 && (references[b] != 1 || audit.published[b]))
      return violated(block + " may be written by a transfer but is not its own");
    used += references[b] > 0 ? 1 : 0;
  }
  if (slot.kv) {
    for (const auto& [id, blocks] : slot.kv->exports) {
      for (const BlockId b : blocks)
        if (references[b.value] == 0)
          return violated(name + "block " + std::to_string(b.value) + " of an export is free");
    }
    for (const auto& [id, fetch] : slot.kv->fetches) {
      for (std::size_t b = fetch.begin / slot.config.block_tokens; b < fetch.blocks.size(); ++b)
        if (moving[fetch.blocks[b].value] < 2)
          return violated(name + "block " + std::to_string(fetch.blocks[b].value) +
                          " of a fetch is the fetch's no more");
    }
  }
  if (used + audit.cached + audit.free != references.size())
    return violated(name + "used, cached and free blocks are not all blocks");
  if (!slot.device->is_busy()) return;
  for (const StepSequence& s : slot.device->step().sequences) {
    const std::uint32_t first = s.start / slot.config.block_tokens;
    for (std::uint32_t b = 0; b < s.blocks.size(); ++b) {
      const std::uint32_t block = s.blocks[b].value;
      if (references[block] == 0)
        return violated(name + "block " + std::to_string(block) +
                        " was freed while a step uses it");
      if (b >= first && moving[block] != 0)
        return violated(name + "block " + std::to_string(block) +
                        " is written by a step while a transfer uses it");
      if (b >= first && (references[block] != 1 || audit.published[block])) {
        return violated(name + "block " + std::to_string(block) +
                        " is written by a step but is not one sequence's own");
      }
    }
  }
}

void World::check_gateway() {
  if (gateway_.live_requests() != ledger_.open()) {
    violated("the gateway has " + std::to_string(gateway_.live_requests()) + " requests, " +
             std::to_string(ledger_.open()) + " clients wait for an answer");
  }
  if (gateway_.live_requests() > options_.gateway.max_requests)
    violated("the gateway admitted too many requests");
  if (gateway_.counters().divergences > 0)
    violated("the decode side drew another token than the prefill side");
}

}  // namespace infos
