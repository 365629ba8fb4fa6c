// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/transfer_core.h"

#include <algorithm>

#include "daemon/control/transfer_state.h"

namespace infos {

const char* to_string(MoveVerdict verdict) {
  switch (verdict) {
    case MoveVerdict::landed:
      return "landed";
    case MoveVerdict::cancelled:
      return "cancelled";
    case MoveVerdict::peer_lost:
      return "peer lost";
    case MoveVerdict::refused:
      return "refused";
    case MoveVerdict::failed:
      return "failed";
  }
  return "unknown";
}

const char* to_string(KvBlockState state) {
  switch (state) {
    case KvBlockState::reserved:
      return "reserved";
    case KvBlockState::filling:
      return "filling";
    case KvBlockState::verifying:
      return "verifying";
    case KvBlockState::ready:
      return "ready";
    case KvBlockState::quarantined:
      return "quarantined";
  }
  return "unknown";
}

#ifdef INFOS_MUTANTS
Mutant active_mutant = Mutant::none;
#endif

void TransferCore::State::on(Time now, const KvReceived& event, TransferEffects& out) {
  std::visit([&](const auto& m) { hear(now, event.from, m, out); }, event.message);
}

/// Nothing comes from it by letter any more: what it reads here and what we read there ends.
void TransferCore::State::on(Time now, const PeerGone& event, TransferEffects& out) {
  std::vector<EffectId> over;
  for (const auto& [id, of] : exports)
    if (of.wish.sink == event.peer) over.push_back(id);
  for (const EffectId id : over) end_export(id, "", out);
  std::erase_if(asks, [&](const auto& ask) { return ask.first.second == event.peer; });

  over.clear();
  bool writers = false;
  for (auto& [id, fetch] : fetches) {
    if (fetch.wish.source != event.peer) continue;
    stop(now, fetch, "the source is gone", out);
    over.push_back(id);
    writers = writers || fetch.moves > 0;
  }
  if (writers && planted(Mutant::peer_gone_without_fence)) {
    forget_moves([&](const MoveState& move) { return move.peer == event.peer; });
  } else if (writers) {
    start_fence(now, event.peer, out);
  }
  for (const EffectId id : over) finish_if_over(id, out);
}

void TransferCore::State::on(Time, const EpochIs& event, TransferEffects&) {
  config.identity.epoch = event.epoch;
}

void TransferCore::State::on(Time, const Tick&, TransferEffects&) {}

TransferCore::TransferCore(const TransferConfig& config)
    : state_(std::make_unique<State>(config)) {}
TransferCore::~TransferCore() = default;
TransferCore::TransferCore(TransferCore&&) noexcept = default;
TransferCore& TransferCore::operator=(TransferCore&&) noexcept = default;

void TransferCore::step(Time now, const TransferEvent& event, TransferEffects& out) {
  State& s = *state_;
  std::visit([&](const auto& e) { s.on(now, e, out); }, event);
  s.fetches_due(now, out);
  s.moves_due(now, out);
  s.leases_due(now, out);
  s.pump(now, out);
}

Time TransferCore::next_deadline() const {
  const State& s = *state_;
  const TransferConfig& c = s.config;
  Time next = kNever;
  const auto at = [&](Time t) { next = std::min(next, t); };
  for (const auto& [id, fetch] : s.fetches) {
    if (fetch.phase == FetchPhase::stopping) continue;  // its moves and fences have deadlines
    at(fetch.resend_at);
    at(fetch.heard + c.silence_limit);
    at(fetch.began + c.fetch_limit);
  }
  for (const auto& [id, move] : s.moves)
    if (move.phase != MovePhase::suspect) at(move.deadline);
  for (const auto& [peer, fence] : s.fences)
    if (!fence.overdue) at(fence.deadline);
  for (const auto& [id, of] : s.exports)
    if (!of.lease) at(of.deadline);
  for (const auto& [id, lease] : s.leases) {
    if (!planted(Mutant::release_lost)) at(lease.deadline);
    if (lease.open && (lease.look || lease.answer_due)) at(lease.paced_until);
  }
  for (const auto& [key, ask] : s.asks) at(ask.until);
  return next;
}

TransferAudit TransferCore::audit() const {
  const State& s = *state_;
  TransferAudit audit;
  s.ledger.list(audit.blocks);
  audit.fetches = static_cast<std::uint32_t>(s.fetches.size());
  audit.exports = static_cast<std::uint32_t>(s.exports.size());
  audit.leases = static_cast<std::uint32_t>(s.leases.size());
  audit.asks = static_cast<std::uint32_t>(s.asks.size());
  audit.moves = static_cast<std::uint32_t>(s.moves.size());
  audit.fences = static_cast<std::uint32_t>(s.fences.size());
  audit.stamped_blocks = s.stamps.size();
  if (s.by_transfer.size() != s.fetches.size()) audit.broken += " fetches without a transfer";
  if (s.by_request.size() != s.exports.size()) audit.broken += " exports without a request";
  std::map<EffectId, std::uint32_t> moving;
  for (const auto& [id, move] : s.moves) ++moving[move.fetch];
  for (const auto& [id, fetch] : s.fetches) {
    if (fetch.moves != moving[id]) audit.broken += " the moves of a fetch are miscounted";
  }
  for (const auto& [id, lease] : s.leases) {
    const auto of = s.exports.find(lease.of);
    if (of == s.exports.end() || of->second.lease != id) audit.broken += " a lease of no export";
  }
  for (const auto& [peer, fence] : s.fences) {
    for (const auto& [id, move] : s.moves)
      if (move.peer == peer && move.phase != MovePhase::suspect &&
          !planted(Mutant::retry_before_fence))
        audit.broken += " a move was made during a fence";
  }
  return audit;
}

}  // namespace infos
