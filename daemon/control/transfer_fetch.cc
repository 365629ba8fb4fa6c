// SPDX-License-Identifier: Apache-2.0
// The destination's half of TransferCore: asks, hears the ready clock, renews, stops, and ends a
// fetch only when nobody can write into its blocks.
#include <algorithm>

#include "daemon/control/transfer_state.h"

namespace infos {
namespace {

std::uint32_t columns_for(std::uint32_t tokens, std::uint32_t block_tokens) {
  return static_cast<std::uint32_t>((std::uint64_t{tokens} + block_tokens - 1) / block_tokens);
}

}  // namespace

void TransferCore::State::on(Time now, const FetchKv& event, TransferEffects& out) {
  if (fetches.contains(event.id)) return;
  const KvIdentity& ours = config.identity;
  const std::uint64_t size = ours.block_tokens;
  const auto reject = [&](const char* why) { out.push_back(FetchDone{event.id, 0, why}); };
  if (event.begin >= event.end) return reject("nothing was asked for");
  if (size == 0 || ours.layers == 0) return reject("this worker has no KV to fetch into");
  if (event.begin % size != 0 || event.blocks.size() * size < event.end)
    return reject("the blocks do not cover the tokens");
  if (!event.source.worker || event.source == config.self) return reject("no source");

  const auto first = static_cast<std::uint32_t>(event.begin / size);
  const std::uint32_t last = columns_for(event.end, ours.block_tokens);
  for (std::uint32_t i = first; i < last; ++i) {
    const std::uint64_t tokens = std::min<std::uint64_t>(event.end, (i + 1) * size) - i * size;
    if (ledger.reserve(event.blocks[i], event.id, tokens * ours.layers)) continue;
    for (std::uint32_t j = first; j < i; ++j) ledger.release(event.blocks[j]);
    return reject("a block still belongs to another transfer");
  }
  Fetch& fetch = fetches[event.id];
  fetch.wish = event;
  fetch.end = event.end;
  fetch.transfer = {event.request, event.attempt, ++last_serial};
  fetch.began = fetch.heard = fetch.idle_since = fetch.last_landed = now;
  by_transfer[fetch.transfer] = event.id;
  say_ask(now, fetch, out);
}

void TransferCore::State::on(Time now, const AbandonFetch& event, TransferEffects& out) {
  const auto at = fetches.find(event.id);
  if (at == fetches.end()) return;
  stop(now, at->second, "abandoned", out);
  if (planted(Mutant::abandon_forgets_moves))
    forget_moves([&](const MoveState& move) { return move.fetch == event.id; });
  finish_if_over(event.id, out);
}

void TransferCore::State::say_ask(Time now, Fetch& fetch, TransferEffects& out) {
  fetch.resend_at = now + config.resend;
  KvAsk ask;
  ask.transfer = fetch.transfer;
  ask.version = config.version;
  ask.version_min = config.version_min;
  ask.begin = fetch.wish.begin;
  ask.end = fetch.wish.end;
  ask.identity = config.identity;
  ask.may_differ = config.may_differ;
  out.push_back(SendKv{fetch.wish.source, std::move(ask)});
}

void TransferCore::State::say_renew(Time now, Fetch& fetch, TransferEffects& out) {
  fetch.resend_at = now + config.resend;
  out.push_back(SendKv{fetch.wish.source, KvRenew{fetch.transfer, fetch.lease, fetch.known}});
}

Fetch* TransferCore::State::fetch_of(WorkerRef from, const TransferId& transfer) {
  const auto at = by_transfer.find(transfer);
  if (at == by_transfer.end()) return nullptr;
  Fetch& fetch = fetches.at(at->second);
  return fetch.wish.source == from ? &fetch : nullptr;
}

void TransferCore::State::hear(Time now, WorkerRef from, const KvHold& m, TransferEffects&) {
  Fetch* fetch = fetch_of(from, m.transfer);
  if (fetch && fetch->phase == FetchPhase::asking) fetch->heard = now;
}

/// Why an offer cannot be taken; empty if it can.
std::string TransferCore::State::unusable(const KvOffer& m, const Fetch& fetch) const {
  if (m.version < config.version_min || m.version > config.version)
    return "protocol differs: the source speaks version " + std::to_string(m.version) +
           ", allowed are " + std::to_string(config.version_min) + " to " +
           std::to_string(config.version);
  const auto differs = mismatch(m.identity, config.identity, config.may_differ);
  if (differs && !planted(Mutant::identity_unchecked)) return differs->message;
  if (std::string why = reasons_against(m.identity, config.identity, config.policy); !why.empty())
    return why;
  if (!m.lease || m.identity.block_tokens == 0) return "the source's offer is not complete";
  if (m.tokens <= fetch.wish.begin)
    return "the source has " + std::to_string(m.tokens) + " tokens, wanted are those from " +
           std::to_string(fetch.wish.begin);
  return {};
}

void TransferCore::State::hear(Time now, WorkerRef from, const KvOffer& m, TransferEffects& out) {
  Fetch* fetch = fetch_of(from, m.transfer);
  if (!fetch) {
    out.push_back(SendKv{from, KvRelease{m.transfer, m.lease, KvReleaseHow::aborted}});
    return;
  }
  if (fetch->phase == FetchPhase::fetching && m.lease == fetch->lease) fetch->heard = now;
  if (fetch->phase != FetchPhase::asking) return;
  const EffectId id = fetch->wish.id;
  if (std::string why = unusable(m, *fetch); !why.empty()) {
    fetch->lease = m.lease;
    stop(now, *fetch, std::move(why), out);
    return finish_if_over(id, out);
  }
  fetch->phase = FetchPhase::fetching;
  fetch->heard = now;
  fetch->lease = m.lease;
  fetch->source_block = m.identity.block_tokens;
  fetch->offered_tokens = m.tokens;
  fetch->end = std::min(fetch->wish.end, m.tokens);
  fetch->first_open = fetch->first_column();
  fetch->columns.resize(columns_for(fetch->end, fetch->source_block));
  fetch->resend_at = now + config.resend;
  out.push_back(AttachSource{id, from, m.identity, m.access});
}

void TransferCore::State::hear(Time now, WorkerRef from, const KvRefuse& m, TransferEffects& out) {
  Fetch* fetch = fetch_of(from, m.transfer);
  if (!fetch || m.lease != fetch->lease || fetch->phase == FetchPhase::stopping) return;
  const EffectId id = fetch->wish.id;
  stop(now, *fetch, m.field + ": " + m.message, out);
  finish_if_over(id, out);
}

void TransferCore::State::hear(Time now, WorkerRef from, const KvAdvance& m, TransferEffects& out) {
  Fetch* fetch = fetch_of(from, m.transfer);
  if (!fetch) {
    out.push_back(SendKv{from, KvRelease{m.transfer, m.lease, KvReleaseHow::aborted}});
    return;
  }
  if (fetch->phase != FetchPhase::fetching) return;
  if (m.lease != fetch->lease) return;
  fetch->heard = now;
  if (m.blocks.size() != m.generations.size()) return;
  if (m.first > fetch->known) return say_renew(now, *fetch, out);  // says where the gap begins
  const auto wanted = static_cast<std::uint32_t>(fetch->columns.size());
  for (std::size_t i = fetch->known - m.first; i < m.blocks.size() && fetch->known < wanted; ++i) {
    Column& column = fetch->columns[fetch->known++];
    column.block = m.blocks[i];
    column.generation = m.generations[i];
  }
  if (m.sequence < fetch->sequence) return;
  fetch->sequence = m.sequence;
  std::uint32_t at = 0;
  for (const KvReady& run : m.ready) {
    for (std::uint32_t i = 0; i < run.blocks && at < fetch->known; ++i, ++at) {
      Column& column = fetch->columns[at];
      column.ready = std::max(column.ready, std::min(run.layers, config.identity.layers));
    }
  }
}

/// Leading tokens of the wish that are here and proven.
std::uint32_t TransferCore::State::proven_tokens(const Fetch& fetch) const {
  if (fetch.source_block == 0) return 0;
  std::uint32_t holes = 0;
  std::uint32_t i = fetch.first_column();
  std::uint32_t last = i;
  for (; i < fetch.columns.size(); ++i) {
    if (fetch.columns[i].proven == config.identity.layers)
      last = i + 1;
    else if (++holes; !planted(Mutant::gap_counts_as_fetched))
      break;
  }
  const std::uint64_t end =
      std::min<std::uint64_t>(fetch.end, std::uint64_t{last} * fetch.source_block);
  return end <= fetch.wish.begin ? 0 : static_cast<std::uint32_t>(end) - fetch.wish.begin;
}

/// No more moves; those under way are cancelled. The fetch ends when none of them can write.
void TransferCore::State::stop(Time now, Fetch& fetch, std::string why, TransferEffects& out) {
  if (fetch.phase == FetchPhase::stopping) return;
  fetch.phase = FetchPhase::stopping;
  fetch.why = std::move(why);
  for (auto& [id, move] : moves) {
    if (move.fetch != fetch.wish.id || move.phase != MovePhase::moving) continue;
    move.phase = MovePhase::cancelling;
    move.deadline = now + config.cancel_grace;
    out.push_back(CancelMove{id});
  }
}

void TransferCore::State::finish_if_over(EffectId id, TransferEffects& out) {
  const auto at = fetches.find(id);
  if (at == fetches.end()) return;
  Fetch& fetch = at->second;
  if (fetch.moves > 0) return;
  const std::uint32_t tokens = proven_tokens(fetch);
  const std::uint32_t wanted = fetch.end - fetch.wish.begin;
  const bool all = fetch.phase == FetchPhase::fetching && tokens == wanted;
  if (!all && fetch.phase != FetchPhase::stopping) return;
  const bool complete = tokens == wanted && fetch.source_block > 0;
  out.push_back(
      SendKv{fetch.wish.source, KvRelease{fetch.transfer, fetch.lease,
                                          complete ? KvReleaseHow::done : KvReleaseHow::aborted}});
  if (fetch.source_block > 0) out.push_back(DetachSource{id});
  const std::uint32_t size = config.identity.block_tokens;
  for (std::uint32_t i = fetch.wish.begin / size; i < columns_for(fetch.wish.end, size); ++i)
    ledger.release(fetch.wish.blocks[i]);
  if (tokens == fetch.wish.end - fetch.wish.begin) fetch.why.clear();
  if (all && tokens < fetch.wish.end - fetch.wish.begin)
    fetch.why = "the source offers " + std::to_string(fetch.offered_tokens) + " tokens";
  out.push_back(FetchDone{id, tokens, std::move(fetch.why), fetch.bytes,
                          fetch.last_landed - fetch.began, fetch.waited,
                          std::move(fetch.landed_at)});
  if (planted(Mutant::fetch_done_twice)) out.push_back(FetchDone{id, tokens, ""});
  by_transfer.erase(fetch.transfer);
  fetches.erase(at);
}

void TransferCore::State::fetches_due(Time now, TransferEffects& out) {
  std::vector<EffectId> ids;
  for (auto& [id, fetch] : fetches) {
    if (fetch.phase == FetchPhase::stopping) continue;
    if (now >= fetch.began + config.fetch_limit)
      stop(now, fetch, "not done after " + to_string(config.fetch_limit), out), ids.push_back(id);
    else if (now >= fetch.heard + config.silence_limit)
      stop(now, fetch, "the source is silent", out), ids.push_back(id);
    else if (now >= fetch.resend_at)
      fetch.phase == FetchPhase::asking ? say_ask(now, fetch, out) : say_renew(now, fetch, out);
  }
  for (const EffectId id : ids) finish_if_over(id, out);
}

}  // namespace infos
