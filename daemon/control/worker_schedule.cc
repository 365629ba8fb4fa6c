// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <span>

#include "daemon/control/mutant.h"
#include "daemon/control/worker_state.h"
#include "topology/base/check.h"

namespace infos {

/// Composes the next step: decode rows of running sequences first, then prefill chunks of running
/// ones, then new ones, each in order of service.
void WorkerCore::State::schedule(WorkerEffects& out) {
  if (live.empty()) return;
  Step next;
  if (suspects > 0) {
    add_suspect(next);
  } else {
    add_decodes(next);
    const auto decodes = static_cast<std::uint32_t>(next.parts.size());
    const std::uint32_t budget =
        std::min(pace.prefill_budget(decodes, backlog()), config.max_step_tokens - decodes);
    add_prefills(next, budget);
  }
  if (next.parts.empty()) return;
  next.id = EffectId{++last_effect};
  for (const Part& part : next.parts) {
    WorkerSequence& s = *part.sequence;
    s.in_step = true;
    begin_export(s);
    if (planted(Mutant::exported_before_computed) || planted(Mutant::published_before_computed)) {
      s.computed += part.rows;
      if (planted(Mutant::exported_before_computed))
        advance_export(s);
      else
        publish_blocks(s);
      s.computed -= part.rows;
    }
    (s.rows_left() == 1 ? next.decode_rows : next.prefill_rows) += part.rows;
    if (s.admitted_before) continue;
    s.admitted_before = true;
    counters.prompt_tokens += s.length();
    counters.cached_tokens += s.cached_tokens;
    out.push_back(
        OpenSequence{s.submit.request, s.submit.tokens, s.submit.prompt_tokens, s.submit.sampling});
  }
  out.push_back(to_effect(next));
  step = std::move(next);
}

RunStep WorkerCore::State::to_effect(const Step& next) const {
  RunStep run{next.id, {}};
  run.sequences.reserve(next.parts.size());
  for (const Part& part : next.parts) {
    const WorkerSequence& s = *part.sequence;
    const auto first = s.submit.tokens.begin() + s.computed;
    const std::uint32_t end = s.computed + part.rows;
    StepSequence& to = run.sequences.emplace_back();
    to.request = s.submit.request;
    to.tokens.assign(first, first + part.rows);
    to.start = s.computed;
    to.blocks.assign(s.blocks.begin(), s.blocks.begin() + blocks_for(end));
    to.sample = end == s.length();
    to.index = s.emitted();
  }
  return run;
}

/// Rows to compute before everybody draws tokens, reuse not counted.
std::uint64_t WorkerCore::State::backlog() const {
  std::uint64_t rows = waiting_rows;
  for (const auto& [order, s] : running)
    rows += s->rows_left() > 1 && !s->fetch ? s->rows_left() : 0;
  return rows;
}

/// The first suspect, alone. It may take blocks from anybody: until it has passed, nobody else
/// moves. Only for blocks that a transfer still has it waits.
void WorkerCore::State::add_suspect(Step& next) {
  for (const auto& [order, sequence] : running) {
    if (!sequence->suspect) continue;
    add_chunk(next, *sequence, config.max_step_tokens);
    INFOS_CHECK(next.parts.size() == 1 || awaited() > 0);
    return;
  }
}

void WorkerCore::State::add_decodes(Step& next) {
  scratch.clear();
  for (const auto& [order, sequence] : running) {
    if (sequence->rows_left() == 1 && !sequence->fetch) scratch.push_back(sequence);
  }
  for (WorkerSequence* sequence : scratch) {
    if (!running.contains(sequence->order)) continue;  // an older one took its blocks just now
    if (grow(next, *sequence, sequence->length()))
      next.parts.push_back({sequence, 1});
    else if (awaited() == 0)
      preempt(next, *sequence);
  }
}

void WorkerCore::State::add_prefills(Step& next, std::uint32_t budget) {
  scratch.clear();
  for (const auto& [order, sequence] : running) {
    if (sequence->rows_left() > 1 && (!sequence->fetch || planted(Mutant::computes_while_fetching)))
      scratch.push_back(sequence);
  }
  for (WorkerSequence* sequence : scratch) {
    if (budget == 0) return;
    if (running.contains(sequence->order)) budget -= add_chunk(next, *sequence, budget);
  }
  while (budget > 0 && !waiting.empty() && running.size() < config.max_running) {
    WorkerSequence& head = *waiting.begin()->second;
    if (!may_admit(head)) return;
    from_waiting(head);
    running.emplace(head.order, &head);
    budget -= add_chunk(next, head, budget);
  }
}

/// True when the head of the queue fits beside what the running ones will still need for their
/// known tokens and one block more each. Nobody overtakes it, so that a long prompt is not starved
/// by short ones.
bool WorkerCore::State::may_admit(WorkerSequence& head) {
  if (!may_export(head)) return false;
  if (running.empty()) return true;
  if (blocked_head == head.order && pool.available() <= blocked_available) return false;
  std::size_t promised = running.size();
  for (const auto& [order, s] : running) {
    const std::size_t wanted = blocks_for(s->length());
    promised += wanted > s->blocks.size() ? wanted - s->blocks.size() : 0;
  }
  reuse_prefix(head);
  if (pool.available() >= blocks_for(head.length() + 1) - head.blocks.size() + promised)
    return true;
  release_blocks(head);
  blocked_head = head.order;
  blocked_available = pool.available();
  return false;
}

/// Adds up to `budget` rows of a sequence, fewer if blocks are short. Returns: the rows added.
std::uint32_t WorkerCore::State::add_chunk(Step& next, WorkerSequence& s, std::uint32_t budget) {
  reuse_prefix(s);
  if (begin_fetch(s)) return 0;
  if (!s.preempted) s.cached_tokens = std::max(s.cached_tokens, s.reused);
  const auto room = [&] {
    return (s.blocks.size() + pool.available()) * std::uint64_t{config.block_tokens} - s.computed;
  };
  if (room() == 0 && !grow(next, s, s.computed + 1)) return 0;
  const auto rows =
      static_cast<std::uint32_t>(std::min<std::uint64_t>({s.rows_left(), budget, room()}));
  INFOS_CHECK(grow(next, s, s.computed + rows));
  next.parts.push_back({&s, rows});
  return rows;
}

/// Takes published blocks that hold the sequence's next tokens. The last token is always computed:
/// its row is drawn from.
void WorkerCore::State::reuse_prefix(WorkerSequence& s) {
  const std::uint32_t block = config.block_tokens;
  while (s.computed == s.blocks.size() * block && s.computed + block < s.length()) {
    const std::optional<BlockId> hit =
        pool.acquire(s.chain, std::span(s.submit.tokens).subspan(s.computed, block));
    if (!hit) return;
    s.blocks.push_back(*hit);
    s.chain = pool.chain_of(*hit);
    s.hash = pool.hash_of(*hit);
    s.computed += block;
    s.reused += block;
    ++s.published;
  }
}

/// The youngest running sequence that may be made to give way to `s`.
WorkerSequence* WorkerCore::State::victim_for(const WorkerSequence& s) {
  auto youngest = running.rbegin();
  if (youngest != running.rend() && youngest->second == &s) {
    if (suspects == 0) return nullptr;
    ++youngest;
  }
  return youngest == running.rend() ? nullptr : youngest->second;
}

/// Gives `s` blocks up to `rows_end`, taking them from younger sequences if it must. Returns: false
/// if that is not enough.
bool WorkerCore::State::grow(Step& next, WorkerSequence& s, std::uint32_t rows_end) {
  while (s.blocks.size() < blocks_for(rows_end)) {
    if (const std::optional<BlockId> block = pool.allocate()) {
      s.blocks.push_back(*block);
      continue;
    }
    if (awaited() >= blocks_for(rows_end) - s.blocks.size()) return false;
    if (WorkerSequence* victim = victim_for(s))
      preempt(next, *victim);
    else if (!end_oldest_export())
      return false;
  }
  return true;
}

/// Takes a sequence's blocks; it waits, in its old place, to be computed anew.
void WorkerCore::State::preempt(Step& next, WorkerSequence& victim) {
  std::erase_if(next.parts, [&](const Part& part) { return part.sequence == &victim; });
  release_blocks(victim);
  if (victim.suspect) victim.suspect = false, --suspects;
  victim.preempted = true;
  running.erase(victim.order);
  to_waiting(victim);
  ++counters.preemptions;
}

void WorkerCore::State::release_blocks(WorkerSequence& s) {
  let_go(s);
  for (auto block = s.blocks.rbegin(); block != s.blocks.rend(); ++block) pool.release(*block);
  s.blocks.clear();
  s.computed = s.published = s.reused = 0;
  s.chain = ChainId{};
  s.hash = BlockHash{};
}

void WorkerCore::State::publish_blocks(WorkerSequence& s) {
  const std::uint32_t block = config.block_tokens;
  for (; (s.published + 1) * block <= s.computed; ++s.published) {
    BlockId& held = s.blocks[s.published];
    const auto tokens = std::span(s.submit.tokens).subspan(std::size_t{s.published} * block, block);
    s.hash = block_hash(s.hash ? s.hash : block_hash_root(block), tokens);
    // A reader of this very block is not moved to its twin.
    const ChainId twin = s.exporting ? pool.peek(s.chain, tokens) : ChainId{};
    if (!twin) held = pool.publish(held, s.chain, tokens, s.hash);
    s.chain = twin ? twin : pool.chain_of(held);
  }
}

}  // namespace infos
