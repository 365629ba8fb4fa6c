// SPDX-License-Identifier: Apache-2.0
// Goal: the index knows who holds how much of a prompt, within its bytes. Method: random operations
// against plain sets, with so few hashes that chains meet; then a budget that is too small.
#include "daemon/control/prefix_index.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "topology/base/rng.h"

namespace infos {
namespace {

std::vector<BlockHash> some_chain(Rng& rng) {
  std::vector<BlockHash> chain(rng.below(12));
  const std::uint64_t first = rng.below(3) * 100 + 1;
  for (std::size_t i = 0; i < chain.size(); ++i) chain[i] = BlockHash{first + i};
  return chain;
}

TEST(PrefixIndex, RandomOperations_AgreeWithPlainSets) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    PrefixIndex index(1u << 20);
    std::map<std::uint32_t, std::set<BlockHash>> model;
    for (int i = 0; i < 2000; ++i) {
      if (model.empty() || (model.size() < 100 && rng.chance(0.1))) {
        ASSERT_TRUE(model.try_emplace(index.add_holder()).second) << "a number given out twice";
      }
      auto holder = model.begin();
      std::advance(holder, static_cast<std::ptrdiff_t>(rng.below(model.size())));
      const std::vector<BlockHash> chain = some_chain(rng);
      switch (rng.below(5)) {
        case 0:
        case 1:
          index.hold(holder->first, chain);
          holder->second.insert(chain.begin(), chain.end());
          break;
        case 2:
          index.drop(holder->first, chain);
          for (const BlockHash hash : chain) holder->second.erase(hash);
          break;
        case 3:
          if (!rng.chance(0.1)) break;
          index.remove_holder(holder->first);
          model.erase(holder);
          break;
        default: {
          std::vector<std::uint32_t> depths;
          index.longest(chain, depths);
          for (const auto& [number, held] : model) {
            std::uint32_t want = 0;
            while (want < chain.size() && held.contains(chain[want])) ++want;
            ASSERT_EQ(depths.at(number), want) << "seed " << seed << ", operation " << i;
          }
        }
      }
    }
  }
}

TEST(PrefixIndex, ByteBudget_ForgetsTheLeastRecentlyHeld) {
  PrefixIndex index(8192);
  const std::uint32_t holder = index.add_holder();
  std::vector<BlockHash> first(4), filler(1);
  for (std::size_t i = 0; i < 4; ++i) first[i] = BlockHash{i + 1};
  index.hold(holder, first);
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    filler[0] = BlockHash{1000 + i};
    index.hold(holder, filler);
    ASSERT_LE(index.bytes(), 3 * 8192U);
    if (i % 50 == 0 && i < 5000) index.hold(holder, first);
  }
  std::vector<std::uint32_t> depths;
  index.longest(filler, depths);
  EXPECT_EQ(depths[holder], 1U);
  depths.clear();
  index.longest(first, depths);
  EXPECT_EQ(depths[holder], 0U) << "not wanted for long, and still there";
  EXPECT_LT(index.size(), 300U);
}

}  // namespace
}  // namespace infos
