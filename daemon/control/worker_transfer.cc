// SPDX-License-Identifier: Apache-2.0
// WorkerCore, the part where KV comes from other workers and goes to them. Blocks that a transfer
// may touch are not reused before it has been answered, whatever becomes of its sequence.
#include <algorithm>

#include "daemon/control/mutant.h"
#include "daemon/control/worker_state.h"
#include "topology/base/check.h"

namespace infos {
namespace {

constexpr Duration kAbandonGrace = seconds(1);  // for the answer to AbandonFetch

Time later(Time now, Duration wait) { return wait.ns >= kNever.ns - now.ns ? kNever : now + wait; }

}  // namespace

/// Asks for the KV that the sequence's worker of choice has and this one has not. Requires: prefix
/// hits are taken. Returns: false if there is nothing (more) to fetch.
bool WorkerCore::State::begin_fetch(WorkerSequence& s) {
  const KvPeer& from = s.submit.kv_from;
  if (s.fetched || !from.worker.worker || s.admitted_before) return false;
  const std::uint64_t room =
      (s.blocks.size() + pool.available()) * std::uint64_t{config.block_tokens};
  const auto end =
      static_cast<std::uint32_t>(std::min<std::uint64_t>({from.tokens, s.length() - 1, room}));
  if (end < s.computed + config.block_tokens) return false;
  const std::uint32_t begin =
      s.computed + (planted(Mutant::fetch_range_off_by_block) ? config.block_tokens : 0);
  if (begin >= end) return false;
  s.fetched = true;
  while (s.blocks.size() < blocks_for(end)) s.blocks.push_back(*pool.allocate());
  s.fetch = EffectId{++last_effect};
  fetches[s.fetch] = {&s,
                      s.submit.request,
                      s.submit.attempt,
                      from.worker,
                      begin,
                      end,
                      false,
                      later(now, config.fetch_limit),
                      {}};
  wishes->push_back(
      FetchKv{s.fetch, s.submit.request, s.submit.attempt, from.worker, begin, end, s.blocks});
  return true;
}

void WorkerCore::State::on(const FetchDone& event, WorkerEffects&) {
  const auto found = fetches.find(event.id);
  if (found == fetches.end()) return;
  Fetch& fetch = found->second;
  const std::uint32_t proven = planted(Mutant::fetch_used_unproven)
                                   ? fetch.end - fetch.begin
                                   : std::min(event.tokens, fetch.end - fetch.begin);
  if (event.bytes > 0) {
    report.fetches.push_back({fetch.request, fetch.attempt, fetch.source, proven, event.bytes,
                              event.took, event.waited, event.layers});
  }
  if (WorkerSequence* s = fetch.sequence) {
    s->fetch = EffectId{};
    s->computed = fetch.begin + proven;
    while (s->blocks.size() > blocks_for(s->computed)) {
      pool.release(s->blocks.back());
      s->blocks.pop_back();
    }
    publish_blocks(*s);
  } else {
    fetch_orphans -= static_cast<std::uint32_t>(fetch.blocks.size());
    if (!planted(Mutant::fetch_orphan_leaked)) free_blocks(fetch.blocks);
  }
  blocked_available = 0;
  fetches.erase(found);
}

void WorkerCore::State::abandon(EffectId id, Fetch& fetch) {
  if (fetch.abandoned) return;
  fetch.abandoned = true;
  fetch.deadline = later(now, kAbandonGrace);
  wishes->push_back(AbandonFetch{id});
}

/// What has come by now still counts.
void WorkerCore::State::on(const KvWithheld& event, WorkerEffects&) {
  WorkerSequence* s = find(event.request);
  if (!s || s->submit.attempt != event.attempt) return;
  s->fetched = true;
  if (s->fetch) abandon(s->fetch, fetches.at(s->fetch));
}

/// Lets the worker that is meant read what this sequence computes. Requires: the sequence has rows
/// in the step that is being composed.
void WorkerCore::State::begin_export(WorkerSequence& s) {
  const KvPeer& to = s.submit.kv_for;
  if (s.exported || !to.worker.worker) return;
  s.exported = true;
  s.exporting = EffectId{++last_effect};
  Export& of = exports[s.exporting];
  of.sequence = &s;
  of.request = s.submit.request, of.attempt = s.submit.attempt;
  of.tokens = std::min(to.tokens, s.length());
  wishes->push_back(ExportKv{s.exporting, of.request, of.attempt, to.worker, of.tokens});
  advance_export(s);
}

void WorkerCore::State::advance_export(WorkerSequence& s) {
  if (!s.exporting) return;
  Export& of = exports.at(s.exporting);
  const std::uint32_t computed = std::min(s.computed, of.tokens);
  if (computed <= of.told) return;
  of.told = computed;
  wishes->push_back(AdvanceExport{
      s.exporting, computed, {s.blocks.begin(), s.blocks.begin() + blocks_for(computed)}});
}

void WorkerCore::State::end_export(EffectId id, Export& of) {
  if (of.ended) return;
  of.ended = true;
  of.deadline = kNever;
  ended_orphans += static_cast<std::uint32_t>(of.blocks.size());
  wishes->push_back(EndExport{id});
}

/// Who runs comes before KV that nobody has fetched yet. Returns: false if there is none.
bool WorkerCore::State::end_oldest_export() {
  for (auto& [id, of] : exports) {
    if (of.sequence || of.ended) continue;
    end_export(id, of);
    return true;
  }
  return false;
}

/// The sequence ends, its KV stays for the reader, but not for ever.
void WorkerCore::State::keep_for_export(WorkerSequence& s) {
  if (!s.exporting) return;
  Export& of = exports.at(s.exporting);
  of.sequence = nullptr;
  of.deadline = later(now, config.export_limit);
  of.blocks = std::move(s.blocks);
  export_orphans += static_cast<std::uint32_t>(of.blocks.size());
  s.blocks.clear();
  s.exporting = EffectId{};
  if (planted(Mutant::export_blocks_freed_early)) {
    export_orphans -= static_cast<std::uint32_t>(of.blocks.size());
    free_blocks(of.blocks);
  }
}

/// The sequence gives its blocks back: those that a transfer may touch become the transfer's, which
/// is to end soon.
void WorkerCore::State::let_go(WorkerSequence& s) {
  if (s.exporting) {
    const EffectId id = s.exporting;
    keep_for_export(s);
    end_export(id, exports.at(id));
  }
  if (!s.fetch) return;
  Fetch& fetch = fetches.at(s.fetch);
  abandon(s.fetch, fetch);
  fetch.sequence = nullptr;
  fetch.deadline = kNever;
  const auto first = s.blocks.begin() + fetch.begin / config.block_tokens;
  fetch.blocks.assign(first, s.blocks.end());
  s.blocks.erase(first, s.blocks.end());
  if (planted(Mutant::fetch_blocks_freed_early)) free_blocks(fetch.blocks);
  fetch_orphans += static_cast<std::uint32_t>(fetch.blocks.size());
  s.fetch = EffectId{};
}

void WorkerCore::State::on(const ExportDone& event, WorkerEffects&) {
  const auto found = exports.find(event.id);
  if (found == exports.end()) return;
  Export& of = found->second;
  if (of.sequence) of.sequence->exporting = EffectId{};
  export_orphans -= static_cast<std::uint32_t>(of.blocks.size());
  if (of.ended) ended_orphans -= static_cast<std::uint32_t>(of.blocks.size());
  free_blocks(of.blocks);
  blocked_available = 0;
  exports.erase(found);
  if (!step) report_due = true;  // no step's report will say that the blocks are free
}

/// Whoever should have fetched it will not.
void WorkerCore::State::cancel_export(RequestId request, Attempt attempt) {
  for (auto& [id, of] : exports) {
    if (of.request == request && of.attempt <= attempt && !of.sequence) end_export(id, of);
  }
}

/// False while so much KV is computed or kept for readers that another such prompt must wait.
bool WorkerCore::State::may_export(const WorkerSequence& head) const {
  if (!head.submit.kv_for.worker.worker) return true;
  std::uint32_t held = export_orphans;
  for (const auto& [order, s] : running)
    held += s->submit.kv_for.worker.worker ? blocks_for(s->length()) : 0;
  const double most = config.export_share * config.kv_blocks;
  return held == 0 || static_cast<double>(held + blocks_for(head.length())) <= most;
}

void WorkerCore::State::expire_transfers() {
  for (auto& [id, of] : exports) {
    if (of.deadline <= now) end_export(id, of);
  }
  for (auto& [id, fetch] : fetches) {
    if (fetch.deadline > now) continue;
    if (!fetch.abandoned)
      abandon(id, fetch);
    else if (WorkerSequence* s = fetch.sequence)
      let_go(*s);  // it computes what did not come, in other blocks
  }
}

Time WorkerCore::State::next_transfer_deadline() const {
  Time next = kNever;
  for (const auto& [id, of] : exports) next = std::min(next, of.deadline);
  for (const auto& [id, fetch] : fetches) next = std::min(next, fetch.deadline);
  return next;
}

/// Tail first, so that a prefix outlives what follows it.
void WorkerCore::State::free_blocks(std::vector<BlockId>& blocks) {
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) pool.release(*block);
  blocks.clear();
}

void WorkerCore::State::audit_transfers(WorkerAudit& audit) const {
  std::uint32_t orphans = 0;
  for (const auto& [id, fetch] : fetches) {
    WorkerAudit::Transfer& t = audit.transfers.emplace_back();
    t.id = id, t.is_fetch = true, t.is_orphan = !fetch.sequence, t.blocks = fetch.blocks;
    if (const WorkerSequence* s = fetch.sequence) {
      t.blocks.assign(s->blocks.begin() + fetch.begin / config.block_tokens, s->blocks.end());
      if (s->fetch != id) audit.broken += " a fetch and its sequence disagree";
    }
    orphans += static_cast<std::uint32_t>(fetch.blocks.size());
  }
  if (orphans != fetch_orphans) audit.broken += " blocks of orphaned fetches are miscounted";
  orphans = 0;
  std::uint32_t ended = 0;
  for (const auto& [id, of] : exports) {
    WorkerAudit::Transfer& t = audit.transfers.emplace_back();
    t.id = id, t.is_orphan = !of.sequence, t.blocks = of.sequence ? of.sequence->blocks : of.blocks;
    if (of.sequence && of.sequence->exporting != id)
      audit.broken += " an export and its sequence disagree";
    orphans += static_cast<std::uint32_t>(of.blocks.size());
    ended += of.ended ? static_cast<std::uint32_t>(of.blocks.size()) : 0;
  }
  if (ended > export_orphans || ended != ended_orphans)
    audit.broken += " blocks of ending exports are miscounted";
  if (orphans != export_orphans) audit.broken += " blocks of orphaned exports are miscounted";
}

}  // namespace infos
