// SPDX-License-Identifier: Apache-2.0
// Goal: a reshard program puts every value where the destination's layout wants it and touches
// nothing else, for all pairs of layouts; conversions round once. Method: an oracle that moves one
// element at a time between random block tables; whole destination pools are compared.
#include "transports/kv/reshard.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/kv/kv_sides.h"

namespace infos {
namespace {

using namespace test;  // NOLINT: the oracle's words

std::vector<KvLayout> all_layouts() {
  std::vector<KvLayout> out;
  for (const std::uint32_t ranks : {1U, 2U, 4U})
    for (const std::uint32_t block : {8U, 16U, 32U, 128U})
      for (const KvDType dtype : {KvDType::f32, KvDType::f16, KvDType::bf16, KvDType::i8})
        for (const KvOrder order : {KvOrder::token_major, KvOrder::head_major})
          for (const KvPlacing placing : {KvPlacing::apart, KvPlacing::interleaved})
            out.push_back(make_kv_layout({"m", "b", kLayers, kHeads, kDim, dtype, block, ranks,
                                          blocks_for(block), order, placing}));
  return out;
}

KvPart random_part(Rng& rng, std::uint32_t tokens_max) {
  KvPart part;
  part.token_begin = static_cast<std::uint32_t>(rng.below(kTokens));
  part.token_end =
      part.token_begin +
      static_cast<std::uint32_t>(rng.below(std::min(tokens_max, kTokens - part.token_begin) + 1));
  part.layer_begin = static_cast<std::uint32_t>(rng.below(kLayers));
  part.layer_end =
      part.layer_begin + 1 + static_cast<std::uint32_t>(rng.below(kLayers - part.layer_begin));
  return part;
}

/// Runs a program on a fresh destination; the oracle works in `to`, which must then be the same.
::testing::AssertionResult agrees(const ReshardProgram& program, Side& from, Side& to,
                                  const KvPart& part) {
  Pools got(to.pools.layout);
  const auto from_table = from.blocks(), to_table = to.blocks();
  // Tables may begin anywhere up to the part.
  const std::uint32_t i = part.token_begin / from.pools.layout.block_tokens / 2;
  const std::uint32_t j = part.token_begin / to.pools.layout.block_tokens;
  program.run(part,
              {std::span(from_table).subspan(i), std::span(to_table).subspan(j),
               i * from.pools.layout.block_tokens, j * to.pools.layout.block_tokens},
              from.pools.const_bases(), got.bases());
  for (auto& pool : to.pools.bytes) std::fill(pool.begin(), pool.end(), std::byte{0xA5});
  oracle(from, to, part);
  for (std::uint32_t rank = 0; rank < to.pools.layout.ranks; ++rank)
    if (got.bytes[rank] != to.pools.bytes[rank])
      return ::testing::AssertionFailure()
             << describe(from.pools.layout) << " to " << describe(to.pools.layout) << ", tokens "
             << part.token_begin << " to " << part.token_end << ", layers " << part.layer_begin
             << " to " << part.layer_end << ": rank " << rank << " differs";
  return ::testing::AssertionSuccess();
}

TEST(Reshard, EveryPairOfLayoutsAgreesWithTheOracle) {
  Rng rng(20);
  std::vector<Side> sides;
  for (const KvLayout& layout : all_layouts()) {
    ASSERT_TRUE(layout.validate().ok());
    sides.emplace_back(layout, rng).fill(1000);
  }
  std::vector<Side> sinks;
  for (const KvLayout& layout : all_layouts()) sinks.emplace_back(layout, rng);
  ASSERT_EQ(sides.size(), 192U);
  std::size_t pairs = 0, values = 0;
  for (Side& from : sides)
    for (Side& to : sinks) {
      const auto program = ReshardProgram::compile(from.pools.layout, to.pools.layout);
      ASSERT_TRUE(program.ok()) << program.error().message;
      const KvPart part = random_part(rng, 24);
      ASSERT_TRUE(agrees(*program, from, to, part));
      ++pairs;
      values += (part.token_end - part.token_begin) * (part.layer_end - part.layer_begin) * kHeads *
                kDim * 2;
    }
  EXPECT_EQ(pairs, 192U * 192U);
  EXPECT_GT(values, 10'000'000U);
}

TEST(Reshard, OddLayoutsAgreeWithTheOracle) {
  Rng rng(21);
  for (int i = 0; i < 400; ++i) {
    Side from(odd_layout(rng), rng), to(odd_layout(rng), rng);
    from.fill(i);
    ASSERT_TRUE(from.pools.layout.validate().ok());
    const auto program = ReshardProgram::compile(from.pools.layout, to.pools.layout);
    ASSERT_TRUE(program.ok()) << program.error().message;
    ASSERT_TRUE(agrees(*program, from, to, random_part(rng, kTokens))) << "case " << i;
  }
}

/// All copies of all blocks of a sequence, the block table in order.
std::vector<KvCopy> copies_of(const KvShape& from, const KvShape& to, const KvPart& part) {
  const auto program = ReshardProgram::compile(make_kv_layout(from), make_kv_layout(to));
  std::vector<BlockId> a, b;
  for (std::uint32_t i = 0; i < from.blocks; ++i) a.push_back({i});
  for (std::uint32_t i = 0; i < to.blocks; ++i) b.push_back({i});
  std::vector<KvCopy> out;
  program->copies(part, {a, b}, out);
  return out;
}

TEST(Reshard, AdjacentRunsAreOneCopy) {
  const KvShape base{"m", "b", 4, 8, 128, KvDType::f16, 16, 1, 8};
  const KvPart all{0, 128, 0, 4}, one_layer{0, 128, 2, 3};
  // Equal layouts: the whole, or a block of a layer.
  ASSERT_EQ(copies_of(base, base, all).size(), 1U);
  EXPECT_EQ(copies_of(base, base, all)[0].bytes, 128U * 4 * 8 * 128 * 2 * 2);
  ASSERT_EQ(copies_of(base, base, one_layer).size(), 8U);
  EXPECT_EQ(copies_of(base, base, one_layer)[0].bytes, 16U * 8 * 128 * 2 * 2);
  // Head-major, TP 8 against 1: a head's tokens of a block, K or V: 4 KiB.
  KvShape split = base;
  split.ranks = 8;
  const auto pieces = copies_of(split, base, one_layer);
  ASSERT_EQ(pieces.size(), 8U * 8 * 2);
  for (const KvCopy& piece : pieces) EXPECT_EQ(piece.bytes, 4096U);
  // Token-major with V apart, blocks of 16 against 32: all tokens of the smaller block.
  KvShape small = base, large = base;
  small.order = large.order = KvOrder::token_major;
  large.block_tokens = 32;
  large.blocks = 4;
  ASSERT_EQ(copies_of(small, large, one_layer).size(), 8U * 2);
}

TEST(Reshard, LosslessThereAndBackGivesTheSameBits) {
  Rng rng(22);
  for (const KvDType narrow : {KvDType::f16, KvDType::bf16}) {
    KvShape a{"m", "b", kLayers, kHeads, kDim, narrow, 16, 4, blocks_for(16)};
    KvShape b = a;
    b.dtype = KvDType::f32;
    b.block_tokens = 32;
    b.blocks = blocks_for(32);
    b.ranks = 2;
    b.order = KvOrder::token_major;
    Side from(make_kv_layout(a), rng), middle(make_kv_layout(b), rng);
    from.fill(9);
    Pools back(from.pools.layout);
    const auto there = ReshardProgram::compile(from.pools.layout, middle.pools.layout);
    const auto here = ReshardProgram::compile(middle.pools.layout, from.pools.layout);
    const auto from_table = from.blocks(), middle_table = middle.blocks();
    const KvPart part{0, kTokens, 0, kLayers};
    there->run(part, {from_table, middle_table}, from.pools.const_bases(), middle.pools.bases());
    here->run(part, {middle_table, from_table}, middle.pools.const_bases(), back.bases());
    EXPECT_EQ(back.bytes, from.pools.bytes);
  }
}

TEST(Reshard, AnotherModelHasNoProgram) {
  const KvLayout a = make_kv_layout({"m1", "b", 2, 4, 8});
  const KvLayout b = make_kv_layout({"m2", "b", 2, 4, 8});
  EXPECT_FALSE(ReshardProgram::compile(a, b).ok());
}

}  // namespace
}  // namespace infos
