// SPDX-License-Identifier: Apache-2.0
// Which pieces move when, what their verdicts prove, and the fences: a block that a move may still
// write is given back only by the mover's word or by a fence, never by a timer.
#include <algorithm>

#include "daemon/control/transfer_state.h"

namespace infos {

/// The tokens of columns [begin, end) that the fetch wants.
std::pair<std::uint32_t, std::uint32_t> TransferCore::State::tokens_of(const Fetch& fetch,
                                                                       std::uint32_t begin,
                                                                       std::uint32_t end) const {
  const std::uint64_t size = fetch.source_block;
  return {static_cast<std::uint32_t>(std::max<std::uint64_t>(begin * size, fetch.wish.begin)),
          static_cast<std::uint32_t>(std::min<std::uint64_t>(end * size, fetch.end))};
}

SourceBlock TransferCore::State::offered_block(const Fetch& fetch, std::uint32_t column) const {
  const std::uint64_t begin = std::uint64_t{column} * fetch.source_block;
  const auto tokens = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(fetch.source_block, fetch.offered_tokens - begin));
  return {fetch.columns[column].block, fetch.columns[column].generation, tokens};
}

/// Gives turns to the fetches, one move each, until no window is open.
void TransferCore::State::pump(Time now, TransferEffects& out) {
  bool issued = !fetches.empty();
  while (issued && moves.size() < config.moves_max) {
    issued = false;
    auto at = fetches.upper_bound(served_last);
    for (std::size_t i = fetches.size(); i > 0 && moves.size() < config.moves_max; --i) {
      if (at == fetches.end()) at = fetches.begin();
      Fetch& fetch = at->second;
      ++at;
      if (issue_one(now, fetch, out)) {
        issued = true;
        served_last = fetch.wish.id;
      }
    }
  }
}

bool TransferCore::State::issue_one(Time now, Fetch& fetch, TransferEffects& out) {
  if (fetch.phase != FetchPhase::fetching || fetch.moves >= config.moves_per_fetch_max)
    return false;
  if (fences.contains(fetch.wish.source) && !planted(Mutant::retry_before_fence)) return false;
  const std::optional<Rect> rect = next_rect(fetch);
  if (!rect) return false;
  issue(now, fetch, *rect, out);
  return true;
}

/// The next rectangle that is ready and was not moved, at most move_bytes_max large.
std::optional<Rect> TransferCore::State::next_rect(Fetch& fetch) {
  if (!fetch.again.empty()) {
    const Rect rect = fetch.again.back();
    fetch.again.pop_back();
    return rect;
  }
  const std::uint32_t layers = config.identity.layers;
  std::vector<Column>& columns = fetch.columns;
  while (fetch.first_open < fetch.known && columns[fetch.first_open].issued == layers)
    ++fetch.first_open;
  for (std::uint32_t i = fetch.first_open; i < fetch.known; ++i) {
    const std::uint32_t begin = columns[i].issued, ready = columns[i].ready;
    if (begin >= ready) continue;
    const std::uint64_t layer_bytes =
        std::max<std::uint64_t>(1, config.token_layer_bytes * fetch.source_block);
    const std::uint64_t cells = std::max<std::uint64_t>(1, config.move_bytes_max / layer_bytes);
    const auto depth = static_cast<std::uint32_t>(std::min<std::uint64_t>(ready - begin, cells));
    const std::uint64_t width = cells / depth;
    Rect rect{i, i, begin, begin + depth, 0};
    while (rect.column_end < fetch.known && rect.column_end - i < width &&
           columns[rect.column_end].issued == begin && columns[rect.column_end].ready == ready)
      columns[rect.column_end++].issued = begin + depth;
    return rect;
  }
  return std::nullopt;
}

void TransferCore::State::issue(Time now, Fetch& fetch, const Rect& rect, TransferEffects& out) {
  MoveKv move;
  move.id = next_id();
  move.fetch = fetch.wish.id;
  std::tie(move.begin, move.end) = tokens_of(fetch, rect.column_begin, rect.column_end);
  move.layer_begin = rect.layer_begin;
  move.layer_end = rect.layer_end;
  move.source_begin = rect.column_begin * fetch.source_block;
  for (std::uint32_t i = rect.column_begin; i < rect.column_end; ++i)
    move.sources.push_back(offered_block(fetch, i));
  const std::uint32_t size = config.identity.block_tokens;
  move.into_begin = move.begin / size * size;
  for (std::uint32_t i = move.begin / size; std::uint64_t{i} * size < move.end; ++i) {
    move.into.push_back(fetch.wish.blocks[i]);
    ledger.open_write(fetch.wish.blocks[i]);
  }
  MoveState& state = moves[move.id];
  state.fetch = move.fetch;
  state.peer = fetch.wish.source;
  state.rect = rect;
  state.bytes = std::uint64_t{move.end - move.begin} * (rect.layer_end - rect.layer_begin) *
                config.token_layer_bytes;
  std::uint64_t under_way = 0;
  for (const auto& [id, other] : moves) under_way += other.bytes;
  state.deadline = now + config.move_limit +
                   milliseconds(static_cast<std::int64_t>(
                       under_way * 1000 / std::max<std::uint64_t>(config.slowest_link, 1)));
  if (fetch.moves++ == 0) fetch.waited = fetch.waited + (now - fetch.idle_since);
  out.push_back(std::move(move));
}

/// The move can write no more: it is forgotten. `landed_layers`: 0, or how many layers are here.
void TransferCore::State::end_move(EffectId id, std::uint64_t landed_layers) {
  const auto at = moves.find(id);
  MoveState& move = at->second;
  Fetch& fetch = fetches.at(move.fetch);
  const auto [begin, end] = tokens_of(fetch, move.rect.column_begin, move.rect.column_end);
  const std::uint64_t size = config.identity.block_tokens;
  for (std::uint64_t i = begin / size; i * size < end; ++i) {
    const BlockId block = fetch.wish.blocks[i];
    if (move.phase == MovePhase::suspect) ledger.absolve(block);
    const std::uint64_t tokens =
        std::min<std::uint64_t>(end, (i + 1) * size) - std::max<std::uint64_t>(begin, i * size);
    ledger.close_write(block, tokens * landed_layers);
  }
  --fetch.moves;
  moves.erase(at);
}

void TransferCore::State::forget_moves(const std::function<bool(const MoveState&)>& which) {
  std::vector<EffectId> ids;
  for (const auto& [id, move] : moves)
    if (which(move)) ids.push_back(id);
  for (const EffectId id : ids) end_move(id, 0);
}

void TransferCore::State::on(Time now, const MoveDone& event, TransferEffects& out) {
  const auto at = moves.find(event.id);
  if (at == moves.end() || at->second.answered) return;
  const MoveState move = at->second;
  Fetch& fetch = fetches.at(move.fetch);
  if (event.verdict == MoveVerdict::landed) {
    end_move(event.id, move.rect.layer_end - move.rect.layer_begin);
    landed(now, fetch, move.rect);
    verify(now, fetch, move, event, out);
  } else {
    at->second.answered = true;
    not_landed(now, fetch, move, event.verdict, out);
    if (event.quiet) {
      end_move(event.id, 0);
    } else {
      start_fence(now, move.peer, out);
    }
  }
  const auto still = fetches.find(move.fetch);
  if (still != fetches.end() && still->second.moves == 0) still->second.idle_since = now;
  finish_if_over(move.fetch, out);
}

/// For those who ask where time went.
void TransferCore::State::landed(Time now, Fetch& fetch, const Rect& rect) const {
  const auto [begin, end] = tokens_of(fetch, rect.column_begin, rect.column_end);
  fetch.bytes +=
      std::uint64_t{end - begin} * (rect.layer_end - rect.layer_begin) * config.token_layer_bytes;
  fetch.last_landed = now;
  fetch.landed_at.resize(config.identity.layers);
  for (std::uint32_t l = rect.layer_begin; l < rect.layer_end; ++l)
    fetch.landed_at[l] = now - fetch.began;
}

/// Takes what the stamps prove; the rest is moved once more, unless the source's block is another
/// one by now.
void TransferCore::State::verify(Time now, Fetch& fetch, const MoveState& move,
                                 const MoveDone& event, TransferEffects& out) {
  const Rect& rect = move.rect;
  const std::uint32_t layers = rect.layer_end - rect.layer_begin;
  const std::uint64_t size = config.identity.block_tokens;
  std::uint32_t run = 0;  // unproven columns before this one
  for (std::uint32_t i = rect.column_begin; i < rect.column_end; ++i) {
    const std::size_t index = i - rect.column_begin;
    const SourceBlock offered = offered_block(fetch, i);
    const SeenStamp seen = index < event.seen.size() ? event.seen[index] : SeenStamp{};
    const bool proven = proves(seen, offered);
    const auto [begin, end] = tokens_of(fetch, i, i + 1);
    for (std::uint64_t b = begin / size; b * size < end; ++b) {
      const std::uint64_t tokens =
          std::min<std::uint64_t>(end, (b + 1) * size) - std::max<std::uint64_t>(begin, b * size);
      ledger.verified(fetch.wish.blocks[b], proven ? tokens * layers : 0,
                      proven ? 0 : tokens * layers);
    }
    if (proven) fetch.columns[i].proven += layers;
    if (!proven && seen.intact && seen.generation != offered.generation)
      stop(now, fetch, "the source uses a block for something else", out);
    run = proven ? 0 : run + 1;
    const bool ends =
        run > 0 && (i + 1 == rect.column_end ||
                    proves(index + 1 < event.seen.size() ? event.seen[index + 1] : SeenStamp{},
                           offered_block(fetch, i + 1)));
    if (ends)
      try_again(now, fetch, {i + 1 - run, i + 1, rect.layer_begin, rect.layer_end, rect.tries},
                "what arrives does not match its checksum", out);
  }
}

void TransferCore::State::try_again(Time now, Fetch& fetch, Rect rect, const char* why,
                                    TransferEffects& out) {
  if (++rect.tries >= kTriesMax) return stop(now, fetch, why, out);
  if (fetch.phase == FetchPhase::fetching) fetch.again.push_back(rect);
}

void TransferCore::State::not_landed(Time now, Fetch& fetch, const MoveState& move,
                                     MoveVerdict verdict, TransferEffects& out) {
  switch (verdict) {
    case MoveVerdict::refused:
      return stop(now, fetch, "the source refuses the read", out);
    case MoveVerdict::cancelled:
      if (fences.contains(move.peer) && !move.late) {  // another's fence: not its fault
        if (fetch.phase == FetchPhase::fetching) fetch.again.push_back(move.rect);
        return;
      }
      return try_again(now, fetch, move.rect, move.late ? "a move took too long" : "cancelled",
                       out);
    case MoveVerdict::peer_lost:
      return try_again(now, fetch, move.rect, "the source is lost", out);
    case MoveVerdict::landed:
    case MoveVerdict::failed:
      return try_again(now, fetch, move.rect, "the link failed", out);
  }
}

/// All moves from the peer become suspect: their blocks are in quarantine until the fence answers.
void TransferCore::State::start_fence(Time now, WorkerRef peer, TransferEffects& out) {
  const auto [at, is_new] = fences.try_emplace(peer);
  for (auto& [id, move] : moves) {
    if (move.peer != peer || move.phase == MovePhase::suspect) continue;
    move.phase = MovePhase::suspect;
    const Fetch& fetch = fetches.at(move.fetch);
    const auto [begin, end] = tokens_of(fetch, move.rect.column_begin, move.rect.column_end);
    const std::uint32_t size = config.identity.block_tokens;
    for (std::uint32_t i = begin / size; std::uint64_t{i} * size < end; ++i)
      ledger.quarantine(fetch.wish.blocks[i]);
  }
  if (!is_new) return;
  at->second.id = next_id();
  at->second.deadline = now + config.fence_limit;
  out.push_back(FencePeer{at->second.id, peer});
  if (planted(Mutant::fence_not_awaited)) on(now, Fenced{at->second.id}, out);
}

void TransferCore::State::on(Time now, const Fenced& event, TransferEffects& out) {
  const auto at =
      std::ranges::find_if(fences, [&](const auto& f) { return f.second.id == event.id; });
  if (at == fences.end()) return;
  const WorkerRef peer = at->first;
  fences.erase(at);
  std::vector<EffectId> dead;
  for (const auto& [id, move] : moves)
    if (move.peer == peer) dead.push_back(id);
  std::set<EffectId> touched;
  for (const EffectId id : dead) {
    const MoveState move = moves.at(id);
    Fetch& fetch = fetches.at(move.fetch);
    touched.insert(move.fetch);
    if (!move.answered && move.late)
      try_again(now, fetch, move.rect, "a move took too long", out);
    else if (!move.answered && fetch.phase == FetchPhase::fetching)
      fetch.again.push_back(move.rect);
    end_move(id, 0);
  }
  for (const EffectId id : touched) {
    Fetch& fetch = fetches.at(id);
    fetch.idle_since = now;
    if (++fetch.fences > kFencesMax) stop(now, fetch, "the link to the source keeps failing", out);
    finish_if_over(id, out);
  }
}

void TransferCore::State::moves_due(Time now, TransferEffects& out) {
  std::set<WorkerRef> slow;
  std::vector<EffectId> forgotten;
  for (auto& [id, move] : moves) {
    if (move.phase == MovePhase::suspect || now < move.deadline) continue;
    if (move.phase == MovePhase::moving) {
      move.phase = MovePhase::cancelling;
      move.late = true;
      move.deadline = now + config.cancel_grace;
      out.push_back(CancelMove{id});
    } else if (planted(Mutant::quarantine_by_timer)) {
      forgotten.push_back(id);
    } else {
      slow.insert(move.peer);
    }
  }
  for (const EffectId id : forgotten) {
    const EffectId fetch = moves.at(id).fetch;
    end_move(id, 0);
    stop(now, fetches.at(fetch), "a move took too long", out);
    finish_if_over(fetch, out);
  }
  for (const WorkerRef& peer : slow) start_fence(now, peer, out);
  for (auto& [peer, fence] : fences) {
    if (fence.overdue || now < fence.deadline) continue;
    fence.overdue = true;
    out.push_back(FenceOverdue{peer});
  }
}

}  // namespace infos
