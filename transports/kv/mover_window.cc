// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "transports/kv/mover_state.h"

namespace infos {

/// What of a slice is wanted, in tokens of the sequence.
KvPart KvMover::State::part_of(const Move& move, const Slice& slice) const {
  const std::uint32_t size = move.source->remote.layout.block_tokens;
  const std::uint32_t begin = move.wish.source_begin + slice.index * size;
  return {std::max(begin, move.wish.begin), std::min(begin + size, move.wish.end),
          slice.layer_begin, slice.layer_end};
}

/// Straight into place only what is wanted as a whole: the hash is over all of it.
bool KvMover::State::goes_direct(const Move& move, std::uint32_t index) const {
  const std::uint32_t size = move.source->remote.layout.block_tokens;
  const std::uint32_t begin = move.wish.source_begin + index * size;
  return move.source->may_go_direct && begin >= move.wish.begin &&
         begin + move.wish.sources[index].tokens <= move.wish.end;
}

// ---- windows ----

void KvMover::State::pump() {
  if (pumping) return;
  pumping = true;
  while (!waiting.empty() && busy.size() < options.windows_max && open_window(*waiting.front())) {
  }
  pumping = false;
}

/// Takes units until the window is full.
void KvMover::State::cut(Move& move, Window& window, std::uint64_t& staged_bytes) {
  const Source& source = *move.source;
  const std::uint64_t ranks = source.remote.layout.ranks;
  std::uint64_t bytes = 0;
  while (move.next_unit < move.units() && bytes < options.window_bytes) {
    const std::uint32_t index = move.next_unit / move.layers();
    const std::uint32_t layer = move.wish.layer_begin + move.next_unit % move.layers();
    const bool direct = goes_direct(move, index);
    const std::uint64_t staged = ranks * (sizeof(KvStamp) + (direct ? 0 : source.unit_bytes));
    if (staged_bytes + staged > staging.bytes()) break;
    if (window.slices.empty() || window.slices.back().index != index)
      window.slices.push_back({index, layer, layer, direct});
    ++window.slices.back().layer_end;
    staged_bytes += staged;
    bytes += ranks * source.unit_bytes;
    ++move.next_unit;
  }
}

/// False: there is no staging for it now.
bool KvMover::State::open_window(Move& move) {
  if (idle.empty()) idle.push_back(std::make_unique<Window>());
  Window& window = *idle.back();
  window.move = &move;
  window.slices.clear();
  window.ops.clear();
  window.open = 0;
  window.verdict = Verdict::ok;
  const std::uint32_t first_unit = move.next_unit;
  std::uint64_t staged_bytes = 0;
  cut(move, window, staged_bytes);
  window.staging = staging.take(staged_bytes);
  if (!window.staging.bytes) {
    move.next_unit = first_unit;
    return false;
  }
  std::uint64_t at = window.staging.begin;
  const std::uint64_t ranks = move.source->remote.layout.ranks;
  for (Slice& slice : window.slices) {
    slice.stamps = at;
    at += ranks * slice.layers() * sizeof(KvStamp);
    slice.bytes = at;
    if (!slice.direct) at += ranks * slice.layers() * move.source->unit_bytes;
  }
  busy.emplace(&window, std::move(idle.back()));
  idle.pop_back();
  ++move.windows_open;
  move.asked = true;
  if (move.next_unit == move.units()) std::erase(waiting, &move);
  ask(window);
  return true;
}

void KvMover::State::ask(Window& window) {
  for (std::uint32_t rank = 0; rank < window.move->source->remote.layout.ranks; ++rank)
    if (window.move->source->stage.reads(rank)) ask_rank(window, rank);
}

void KvMover::State::get(Window& window, RemoteId from, RegionId into) {
  if (pieces.empty()) return;
  ++window.open;
  stats.pieces += pieces.size();
  Window* const asker = &window;
  window.ops.push_back(window.move->source->remote.transport->get(
      from, into, pieces, [this, asker](OpId, Verdict verdict) { on_verdict(asker, verdict); }));
  pieces.clear();
}

void KvMover::State::ask_rank(Window& window, std::uint32_t rank) {
  Move& move = *window.move;
  Source& source = *move.source;
  const KvRemote& remote = source.remote;
  const std::uint32_t size = remote.layout.block_tokens;
  for (const Slice& slice : window.slices) {  // stamps
    const std::uint64_t bytes = slice.layers() * sizeof(KvStamp);
    pieces.push_back({slice.stamps + rank * bytes,
                      stamp_offset(remote.layout, {rank, move.wish.sources[slice.index].block.value,
                                                   slice.layer_begin}),
                      bytes});
  }
  get(window, remote.stamps[rank], remote.memory.staging);
  for (const Slice& slice : window.slices) {  // through the staging: as one block of its own
    if (slice.direct) continue;
    const KvSourceBlock& from = move.wish.sources[slice.index];
    const BlockId first;
    const std::uint64_t base = slice.bytes + rank * slice.layers() * source.unit_bytes;
    copies.clear();
    source.stage.copies({0, from.tokens, slice.layer_begin, slice.layer_end, rank},
                        {{&from.block, 1}, {&first, 1}, 0, 0, 0, slice.layer_begin}, copies);
    for (const KvCopy& copy : copies) {
      if (copy.to_rank != rank) continue;  // a head that is repeated
      pieces.push_back({base + copy.to, copy.from, copy.bytes});
      stats.bytes_staged += copy.bytes;
    }
  }
  get(window, remote.pools[rank], remote.memory.staging);
  copies.clear();
  for (const Slice& slice : window.slices) {  // straight into place
    if (!slice.direct) continue;
    const std::uint32_t begin = move.wish.source_begin + slice.index * size;
    const KvSourceBlock& from = move.wish.sources[slice.index];
    source.direct.copies({begin, begin + from.tokens, slice.layer_begin, slice.layer_end, rank},
                         {{&from.block, 1}, move.wish.into, begin, move.wish.into_begin}, copies);
  }
  for (std::uint32_t into = 0; !copies.empty() && into < own.ranks; ++into) {
    for (const KvCopy& copy : copies) {
      if (copy.to_rank != into) continue;
      pieces.push_back({copy.to, copy.from, copy.bytes});
      stats.bytes_direct += copy.bytes;
    }
    get(window, remote.pools[rank], remote.memory.pools[into]);
  }
}

void KvMover::State::on_verdict(Window* window, Verdict verdict) {
  if (window->verdict == Verdict::ok) window->verdict = verdict;
  if (--window->open > 0) return;
  Move& move = *window->move;
  if (window->verdict == Verdict::ok && move.verdict == Verdict::ok)
    land(*window);
  else if (move.verdict == Verdict::ok)
    move.verdict = window->verdict;
  close_window(*window);
  if (move.verdict != Verdict::ok) {
    std::erase(waiting, &move);
    move.next_unit = move.units();
  }
  if (move.windows_open == 0 && move.next_unit == move.units()) finish(move);
  pump();
}

void KvMover::State::close_window(Window& window) {
  Move& move = *window.move;
  if (window.verdict == Verdict::ok) {
    staging.give_back(window.staging);
  } else {
    held.emplace_back(move.source, window.staging);
    ++move.source->held;
  }
  --move.windows_open;
  const auto at = busy.find(&window);
  idle.push_back(std::move(at->second));
  busy.erase(at);
}

// ---- what has landed ----

void KvMover::State::land(Window& window) {
  const Source& source = *window.move->source;
  for (const Slice& slice : window.slices) {
    bases.clear();
    for (std::uint32_t rank = 0; rank < source.remote.layout.ranks; ++rank)
      bases.push_back(slice.direct || !source.stage.reads(rank)
                          ? nullptr
                          : staging.data() + slice.bytes +
                                rank * slice.layers() * source.unit_bytes);
    prove(*window.move, slice);
    if (slice.direct) continue;
    const BlockId first;
    const KvMove& wish = window.move->wish;
    const std::uint32_t begin = wish.source_begin + slice.index * source.remote.layout.block_tokens;
    source.land.run(part_of(*window.move, slice),
                    {{&first, 1}, wish.into, begin, wish.into_begin, slice.layer_begin, 0}, bases,
                    pools);
  }
}

/// Compares the stamps with the bytes, where they are now. `bases` are the staging's, by rank.
void KvMover::State::prove(Move& move, const Slice& slice) {
  const Source& source = *move.source;
  const KvSourceBlock& from = move.wish.sources[slice.index];
  const BlockId first;
  KvSeen& seen = move.seen[slice.index];
  const std::uint32_t begin =
      move.wish.source_begin + slice.index * source.remote.layout.block_tokens;
  KvUnitHash hash(slice.direct ? source.direct : source.stage, runs);
  for (std::uint32_t rank = 0; rank < source.remote.layout.ranks; ++rank) {
    if (!source.stage.reads(rank)) continue;
    for (std::uint32_t layer = slice.layer_begin; layer < slice.layer_end; ++layer) {
      KvStamp stamp;
      const std::uint64_t at =
          slice.stamps +
          (std::uint64_t{rank} * slice.layers() + (layer - slice.layer_begin)) * sizeof stamp;
      std::memcpy(&stamp, staging.data() + at, sizeof stamp);
      const bool whole = is_intact(stamp, {rank, from.block.value, layer});
      const std::uint64_t got =
          slice.direct
              ? hash({begin, begin + from.tokens, layer, layer + 1, rank},
                     {{&from.block, 1}, move.wish.into, begin, move.wish.into_begin}, pools_const)
              : hash({0, from.tokens, layer, layer + 1, rank},
                     {{&from.block, 1}, {&first, 1}, 0, 0, 0, slice.layer_begin}, bases);
      const bool proven = whole && stamp.tokens == from.tokens && stamp.hash == got;
      ++(proven ? stats.units_proven : stats.units_refused);
      const bool is_first = seen.tokens == UINT32_MAX;
      const std::uint64_t generation = whole ? stamp.generation : 0;
      seen.intact = seen.intact && proven;
      seen.generation = is_first || seen.generation == generation ? generation : 0;
      seen.tokens = std::min(seen.tokens, whole ? stamp.tokens : 0U);
    }
  }
}

}  // namespace infos
