// SPDX-License-Identifier: Apache-2.0
// The source's half of TransferCore: who may read which export until when, which stamps its blocks
// carry, and what the ready clock says.
#include <algorithm>

#include "daemon/control/transfer_state.h"

namespace infos {

void TransferCore::State::on(Time now, const ExportKv& event, TransferEffects& out) {
  if (exports.contains(event.id)) return;
  const RequestKey key{event.request, event.attempt};
  if (event.tokens == 0 || !event.sink.worker || by_request.contains(key) ||
      config.identity.block_tokens == 0) {
    out.push_back(ExportDone{event.id});
    return;
  }
  Export& wanted = exports[event.id];
  wanted.wish = event;
  wanted.deadline = now + config.export_wait;
  by_request[key] = event.id;
  if (ended_set.erase(key) > 0) std::erase(ended, key);
  std::vector<std::pair<WorkerRef, KvAsk>> early;
  for (auto at = asks.lower_bound({key, WorkerRef{}}); at != asks.end() && at->first.first == key;)
    early.emplace_back(at->first.second, std::move(at->second.ask)), at = asks.erase(at);
  for (const auto& [from, ask] : early) hear(now, from, ask, out);
}

void TransferCore::State::refuse(WorkerRef to, const TransferId& transfer, LeaseId lease,
                                 std::string field, std::string message, TransferEffects& out) {
  out.push_back(SendKv{to, KvRefuse{transfer, lease, std::move(field), std::move(message)}});
}

void TransferCore::State::hear(Time now, WorkerRef from, const KvAsk& m, TransferEffects& out) {
  const auto no = [&](const char* field, std::string message) {
    refuse(from, m.transfer, LeaseId{}, field, std::move(message), out);
  };
  if (m.version < config.version_min || m.version_min > config.version)
    return no("protocol", "the destination speaks versions " + std::to_string(m.version_min) +
                              " to " + std::to_string(m.version) + ", the source " +
                              std::to_string(config.version_min) + " to " +
                              std::to_string(config.version));
  const auto differs = mismatch(config.identity, m.identity, m.may_differ);
  if (differs && !planted(Mutant::identity_unchecked))
    return no(to_string(differs->field), differs->message);
  const RequestKey key{m.transfer.request, m.transfer.attempt};
  const auto known = by_request.find(key);
  if (known != by_request.end()) return grant(now, exports.at(known->second), from, m, out);
  if (ended_set.contains(key)) return no("request", "its KV is not kept here any more");
  const auto [at, is_new] = asks.try_emplace({key, from});
  if (is_new && asks.size() > config.asks_max) {
    asks.erase(at);
    return no("asks", std::to_string(config.asks_max) + " asks wait already");
  }
  if (is_new) at->second.until = now + config.ask_wait;
  if (is_new || m.transfer >= at->second.ask.transfer) at->second.ask = m;
  out.push_back(SendKv{from, KvHold{m.transfer}});
}

void TransferCore::State::grant(Time now, Export& wanted, WorkerRef from, const KvAsk& m,
                                TransferEffects& out) {
  if (from != wanted.wish.sink && !planted(Mutant::sender_unchecked))
    return refuse(from, m.transfer, LeaseId{}, "sink", "the KV is computed for another worker",
                  out);
  if (m.begin >= wanted.wish.tokens)
    return refuse(from, m.transfer, LeaseId{}, "tokens",
                  "the source keeps " + std::to_string(wanted.wish.tokens) +
                      " tokens, wanted are those from " + std::to_string(m.begin),
                  out);
  if (wanted.lease) {
    Lease& lease = leases.at(wanted.lease);
    if (lease.transfer == m.transfer && lease.reader == from) {
      lease.deadline = now + config.lease_for;
      if (lease.open)
        say_offer(wanted.lease, lease, out);
      else
        out.push_back(SendKv{from, KvHold{m.transfer}});
      lease.answer_due = lease.open;
      return;
    }
    if (m.transfer <= lease.transfer) return;  // late
    if (!planted(Mutant::superseded_lease_kept)) close_lease(wanted.lease, out);
  }
  wanted.lease = LeaseId{++last_lease};
  Lease& lease = leases[wanted.lease];
  lease.of = wanted.wish.id;
  lease.transfer = m.transfer;
  lease.reader = from;
  lease.version = std::min(m.version, config.version);
  lease.deadline = now + config.lease_for;
  out.push_back(OpenLease{wanted.lease, from});
}

void TransferCore::State::on(Time now, const LeaseOpened& event, TransferEffects& out) {
  const auto at = leases.find(event.lease);
  if (at == leases.end() || at->second.open) return;
  Lease& lease = at->second;
  if (!event.why.empty()) return end_export(lease.of, event.why, out);
  lease.open = true;
  lease.access = event.access;
  lease.deadline = now + config.lease_for;
  say_offer(event.lease, lease, out);
  stamp(event.lease, lease, out);
}

void TransferCore::State::say_offer(LeaseId id, const Lease& lease, TransferEffects& out) {
  KvOffer offer;
  offer.transfer = lease.transfer;
  offer.lease = id;
  offer.version = lease.version;
  offer.lease_for = config.lease_for;
  offer.tokens = exports.at(lease.of).wish.tokens;
  offer.identity = config.identity;
  offer.access = lease.access;
  out.push_back(SendKv{lease.reader, std::move(offer)});
}

// ---- the ready clock ----

std::uint32_t TransferCore::State::tokens_in_block(const Export& of, std::uint32_t index) const {
  const std::uint64_t size = config.identity.block_tokens;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(size, of.wish.tokens - index * size));
}

void TransferCore::State::on(Time, const AdvanceExport& event, TransferEffects& out) {
  const auto at = exports.find(event.id);
  if (at == exports.end()) return;
  advance(at->second, event.computed, config.identity.layers, event.blocks, out);
}

void TransferCore::State::on(Time, const LayersReady& event, TransferEffects& out) {
  const auto at = exports.find(event.id);
  if (at == exports.end()) return;
  advance(at->second, event.tokens, std::min(event.layers, config.identity.layers), event.blocks,
          out);
}

/// Layers of whole blocks (or of the export's tail) become final.
void TransferCore::State::advance(Export& of, std::uint32_t tokens, std::uint32_t layers,
                                  const std::vector<BlockId>& blocks, TransferEffects& out) {
  const std::uint64_t size = config.identity.block_tokens;
  const std::size_t all = (of.wish.tokens + size - 1) / size;
  const std::size_t given = std::min(blocks.size(), all);
  const std::size_t both = std::min(given, of.blocks.size());
  if (!std::equal(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(both),
                  of.blocks.begin()))
    return end_export(of.wish.id, "its blocks were exchanged", out);
  for (std::size_t i = of.blocks.size(); i < given; ++i) {
    of.blocks.push_back(blocks[i]);
    of.final_layers.push_back(0);
  }
  for (std::uint32_t i = 0; i < given; ++i) {
    const std::uint64_t end =
        planted(Mutant::ready_too_early) ? i * size + 1 : i * size + tokens_in_block(of, i);
    if (end > tokens) break;
    of.final_layers[i] = std::max(of.final_layers[i], layers);
  }
  if (of.lease) stamp(of.lease, leases.at(of.lease), out);
  if (planted(Mutant::lease_freed_early) && layers == config.identity.layers &&
      tokens >= of.wish.tokens)
    out.push_back(ExportDone{of.wish.id});
}

/// Asks for the stamps that are not written yet of what is final.
void TransferCore::State::stamp(LeaseId id, Lease& lease, TransferEffects& out) {
  if (!lease.open) return;
  const Export& of = exports.at(lease.of);
  for (; lease.joined < of.blocks.size() && of.final_layers[lease.joined] > 0; ++lease.joined) {
    if (!stamps.join(of.blocks[lease.joined], tokens_in_block(of, lease.joined))) break;
    lease.look = true;
  }
  StampKv wish;
  const auto flush = [&] {
    if (wish.blocks.empty()) return;
    wish.id = next_id();
    wish.lease = id;
    PendingStamp& pending = pending_stamps[wish.id];
    pending.lease = id;
    pending.layers = wish.layer_end;
    for (const SourceBlock& block : wish.blocks) pending.blocks.push_back(block.block);
    out.push_back(std::move(wish));
    wish = StampKv{};
  };
  for (std::uint32_t i = lease.wished; i < lease.joined; ++i) {
    StampBook::Entry& entry = *stamps.find(of.blocks[i]);
    if (i == lease.wished && entry.requested == config.identity.layers) {
      ++lease.wished;
      continue;
    }
    const std::uint32_t layers = of.final_layers[i];
    if (layers <= entry.requested) {
      flush();
      continue;
    }
    if (wish.layer_begin != entry.requested || wish.layer_end != layers) flush();
    wish.layer_begin = entry.requested;
    wish.layer_end = layers;
    wish.blocks.push_back({of.blocks[i], entry.generation, entry.tokens});
    entry.requested = layers;
  }
  flush();
}

void TransferCore::State::on(Time, const Stamped& event, TransferEffects&) {
  const auto at = pending_stamps.find(event.id);
  if (at == pending_stamps.end()) return;
  bool shared = false;
  for (const BlockId block : at->second.blocks) {
    StampBook::Entry* entry = stamps.find(block);
    if (!entry) continue;
    entry->stamped = std::max(entry->stamped, at->second.layers);
    shared = shared || entry->leases > 1;
  }
  for (auto& [id, lease] : leases)
    if (shared || id == at->second.lease) lease.look = true;
  pending_stamps.erase(at);
}

/// What the clock says now, if it is new or was asked for.
void TransferCore::State::say_advance(Time now, LeaseId id, Lease& lease, TransferEffects& out) {
  const Export& of = exports.at(lease.of);
  std::vector<KvReady> ready;
  const std::uint32_t all = config.identity.layers;
  const auto layers_of = [&](std::uint32_t i) {
    return std::min(stamps.find(of.blocks[i])->stamped, of.final_layers[i]);
  };
  while (lease.whole < lease.joined && layers_of(lease.whole) == all) ++lease.whole;
  if (lease.whole > 0) ready.push_back({lease.whole, all});
  for (std::uint32_t i = lease.whole; i < lease.joined; ++i) {
    const std::uint32_t layers = layers_of(i);
    if (ready.empty() || ready.back().layers != layers) ready.push_back({0, layers});
    ++ready.back().blocks;
  }
  lease.look = false;
  if (ready != lease.said)
    ++lease.sequence;
  else if (!lease.answer_due)
    return;
  lease.answer_due = false;
  lease.said = ready;
  lease.paced_until = now + config.advance_pace;
  KvAdvance m;
  m.transfer = lease.transfer;
  m.lease = id;
  m.sequence = lease.sequence;
  m.first = lease.acked;
  for (std::uint32_t i = lease.acked; i < lease.joined; ++i) {
    m.blocks.push_back(of.blocks[i]);
    m.generations.push_back(stamps.find(of.blocks[i])->generation);
  }
  m.ready = std::move(ready);
  out.push_back(SendKv{lease.reader, std::move(m)});
}

// ---- ends ----

void TransferCore::State::hear(Time now, WorkerRef from, const KvRenew& m, TransferEffects& out) {
  const auto at = leases.find(m.lease);
  if (at == leases.end() || at->second.reader != from || at->second.transfer != m.transfer)
    return refuse(from, m.transfer, m.lease, "lease", "it has ended", out);
  Lease& lease = at->second;
  if (!lease.open) return;
  lease.deadline = now + config.lease_for;
  lease.acked = std::max(lease.acked, std::min(m.blocks_known, lease.joined));
  lease.answer_due = true;
}

void TransferCore::State::hear(Time, WorkerRef from, const KvRelease& m, TransferEffects& out) {
  const RequestKey key{m.transfer.request, m.transfer.attempt};
  const auto ask = asks.find({key, from});
  if (ask != asks.end() && ask->second.ask.transfer == m.transfer) asks.erase(ask);
  const auto known = by_request.find(key);
  if (known == by_request.end()) return;
  const Export& of = exports.at(known->second);
  if (!of.lease) return;
  const Lease& lease = leases.at(of.lease);
  if (lease.reader != from || lease.transfer != m.transfer) return;
  if (m.lease && m.lease != of.lease) return;
  end_export(known->second, "", out);
}

void TransferCore::State::on(Time, const EndExport& event, TransferEffects& out) {
  end_export(event.id, "the source ended it", out);
}

/// Its stamps end with it where no other lease names the block; stamps that it still waited for are
/// asked for again by the others.
void TransferCore::State::close_lease(LeaseId id, TransferEffects& out) {
  const auto at = leases.find(id);
  const Lease lease = std::move(at->second);
  Export& of = exports.at(lease.of);
  leases.erase(at);
  of.lease = LeaseId{};
  CloseLease close{id, {}};
  for (std::uint32_t i = 0; i < lease.joined; ++i)
    if (stamps.leave(of.blocks[i])) close.unstamp.push_back(of.blocks[i]);
  bool shared = false;
  for (auto pending = pending_stamps.begin(); pending != pending_stamps.end();) {
    if (pending->second.lease != id) {
      ++pending;
      continue;
    }
    for (const BlockId block : pending->second.blocks) {
      StampBook::Entry* entry = stamps.find(block);
      if (entry) entry->requested = entry->stamped, shared = true;
    }
    pending = pending_stamps.erase(pending);
  }
  out.push_back(std::move(close));
  if (!shared) return;
  for (auto& [other, state] : leases) {
    state.wished = 0;
    stamp(other, state, out);
  }
}

void TransferCore::State::end_export(EffectId id, const std::string& message,
                                     TransferEffects& out) {
  const auto at = exports.find(id);
  if (at == exports.end()) return;
  Export& of = at->second;
  const RequestKey key{of.wish.request, of.wish.attempt};
  if (of.lease) {
    const Lease& lease = leases.at(of.lease);
    if (!message.empty())
      refuse(lease.reader, lease.transfer, lease.open ? of.lease : LeaseId{}, "lease", message,
             out);
    close_lease(of.lease, out);
  }
  out.push_back(ExportDone{id});
  if (planted(Mutant::export_done_twice)) out.push_back(ExportDone{id});
  by_request.erase(key);
  exports.erase(at);
  ended.push_back(key);
  ended_set.insert(key);
  if (ended.size() > kEndedMax) {
    ended_set.erase(ended.front());
    ended.pop_front();
  }
}

void TransferCore::State::leases_due(Time now, TransferEffects& out) {
  std::vector<EffectId> over;
  for (auto& [id, of] : exports) {
    const bool waits = !of.lease && now >= of.deadline;
    const bool silent = of.lease && now >= leases.at(of.lease).deadline;
    if (waits || (silent && !planted(Mutant::release_lost))) over.push_back(id);
  }
  for (const EffectId id : over) end_export(id, "the destination was silent", out);
  for (auto at = asks.begin(); at != asks.end();) {
    if (now < at->second.until) {
      ++at;
      continue;
    }
    refuse(at->first.second, at->second.ask.transfer, LeaseId{}, "request",
           "it did not come to the source", out);
    at = asks.erase(at);
  }
  for (auto& [id, lease] : leases) {
    if (lease.open && (lease.look || lease.answer_due) && now >= lease.paced_until)
      say_advance(now, id, lease, out);
  }
}

}  // namespace infos
