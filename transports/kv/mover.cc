// SPDX-License-Identifier: Apache-2.0
#include "transports/kv/mover.h"

#include <fmt/format.h>

#include <algorithm>

#include "topology/base/check.h"
#include "transports/kv/mover_state.h"

namespace infos {

// ---- sources ----

Status KvMover::State::check(const KvRemote& remote) const {
  if (remote.pools.size() != remote.layout.ranks || remote.stamps.size() != remote.layout.ranks)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} pools and {} stamp tables of a source with {} ranks",
                             remote.pools.size(), remote.stamps.size(), remote.layout.ranks)};
  if (remote.memory.pools.size() != own.ranks)
    return Error{ErrorCode::invalid_argument, fmt::format("{} pools of our own with {} ranks",
                                                          remote.memory.pools.size(), own.ranks)};
  const std::uint64_t least = (unit_bytes(remote.layout) + sizeof(KvStamp)) * remote.layout.ranks;
  if (least > staging.bytes())
    return Error{ErrorCode::resource_exhausted,
                 fmt::format("one layer of one block of ({}) is {} bytes, the staging has {}",
                             describe(remote.layout), least, staging.bytes())};
  return {};
}

Result<KvSourceId> KvMover::attach(const KvRemote& remote) {
  INFOS_TRY(remote.layout.validate());
  INFOS_TRY(state_->check(remote));
  const KvLayout staged = staging_layout(remote.layout);
  auto source = std::make_unique<State::Source>(
      State::Source{{++state_->last_source},
                    remote,
                    INFOS_TRY(ReshardProgram::compile(remote.layout, state_->own)),
                    INFOS_TRY(ReshardProgram::compile(remote.layout, staged)),
                    INFOS_TRY(ReshardProgram::compile(staged, state_->own)),
                    unit_bytes(remote.layout)});
  if (source->direct.copies_only() && !source->direct.repeats()) {
    // The mean run of one layer of a full block, on the finer of the two block sizes.
    const std::uint32_t tokens = remote.layout.block_tokens;
    const std::vector<BlockId> into((tokens - 1) / state_->own.block_tokens + 1);
    const BlockId block;
    state_->copies.clear();
    source->direct.copies({0, tokens, 0, 1}, {{&block, 1}, into}, state_->copies);
    std::uint64_t bytes = 0;
    for (const KvCopy& copy : state_->copies) bytes += copy.bytes;
    source->may_go_direct = bytes / std::max<std::size_t>(state_->copies.size(), 1) >=
                            remote.transport->info().direct_bytes_min;
  }
  const KvSourceId id = source->id;
  state_->sources.emplace(id, std::move(source));
  return id;
}

void KvMover::detach(KvSourceId id) {
  const auto at = state_->sources.find(id);
  INFOS_CHECK(at != state_->sources.end());
  for (const auto& [move_id, move] : state_->moves) INFOS_CHECK(move->source != at->second.get());
  at->second->closed = true;
  if (at->second->held == 0) state_->sources.erase(at);
}

void KvMover::fenced(KvSourceId id) {
  const auto at = state_->sources.find(id);
  if (at == state_->sources.end()) return;
  State::Source* source = at->second.get();
  std::erase_if(state_->held, [&](const auto& held) {
    if (held.first != source) return false;
    state_->staging.give_back(held.second);
    return true;
  });
  source->held = 0;
  if (source->closed) state_->sources.erase(at);
  state_->pump();
}

// ---- moves ----

bool KvMover::State::makes_sense(const Source& source, const KvMove& wish) const {
  const std::uint32_t theirs = source.remote.layout.block_tokens, ours = own.block_tokens;
  if (wish.begin >= wish.end || wish.layer_begin >= wish.layer_end || wish.layer_end > own.layers ||
      wish.sources.size() > (1U << 20) || wish.into.size() > (1U << 20) || wish.end > (1U << 30))
    return false;
  if (wish.source_begin > wish.begin || wish.into_begin > wish.begin ||
      wish.source_begin % theirs != 0 || wish.into_begin % ours != 0)
    return false;
  if (std::uint64_t{wish.into_begin} + wish.into.size() * ours < wish.end) return false;
  for (const BlockId block : wish.into)
    if (block.value >= own.blocks) return false;
  for (std::size_t i = 0; i < wish.sources.size(); ++i) {
    const KvSourceBlock& b = wish.sources[i];
    const std::uint64_t begin = wish.source_begin + i * theirs;
    // Its stamp must cover what is wanted of it.
    const std::uint64_t wanted = std::min<std::uint64_t>(wish.end, begin + theirs);
    if (b.block.value >= source.remote.layout.blocks || b.tokens == 0 || b.tokens > theirs ||
        begin + b.tokens < wanted || begin >= wish.end)
      return false;
  }
  return wish.source_begin + std::uint64_t{wish.sources.size()} * theirs >= wish.end;
}

KvMoveId KvMover::start(KvSourceId id, KvMove wish, Done done) {
  const KvMoveId move_id{++state_->last_move};
  const auto at = state_->sources.find(id);
  if (at == state_->sources.end() || !state_->makes_sense(*at->second, wish)) {
    done(move_id, {Verdict::refused, {}, true});
    return move_id;
  }
  auto move = std::make_unique<State::Move>();
  move->id = move_id;
  move->source = at->second.get();
  move->seen.assign(wish.sources.size(), {0, UINT32_MAX, true});
  move->wish = std::move(wish);
  move->done = std::move(done);
  state_->waiting.push_back(move.get());
  state_->moves.emplace(move_id, std::move(move));
  state_->pump();
  return move_id;
}

void KvMover::cancel(KvMoveId id) {
  const auto at = state_->moves.find(id);
  if (at == state_->moves.end()) return;
  State::Move& move = *at->second;
  if (move.verdict == Verdict::ok) move.verdict = Verdict::cancelled;
  std::erase(state_->waiting, &move);
  for (const auto& [window, owned] : state_->busy)
    if (window->move == &move)
      for (const OpId op : window->ops) move.source->remote.transport->cancel(op);
  if (move.windows_open == 0) state_->finish(move);
}

void KvMover::State::finish(Move& move) {
  std::erase(waiting, &move);
  KvMoved moved{move.verdict, {}, move.verdict == Verdict::ok || !move.asked};
  if (move.verdict == Verdict::ok) {
    for (KvSeen& seen : move.seen)
      if (seen.generation == 0) seen.intact = false;
    moved.seen = std::move(move.seen);
  }
  const Done done = std::move(move.done);
  const KvMoveId id = move.id;
  moves.erase(id);
  done(id, std::move(moved));
}

// ---- the rest ----

KvMover::KvMover(const KvLayout& own, std::vector<std::byte*> pools, std::span<std::byte> staging,
                 const KvMoverOptions& options)
    : state_(std::make_unique<State>(own, std::move(pools), staging, options)) {}

KvMover::~KvMover() = default;

KvMoverStats KvMover::stats() const {
  KvMoverStats stats = state_->stats;
  stats.staging_used = state_->staging.used();
  stats.moves_open = static_cast<std::uint32_t>(state_->moves.size());
  return stats;
}

}  // namespace infos
