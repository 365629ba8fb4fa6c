// SPDX-License-Identifier: Apache-2.0
// World: the transfer side of worker processes: what their two cores say to each other, letters,
// leases and stamps.
#include <algorithm>

#include "daemon/control/codec_kv.h"
#include "simulator/world/world.h"
#include "topology/base/check.h"

namespace infos {

void World::serve_kv(Slot& slot) {
  TransferConfig config;
  config.self = ref(slot);
  config.identity.model = "model";
  config.identity.layers = kModelLayers;
  config.identity.block_tokens = slot.config.block_tokens;
  config.may_differ = bit(KvField::block_size);
  config.token_layer_bytes =
      std::max<std::uint64_t>(options_.cluster.kv_bytes_per_token / kModelLayers, 1);
  config.move_bytes_max = config.token_layer_bytes * (1 + rng_.below(200));
  config.moves_per_fetch_max = 1 + static_cast<std::uint32_t>(rng_.below(4));
  slot.kv.emplace(config);
  slot.kv->stamps.resize(std::size_t{slot.config.kv_blocks} * kModelLayers);
}

void World::post(Slot& slot, TransferEvent event) {
  if (!slot.kv) return violated("a transfer where no request is split");
  const Time at = std::max(now_ + some(50), slot.kv->posted_to);
  slot.kv->posted_to = at;
  after_in(slot, at - now_,
           [this, event = std::move(event)](Slot& of) { tell_transfer(of, event); });
}

void World::post_engine(Slot& slot, WorkerEvent event) {
  const Time at = std::max(now_ + some(50), slot.kv->posted_from);
  slot.kv->posted_from = at;
  after_in(slot, at - now_,
           [this, event = std::move(event)](Slot& of) { tell_worker(index(of), event); });
}

void World::tell_transfer(Slot& slot, const TransferEvent& event) {
  INFOS_CHECK(depth_ < transfer_effects_.size());
  TransferEffects& effects = transfer_effects_[depth_++];
  effects.clear();
  ++report_.events;
  slot.kv->core.step(now_, event, effects);
  for (TransferEffect& effect : effects) std::visit([&](auto& e) { perform_kv(slot, e); }, effect);
  --depth_;
  if (checks_) {
    const std::string broken = slot.kv->core.audit().broken;
    if (!broken.empty())
      violated("transfers of worker " + std::to_string(index(slot) + 1) + ": " + broken);
  }
  const Time next = slot.kv->core.next_deadline();
  if (next >= slot.kv->tick) return;
  slot.kv->tick = next;
  after_in(slot, std::max(next - now_, Duration{}), [this](Slot& of) {
    of.kv->tick = kNever;
    tell_transfer(of, Tick{});
  });
}

// ---- wishes of the engine's core

void World::perform(std::uint32_t slot, FetchKv& effect) {
  Slot& s = slots_[slot];
  if (s.kv) s.kv->fetches[effect.id] = effect;
  post(s, std::move(effect));
}

void World::perform(std::uint32_t slot, ExportKv& effect) {
  Slot& s = slots_[slot];
  if (s.kv) s.kv->exports[effect.id];
  post(s, std::move(effect));
}

void World::perform(std::uint32_t slot, AdvanceExport& effect) {
  Slot& s = slots_[slot];
  const auto at = s.kv ? s.kv->exports.find(effect.id) : decltype(s.kv->exports.end()){};
  if (s.kv && at != s.kv->exports.end()) at->second = effect.blocks;
  post(s, std::move(effect));
}

/// Half of a step has gone by: one layer of its rows is final.
void World::layers_ready(Slot& slot) {
  if (!slot.device->is_busy()) return;
  const WorkerAudit audit = slot.core->audit();
  for (const StepSequence& s : slot.device->step().sequences) {
    for (const WorkerAudit::Transfer& t : audit.transfers) {
      if (t.is_fetch || t.is_orphan || t.blocks.size() < s.blocks.size()) continue;
      if (!std::equal(s.blocks.begin(), s.blocks.end(), t.blocks.begin())) continue;
      if (!slot.kv->exports.contains(t.id)) continue;
      slot.device->compute_layer(s, 0);
      LayersReady ready{t.id, static_cast<std::uint32_t>(s.start + s.tokens.size()), 1, s.blocks};
      post(slot, std::move(ready));
    }
  }
}

// ---- wishes of the transfer core

void World::perform_kv(Slot& slot, SendKv& effect) {
  KvLetter letter{ref(slot), effect.to, encode(effect.message)};
  send(slot, Direction::from_worker, from_worker_.put(FromWorker(std::move(letter))));
}

/// A letter has come to its worker.
void World::letter(Slot& slot, KvLetter& letter) {
  if (letter.to != ref(slot)) return;
  const Result<KvMessage> message = decode_kv_message(letter.body);
  if (!message.ok()) return violated("a letter that cannot be read: " + message.error().message);
  if (strikes(options_.faults.letter_lost, "letter-lost")) return;
  if (strikes(options_.faults.letter_twice, "letter-twice")) {
    after_in(slot, some(300'000), [this, received = KvReceived{letter.from, *message}](Slot& of) {
      tell_transfer(of, received);
    });
  }
  if (strikes(options_.faults.letter_late, "letter-late")) {
    after_in(slot, some(800'000), [this, received = KvReceived{letter.from, *message}](Slot& of) {
      tell_transfer(of, received);
    });
    return;
  }
  post(slot, KvReceived{letter.from, *message});
}

void World::perform_kv(Slot& slot, FetchDone& effect) {
  const auto at = slot.kv->fetches.find(effect.id);
  if (at == slot.kv->fetches.end()) return violated("a fetch ended twice");
  for (const auto& [id, flight] : flights_) {
    if (flight.slot == index(slot) && flight.move.fetch == effect.id)
      return violated("a fetch ended while a move may write into its blocks");
  }
  report_.fetched_tokens += effect.tokens;
  slot.kv->fetches.erase(at);
  post_engine(slot, std::move(effect));
}

void World::perform_kv(Slot& slot, ExportDone& effect) {
  const auto at = slot.kv->exports.find(effect.id);
  if (at == slot.kv->exports.end()) return violated("an export ended twice");
  slot.kv->exports.erase(at);
  post_engine(slot, std::move(effect));
}

void World::perform_kv(Slot& slot, AttachSource& effect) {
  slot.kv->attached[effect.fetch] = effect.source;
}
void World::perform_kv(Slot& slot, DetachSource& effect) {
  if (slot.kv->attached.erase(effect.fetch) == 0) violated("a source was detached twice");
}

void World::perform_kv(Slot& slot, FenceOverdue&) { end_process(slot, "a fence is overdue"); }

void World::perform_kv(Slot& slot, OpenLease& effect) {
  slot.kv->leases[effect.lease] = effect.reader;
  after_in(slot, some(1000), [this, lease = effect.lease](Slot& of) {
    tell_transfer(of, LeaseOpened{lease, {}, ""});
  });
}

void World::perform_kv(Slot& slot, StampKv& effect) {
  after_in(slot, some(500), [this, e = effect](Slot& of) {
    if (!of.kv->leases.contains(e.lease)) return;
    for (const SourceBlock& b : e.blocks) {
      for (std::uint32_t l = e.layer_begin; l < e.layer_end; ++l) {
        of.kv->stamp(b.block, l) = {b.generation, b.tokens,
                                    kv_hash(of.device->layer_rows(b.block, l), b.tokens)};
      }
    }
    tell_transfer(of, Stamped{e.id});
  });
}

void World::perform_kv(Slot& slot, CloseLease& effect) {
  if (slot.kv->leases.erase(effect.lease) == 0) violated("a lease was closed twice");
  for (const BlockId block : effect.unstamp)
    for (std::uint32_t l = 0; l < kModelLayers; ++l) slot.kv->stamp(block, l) = {};
}

/// What of KV transfers is not over yet, empty if nothing.
std::string World::kv_at_rest() const {
  if (!flights_.empty()) return std::to_string(flights_.size()) + " moves are under way";
  for (const Slot& slot : slots_) {
    if (!slot.kv) continue;
    const TransferAudit a = slot.kv->core.audit();
    const WorkerAudit w = slot.core->audit();
    const std::size_t left = a.fetches + a.exports + a.leases + a.asks + a.moves + a.fences +
                             a.stamped_blocks + a.blocks.size() + w.transfers.size();
    if (left == 0) continue;
    return "worker " + std::to_string(index(slot) + 1) + " has " + std::to_string(a.fetches) +
           " fetches, " + std::to_string(a.exports) + " exports, " + std::to_string(a.leases) +
           " leases, " + std::to_string(a.asks) + " asks, " + std::to_string(a.moves) + " moves, " +
           std::to_string(a.fences) + " fences; its engine " + std::to_string(w.transfers.size()) +
           " transfers";
  }
  return "";
}

}  // namespace infos
