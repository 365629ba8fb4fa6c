// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/prefix_index.h"

#include <algorithm>
#include <bit>

#include "topology/base/check.h"

namespace infos {
namespace {

constexpr std::size_t kFirstBuckets = 64;

}  // namespace

std::size_t PrefixIndex::entries_max() const {
  const std::size_t each = sizeof(Entry) + 8 * words_ + 2 * sizeof(std::uint32_t);
  return std::max<std::size_t>(bytes_max_ / each, 1);
}

std::size_t PrefixIndex::bytes() const {
  return entries_.size() * (sizeof(Entry) + 8 * words_) + buckets_.size() * sizeof(std::uint32_t);
}

std::uint32_t PrefixIndex::add_holder() {
  const auto free = std::find(holders_.begin(), holders_.end(), false);
  const auto holder = static_cast<std::uint32_t>(free - holders_.begin());
  if (free != holders_.end()) {
    *free = true;
    return holder;
  }
  holders_.push_back(true);
  if (holders_.size() <= words_ * 64) return holder;
  std::vector<std::uint64_t> wider(entries_.size() * words_ * 2);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    std::copy_n(masks_.begin() + static_cast<std::ptrdiff_t>(i * words_), words_,
                wider.begin() + static_cast<std::ptrdiff_t>(i * words_ * 2));
  }
  masks_ = std::move(wider);
  words_ *= 2;
  while (used_ > entries_max()) erase(oldest_);
  return holder;
}

void PrefixIndex::remove_holder(std::uint32_t holder) {
  INFOS_CHECK(holder < holders_.size());
  holders_[holder] = false;
  for (std::uint32_t i = oldest_; i != kNone;) {
    const std::uint32_t entry = i;
    i = entries_[i].newer;
    forget(entry, holder);
  }
}

void PrefixIndex::forget(std::uint32_t entry, std::uint32_t holder) {
  std::uint64_t* const held = mask(entry);
  held[holder / 64] &= ~(1ULL << holder % 64);
  if (std::all_of(held, held + words_, [](std::uint64_t w) { return w == 0; })) erase(entry);
}

std::uint32_t PrefixIndex::find(BlockHash hash) const {
  if (buckets_.empty()) return kNone;
  for (std::uint32_t i = buckets_[bucket(hash)]; i != kNone; i = entries_[i].next)
    if (entries_[i].hash == hash) return i;
  return kNone;
}

void PrefixIndex::link_newest(std::uint32_t entry) {
  Entry& e = entries_[entry];
  e.older = newest_, e.newer = kNone;
  (newest_ == kNone ? oldest_ : entries_[newest_].newer) = entry;
  newest_ = entry;
}

void PrefixIndex::unlink(std::uint32_t entry) {
  const Entry& e = entries_[entry];
  (e.older == kNone ? oldest_ : entries_[e.older].newer) = e.newer;
  (e.newer == kNone ? newest_ : entries_[e.newer].older) = e.older;
}

void PrefixIndex::erase(std::uint32_t entry) {
  unlink(entry);
  std::uint32_t* link = &buckets_[bucket(entries_[entry].hash)];
  while (*link != entry) link = &entries_[*link].next;
  *link = entries_[entry].next;
  entries_[entry].next = free_;
  free_ = entry;
  --used_;
}

void PrefixIndex::rehash(std::size_t buckets) {
  buckets_.assign(buckets, kNone);
  for (std::uint32_t i = oldest_; i != kNone; i = entries_[i].newer) {
    std::uint32_t& head = buckets_[bucket(entries_[i].hash)];
    entries_[i].next = head;
    head = i;
  }
}

std::uint32_t PrefixIndex::insert(BlockHash hash) {
  if (used_ >= entries_max()) erase(oldest_);
  if (used_ >= buckets_.size()) rehash(std::max(kFirstBuckets, buckets_.size() * 2));
  std::uint32_t entry = free_;
  if (entry != kNone) {
    free_ = entries_[entry].next;
  } else {
    entry = static_cast<std::uint32_t>(entries_.size());
    entries_.emplace_back();
    masks_.resize(masks_.size() + words_);
  }
  std::fill_n(mask(entry), words_, 0);
  entries_[entry].hash = hash;
  std::uint32_t& head = buckets_[bucket(hash)];
  entries_[entry].next = head;
  head = entry;
  link_newest(entry);
  ++used_;
  return entry;
}

// From the tail on, so that a prefix is newer than what follows it.
void PrefixIndex::hold(std::uint32_t holder, std::span<const BlockHash> blocks) {
  for (auto hash = blocks.rbegin(); hash != blocks.rend(); ++hash) {
    std::uint32_t entry = find(*hash);
    if (entry == kNone)
      entry = insert(*hash);
    else
      unlink(entry), link_newest(entry);
    mask(entry)[holder / 64] |= 1ULL << holder % 64;
  }
}

void PrefixIndex::drop(std::uint32_t holder, std::span<const BlockHash> blocks) {
  for (const BlockHash hash : blocks) {
    const std::uint32_t entry = find(hash);
    if (entry != kNone) forget(entry, holder);
  }
}

void PrefixIndex::longest(std::span<const BlockHash> chain, std::vector<std::uint32_t>& depths) {
  depths.resize(std::max<std::size_t>(depths.size(), holders_.size()));
  alive_.assign(words_, ~0ULL);
  std::uint32_t depth = 0;
  const auto settle = [&](std::size_t word, std::uint64_t gone) {
    for (; gone != 0; gone &= gone - 1) {
      const std::size_t holder = word * 64 + static_cast<std::size_t>(std::countr_zero(gone));
      if (holder < depths.size()) depths[holder] = std::max(depths[holder], depth);
    }
  };
  for (; depth < chain.size(); ++depth) {
    const std::uint32_t entry = find(chain[depth]);
    if (entry == kNone) break;
    std::uint64_t any = 0;
    for (std::size_t w = 0; w < words_; ++w) {
      if (depth > 0) settle(w, alive_[w] & ~mask(entry)[w]);
      any |= alive_[w] &= mask(entry)[w];
    }
    if (any == 0) break;
  }
  if (depth == 0) return;
  for (std::size_t w = 0; w < words_; ++w) settle(w, alive_[w]);
}

}  // namespace infos
