// SPDX-License-Identifier: Apache-2.0
// Goal: both merging paths give what the definition gives, and hostile words stay cheap. Method: a
// brute-force merger that rescans the whole word for each merge, over random rules and words; a
// step-free bound by size on long runs of one letter.
#include "daemon/gateway/text/bpe.h"

#include <gtest/gtest.h>

#include <map>

#include "topology/base/rng.h"

namespace infos::text {
namespace {

struct Rule {
  std::uint32_t rank;
  SymbolId result;
};
using Rules = std::map<std::pair<SymbolId, SymbolId>, Rule>;

std::vector<SymbolId> brute_force(std::vector<SymbolId> word, const Rules& rules) {
  while (true) {
    std::size_t best = word.size();
    std::uint32_t best_rank = ~0U;
    for (std::size_t i = 0; i + 1 < word.size(); ++i) {
      const auto rule = rules.find({word[i], word[i + 1]});
      if (rule != rules.end() && rule->second.rank < best_rank) {
        best = i;
        best_rank = rule->second.rank;
      }
    }
    if (best == word.size()) return word;
    word[best] = rules.at({word[best], word[best + 1]}).result;
    word.erase(word.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

std::vector<SymbolId> merged(const BpeMerger& merger, const std::vector<SymbolId>& word) {
  std::vector<Symbol> symbols;
  for (std::size_t i = 0; i < word.size(); ++i)
    symbols.push_back({word[i], static_cast<std::uint32_t>(i)});
  merger.merge(symbols);
  std::vector<SymbolId> out;
  for (const Symbol& symbol : symbols) out.push_back(symbol.id);
  return out;
}

TEST(Bpe, RandomRulesAndWords_AgreeWithBruteForce) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    Rules rules;
    BpeMerger merger;
    const auto letters = static_cast<SymbolId>(2 + rng.below(4));
    SymbolId next = letters;
    for (int i = 0; i < 40; ++i) {
      const auto left = static_cast<SymbolId>(rng.below(static_cast<std::uint64_t>(next)));
      const auto right = static_cast<SymbolId>(rng.below(static_cast<std::uint64_t>(next)));
      const auto rank =
          static_cast<std::uint32_t>(rng.below(25));  // ranks repeat, as equal scores do
      if (rules.emplace(std::pair{left, right}, Rule{rank, next}).second)
        merger.add(left, right, rank, next++);
    }
    for (int i = 0; i < 40; ++i) {
      std::vector<SymbolId> word(rng.below(90));
      for (SymbolId& symbol : word)
        symbol = rng.chance(0.02)
                     ? kNoSymbol
                     : static_cast<SymbolId>(rng.below(static_cast<std::uint64_t>(letters)));
      ASSERT_EQ(merged(merger, word), brute_force(word, rules)) << "seed " << seed << " word " << i;
    }
  }
}

TEST(Bpe, SamePairTwice_KeepsTheLowerRank) {
  BpeMerger merger;
  merger.add(0, 0, 5, 1);
  merger.add(0, 0, 3, 2);
  merger.add(0, 0, 4, 3);
  EXPECT_EQ(merged(merger, {0, 0}), std::vector<SymbolId>{2});
  EXPECT_EQ(merger.size(), 1U);
}

TEST(Bpe, MillionEqualLetters_MergeAsTheShortOnesDo) {
  BpeMerger merger;
  for (SymbolId i = 0; i < 10; ++i)
    merger.add(i, i, static_cast<std::uint32_t>(i), i + 1);  // doubles: a 2^10 run is one token
  const std::vector<SymbolId> out = merged(merger, std::vector<SymbolId>((1U << 20) + 5, 0));
  ASSERT_EQ(out.size(), 1024U + 2U);
  EXPECT_EQ(out[1023], 10);
  EXPECT_EQ(out[1024], 2);
  EXPECT_EQ(out[1025], 0);
}

}  // namespace
}  // namespace infos::text
