// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/text/bpe.h"

#include <algorithm>
#include <array>
#include <functional>

#include "topology/base/check.h"

namespace infos::text {
namespace {

constexpr std::size_t kShort = 24;  // symbols; below it scanning all ranks beats a heap
constexpr std::uint32_t kNoRank = ~0U;
constexpr std::uint32_t kEnd = ~0U;

/// Symbols as a linked list over one array, with a heap of candidate merges keyed (rank, position).
class HeapMerge {
 public:
  HeapMerge(const PairMap& pairs, std::vector<Symbol>& symbols) : pairs_(pairs), symbols_(symbols) {
    const auto n = static_cast<std::uint32_t>(symbols.size());
    links_.resize(n);
    for (std::uint32_t i = 0; i < n; ++i)
      links_[i] = {i == 0 ? kEnd : i - 1, i + 1 == n ? kEnd : i + 1, true};
    for (std::uint32_t i = 0; i + 1 < n; ++i)
      if (const auto* entry = pairs_.find(symbols_[i].id, symbols_[i + 1].id))
        heap_.push_back(candidate(entry->rank, i));
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  void run() {
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const std::uint64_t best = heap_.back();
      heap_.pop_back();
      join(static_cast<std::uint32_t>(best >> 32), static_cast<std::uint32_t>(best));
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < symbols_.size(); ++i)
      if (links_[i].alive) symbols_[kept++] = symbols_[i];
    symbols_.resize(kept);
  }

 private:
  struct Link {
    std::uint32_t before, after;
    bool alive;
  };
  static std::uint64_t candidate(std::uint32_t rank, std::uint32_t at) {
    return (std::uint64_t{rank} << 32) | at;
  }

  void push(std::uint32_t left, std::uint32_t right) {
    const auto* entry = pairs_.find(symbols_[left].id, symbols_[right].id);
    if (!entry) return;
    heap_.push_back(candidate(entry->rank, left));
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  /// A candidate is stale when its pair is no longer there; the pair that replaced it has a
  /// candidate of its own.
  void join(std::uint32_t rank, std::uint32_t left) {
    Link& link = links_[left];
    if (!link.alive || link.after == kEnd) return;
    const std::uint32_t right = link.after;
    const auto* entry = pairs_.find(symbols_[left].id, symbols_[right].id);
    if (!entry || entry->rank != rank) return;
    symbols_[left].id = entry->result;
    links_[right].alive = false;
    link.after = links_[right].after;
    if (link.after != kEnd) {
      links_[link.after].before = left;
      push(left, link.after);
    }
    if (link.before != kEnd) push(link.before, left);
  }

  const PairMap& pairs_;
  std::vector<Symbol>& symbols_;
  std::vector<Link> links_;
  std::vector<std::uint64_t> heap_;
};

}  // namespace

std::uint64_t PairMap::key_of(SymbolId left, SymbolId right) {
  return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) |
         static_cast<std::uint32_t>(right);
}

std::size_t PairMap::slot_of(std::uint64_t key) const {
  std::uint64_t mixed = key * 0x9E3779B97F4A7C15ULL;
  mixed ^= mixed >> 32;
  mixed *= 0xD6E8FEB86659FD93ULL;
  mixed ^= mixed >> 32;
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = mixed & mask;
  while (slots_[slot].key != key && slots_[slot].key != kEmpty) slot = (slot + 1) & mask;
  return slot;
}

void PairMap::grow() {
  std::vector<Entry> old = std::move(slots_);
  slots_.assign(std::max<std::size_t>(64, old.size() * 2), Entry{});
  for (const Entry& entry : old)
    if (entry.key != kEmpty) slots_[slot_of(entry.key)] = entry;
}

void PairMap::add(SymbolId left, SymbolId right, std::uint32_t rank, SymbolId result) {
  INFOS_CHECK(left >= 0);
  INFOS_CHECK(right >= 0);
  if ((size_ + 1) * 2 > slots_.size()) grow();
  Entry& entry = slots_[slot_of(key_of(left, right))];
  if (entry.key == kEmpty) {
    ++size_;
  } else if (entry.rank <= rank) {
    return;
  }
  entry = {key_of(left, right), rank, result};
}

const PairMap::Entry* PairMap::find(SymbolId left, SymbolId right) const {
  if (left < 0 || right < 0 || size_ == 0) return nullptr;
  const Entry& entry = slots_[slot_of(key_of(left, right))];
  return entry.key == kEmpty ? nullptr : &entry;
}

void BpeMerger::merge(std::vector<Symbol>& symbols) const {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kShort) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
}

void BpeMerger::merge_short(std::vector<Symbol>& symbols) const {
  std::array<std::uint32_t, kShort> ranks;  // ranks[i] of the pair (i, i + 1)
  std::array<SymbolId, kShort> results;
  std::size_t n = symbols.size();
  const auto look_up = [&](std::size_t i) {
    const auto* entry = pairs_.find(symbols[i].id, symbols[i + 1].id);
    ranks[i] = entry ? entry->rank : kNoRank;
    results[i] = entry ? entry->result : kNoSymbol;
  };
  for (std::size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    const auto best =
        std::min_element(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(n - 1));
    if (*best == kNoRank) break;
    const auto at = static_cast<std::size_t>(best - ranks.begin());
    symbols[at].id = results[at];
    std::copy(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 2,
              symbols.begin() + static_cast<std::ptrdiff_t>(n),
              symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    for (std::size_t i = at + 1; i + 2 < n; ++i) {
      ranks[i] = ranks[i + 1];
      results[i] = results[i + 1];
    }
    --n;
    if (at + 1 < n) look_up(at);
    if (at > 0) look_up(at - 1);
  }
  symbols.resize(n);
}

void BpeMerger::merge_long(std::vector<Symbol>& symbols) const { HeapMerge(pairs_, symbols).run(); }

}  // namespace infos::text
