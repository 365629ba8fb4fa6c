// SPDX-License-Identifier: Apache-2.0
// Goal: the pool hands out no block twice, finds exactly the published content that is still there,
// and evicts the least recently released of the unused. Method: random operations against a model
// that keeps plain lists and searches them; few distinct tokens, so that contents meet.
#include "daemon/control/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "topology/base/rng.h"

namespace infos {
namespace {

constexpr std::uint32_t kBlockTokens = 2;

struct Model {
  struct Published {
    ChainId parent;
    std::vector<TokenId> tokens;
    ChainId chain;
  };
  std::map<BlockId, std::uint32_t> references;  ///< of blocks that have any
  std::map<BlockId, Published> published;
  std::vector<BlockId> unused;  ///< published without a reference, least recently released first

  const BlockId* find(ChainId parent, const std::vector<TokenId>& tokens) const {
    for (const auto& [block, p] : published)
      if (p.parent == parent && p.tokens == tokens) return &block;
    return nullptr;
  }
  void take(BlockId block) {
    if (references[block]++ == 0) std::erase(unused, block);
  }
  void release(BlockId block) {
    if (--references[block] > 0) return;
    references.erase(block);
    if (published.contains(block)) unused.push_back(block);
  }
};

class BlockPoolTest : public testing::TestWithParam<std::uint64_t> {
 protected:
  void allocate() {
    const std::optional<BlockId> got = pool.allocate();
    if (model.references.size() == kBlocks) {
      EXPECT_FALSE(got.has_value());
      return;
    }
    ASSERT_TRUE(got.has_value());
    ASSERT_FALSE(model.references.contains(*got)) << "handed out twice";
    const bool some_free = model.references.size() + model.unused.size() < kBlocks;
    if (some_free) {
      ASSERT_FALSE(model.published.contains(*got)) << "evicted though others are free";
    } else {
      ASSERT_EQ(*got, model.unused.front()) << "not the least recently released";
      model.unused.erase(model.unused.begin());
      model.published.erase(*got);
    }
    model.references[*got] = 1;
  }
  void release() {
    if (model.references.empty()) return;
    const BlockId block = pick(model.references);
    pool.release(block);
    model.release(block);
  }
  void acquire() {
    const ChainId parent = some_chain();
    const std::vector<TokenId> tokens = some_tokens();
    const BlockId* want = model.find(parent, tokens);
    const std::optional<BlockId> got = pool.acquire(parent, tokens);
    ASSERT_EQ(got.has_value(), want != nullptr);
    if (!want) return;
    ASSERT_EQ(*got, *want);
    model.take(*got);
  }
  void publish() {
    std::map<BlockId, std::uint32_t> ready;
    for (const auto& [block, count] : model.references)
      if (count == 1 && !model.published.contains(block)) ready[block] = count;
    if (ready.empty()) return;
    const BlockId block = pick(ready);
    const ChainId parent = some_chain();
    const std::vector<TokenId> tokens = some_tokens();
    const BlockId* twin = model.find(parent, tokens);
    const BlockId got = pool.publish(block, parent, tokens, BlockHash{1});
    if (twin) {
      ASSERT_EQ(got, *twin);
      model.take(got);
      model.release(block);
      return;
    }
    ASSERT_EQ(got, block);
    const ChainId chain = pool.chain_of(block);
    ASSERT_TRUE(seen.insert(chain).second) << "an identity was used again";
    model.published[block] = {parent, tokens, chain};
  }
  void expect_equal() {
    ASSERT_EQ(pool.audit(), "");
    ASSERT_EQ(pool.used(), model.references.size());
    ASSERT_EQ(pool.cached(), model.unused.size());
    ASSERT_EQ(pool.available(), kBlocks - model.references.size());
    for (std::uint32_t i = 0; i < kBlocks; ++i) {
      const auto at = model.references.find(BlockId{i});
      ASSERT_EQ(pool.references(BlockId{i}), at == model.references.end() ? 0 : at->second);
      ASSERT_EQ(pool.is_published(BlockId{i}), model.published.contains(BlockId{i}));
    }
  }

  Rng rng{GetParam()};
  static constexpr std::uint32_t kBlocks = 12;
  BlockPool pool{kBlocks, kBlockTokens, GetParam()};
  Model model;
  std::set<ChainId> seen{ChainId{}};

 private:
  template <typename Map>
  BlockId pick(const Map& map) {
    auto at = map.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(rng.below(map.size())));
    return at->first;
  }
  /// The empty chain, one of a block that is there, or any that ever was.
  ChainId some_chain() {
    if (rng.chance(0.3)) return {};
    if (rng.chance(0.2) || model.published.empty()) {
      auto at = seen.begin();
      std::advance(at, static_cast<std::ptrdiff_t>(rng.below(seen.size())));
      return *at;
    }
    return model.published.at(pick(model.published)).chain;
  }
  std::vector<TokenId> some_tokens() {
    return {static_cast<TokenId>(rng.below(2)), static_cast<TokenId>(rng.below(2))};
  }
};

TEST_P(BlockPoolTest, RandomOperations_AgreeWithTheModel) {
  for (int step = 0; step < 3000; ++step) {
    switch (rng.below(4)) {
      case 0:
        allocate();
        break;
      case 1:
        release();
        break;
      case 2:
        acquire();
        break;
      default:
        publish();
        break;
    }
    expect_equal();
    if (HasFatalFailure() || HasNonfatalFailure())
      FAIL() << "seed " << GetParam() << ", operation " << step;
  }
  EXPECT_GT(seen.size(), 100U) << "too little was published to mean anything";
}
INSTANTIATE_TEST_SUITE_P(Seeds, BlockPoolTest, testing::Range<std::uint64_t>(1, 13));

}  // namespace
}  // namespace infos
