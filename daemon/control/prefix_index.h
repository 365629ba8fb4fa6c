// SPDX-License-Identifier: Apache-2.0
// PrefixIndex remembers which workers hold which blocks of prompts, as far as a byte budget goes:
// the least recently wanted blocks are forgotten first. What it says is a guess: workers evict, and
// what was routed to a worker may never be computed. Never decides anything; one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "topology/base/ids.h"

namespace infos {

class PrefixIndex {
 public:
  explicit PrefixIndex(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  /// A number for one who holds blocks; free numbers are given out again.
  std::uint32_t add_holder();
  /// O(blocks known).
  void remove_holder(std::uint32_t holder);

  void hold(std::uint32_t holder, std::span<const BlockHash> blocks);
  void drop(std::uint32_t holder, std::span<const BlockHash> blocks);

  /// For each holder of at least the first block of `chain`: how many leading blocks it holds goes
  /// into `depths[holder]`, if that is more than what is there. O(blocks that anybody holds).
  void longest(std::span<const BlockHash> chain, std::vector<std::uint32_t>& depths);

  std::size_t size() const { return used_; }
  std::size_t bytes() const;
  /// Bound on holder numbers given out so far.
  std::uint32_t holders() const { return static_cast<std::uint32_t>(holders_.size()); }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Entry {
    BlockHash hash;
    std::uint32_t newer = kNone;
    std::uint32_t older = kNone;
    std::uint32_t next = kNone;  ///< in its bucket; of those that are free
  };
  std::uint32_t find(BlockHash hash) const;
  std::uint32_t insert(BlockHash hash);
  void erase(std::uint32_t entry);
  void forget(std::uint32_t entry, std::uint32_t holder);
  void link_newest(std::uint32_t entry);
  void unlink(std::uint32_t entry);
  void rehash(std::size_t buckets);
  std::size_t entries_max() const;
  std::uint64_t* mask(std::uint32_t entry) { return masks_.data() + std::size_t{entry} * words_; }
  std::size_t bucket(BlockHash hash) const { return hash.value & (buckets_.size() - 1); }

  std::size_t bytes_max_;
  std::vector<Entry> entries_;
  std::vector<std::uint64_t> masks_;  ///< [entries, words]: who holds it
  std::vector<std::uint32_t> buckets_;
  std::vector<bool> holders_;  ///< given out
  std::vector<std::uint64_t> alive_;
  std::size_t words_ = 1;
  std::size_t used_ = 0;
  std::uint32_t free_ = kNone;
  std::uint32_t newest_ = kNone;
  std::uint32_t oldest_ = kNone;
};

}  // namespace infos
