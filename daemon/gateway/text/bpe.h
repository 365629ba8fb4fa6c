// SPDX-License-Identifier: Apache-2.0
// Byte pair merging: joins neighbouring symbols, best rank first and leftmost among equals, until
// no pair is known. O(n log n) in the number of symbols whatever the text. Immutable after the last
// add(); any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace infos::text {

using SymbolId =
    std::int32_t;  ///< a token, a character that only occurs inside tokens, or kNoSymbol

constexpr SymbolId kNoSymbol = -1;

/// A run of bytes of the word being merged.
struct Symbol {
  SymbolId id = kNoSymbol;
  std::uint32_t begin = 0;  ///< offset in the word; it ends where the next symbol begins
};

/// (left, right) -> (rank, result), open addressing.
class PairMap {
 public:
  struct Entry {
    std::uint64_t key = kEmpty;
    std::uint32_t rank = 0;
    SymbolId result = kNoSymbol;
  };
  /// Keeps the entry with the lower rank when the pair is there already.
  void add(SymbolId left, SymbolId right, std::uint32_t rank, SymbolId result);
  /// Null when the pair is unknown.
  const Entry* find(SymbolId left, SymbolId right) const;
  std::size_t size() const { return size_; }

 private:
  static constexpr std::uint64_t kEmpty = ~0ULL;  // (-1, -1) is never added
  static std::uint64_t key_of(SymbolId left, SymbolId right);
  std::size_t slot_of(std::uint64_t key) const;
  void grow();
  std::vector<Entry> slots_;
  std::size_t size_ = 0;
};

class BpeMerger {
 public:
  /// Lower rank merges first.
  void add(SymbolId left, SymbolId right, std::uint32_t rank, SymbolId result) {
    pairs_.add(left, right, rank, result);
  }
  /// Merges in place.
  void merge(std::vector<Symbol>& symbols) const;
  std::size_t size() const { return pairs_.size(); }

 private:
  void merge_short(std::vector<Symbol>& symbols) const;
  void merge_long(std::vector<Symbol>& symbols) const;
  PairMap pairs_;
};

}  // namespace infos::text
