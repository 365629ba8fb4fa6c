// SPDX-License-Identifier: Apache-2.0
// Goal: a move puts proven KV in place for any pair of layouts; bytes that are not what the source
// stamped are never called proven, whatever the link does; nothing is held when all is over.
// Method: sources and destinations in one thread over a transport that lies by seed; after each
// move the destination is compared with the element-by-element oracle.
#include "transports/kv/mover.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/kv/kv_sides.h"
#include "tests/kv/memory_transport.h"
#include "transports/kv/exporter.h"

namespace infos {
namespace {

using namespace test;  // NOLINT: the oracle's words

struct Rig {
  struct Options {
    std::uint64_t seed = 1;
    std::uint64_t direct_bytes_min = 0;
    std::uint64_t staging_bytes = 1 << 20;
    KvMoverOptions mover;
  };
  Rig(const KvLayout& from_layout, const KvLayout& to_layout, const Options& options)
      : rng(options.seed),
        from(from_layout, rng),
        to(to_layout, rng),
        link(options.seed, options.direct_bytes_min),
        staging(options.staging_bytes) {
    from.fill(options.seed);
    for (std::uint32_t r = 0; r < from_layout.ranks; ++r)
      stamps.emplace_back(stamp_table_bytes(from_layout) / 8);
    std::vector<std::span<std::byte>> tables;
    for (auto& table : stamps) tables.push_back(std::as_writable_bytes(std::span(table)));
    exporter.emplace(*KvExporter::create(from_layout, from.pools.const_bases(), tables));
    mover.emplace(to_layout, to.pools.bases(), staging, options.mover);
    KvRemote remote;
    remote.transport = &link;
    remote.layout = from_layout;
    remote.memory.staging = *link.adopt(staging);
    for (auto& pool : to.pools.bytes) remote.memory.pools.push_back(*link.adopt(pool));
    for (auto& pool : from.pools.bytes) remote.pools.push_back({link.adopt(pool)->value});
    for (auto& table : tables) remote.stamps.push_back({link.adopt(table)->value});
    source = *mover->attach(remote);
  }

  std::uint32_t from_size() const { return from.pools.layout.block_tokens; }
  std::uint32_t to_size() const { return to.pools.layout.block_tokens; }

  /// Stamps the sequence's first `tokens` tokens, all layers.
  void stamp(std::uint64_t generation, std::uint32_t tokens) {
    for (std::uint32_t i = 0; i * from_size() < tokens; ++i)
      exporter->stamp({{from.table[i]},
                       generation,
                       std::min(from_size(), tokens - i * from_size()),
                       0,
                       from.pools.layout.layers});
  }

  KvMove wish(const KvPart& part, std::uint32_t stamped) const {
    KvMove move{part.token_begin, part.token_end, part.layer_begin, part.layer_end};
    const std::uint32_t first = part.token_begin / from_size();
    move.source_begin = first * from_size();
    for (std::uint32_t i = first; i * from_size() < part.token_end; ++i)
      move.sources.push_back({{from.table[i]}, std::min(from_size(), stamped - i * from_size())});
    const std::uint32_t into = part.token_begin / to_size();
    move.into_begin = into * to_size();
    for (std::uint32_t i = into; i * to_size() < part.token_end; ++i)
      move.into.push_back({to.table[i]});
    return move;
  }

  KvMoved run(KvMove move) {
    std::optional<KvMoved> moved;
    mover->start(source, std::move(move), [&](KvMoveId, KvMoved m) {
      EXPECT_FALSE(moved.has_value()) << "done twice";
      moved = std::move(m);
    });
    for (int i = 0; i < 100'000 && !moved; ++i) link.progress();
    EXPECT_TRUE(moved.has_value()) << "never done";
    return moved.value_or(KvMoved{});
  }

  void fence() {
    link.fence({1}, [&] { mover->fenced(source); });
  }

  /// Whether the wanted tokens of source block `i` of a move are in the destination as they should.
  bool is_right(const KvMove& move, std::uint32_t i) {
    const std::uint32_t begin = move.source_begin + i * from_size();
    const KvPart part{std::max(begin, move.begin), std::min(begin + from_size(), move.end),
                      move.layer_begin, move.layer_end};
    const auto got = to.pools.bytes;
    oracle(from, to, part);
    return got == to.pools.bytes;
  }

  Rng rng;
  Side from, to;
  MemoryTransport link;
  std::vector<std::byte> staging;
  std::vector<std::vector<std::uint64_t>> stamps;
  std::optional<KvExporter> exporter;
  std::optional<KvMover> mover;
  KvSourceId source;
};

KvPart random_part(Rng& rng, std::uint32_t tokens) {
  KvPart part;
  part.token_begin = static_cast<std::uint32_t>(rng.below(tokens));
  part.token_end =
      part.token_begin + 1 + static_cast<std::uint32_t>(rng.below(tokens - part.token_begin));
  part.layer_begin = static_cast<std::uint32_t>(rng.below(kLayers));
  part.layer_end =
      part.layer_begin + 1 + static_cast<std::uint32_t>(rng.below(kLayers - part.layer_begin));
  return part;
}

KvLayout random_layout(Rng& rng) {
  if (rng.chance(0.5)) return odd_layout(rng);
  const std::uint32_t block = std::array{8U, 16U, 32U}[rng.below(3)];
  return make_kv_layout(
      {"m", "b", kLayers, kHeads, kDim,
       std::array{KvDType::f32, KvDType::f16, KvDType::bf16, KvDType::i8}[rng.below(4)], block,
       std::array{1U, 2U, 4U}[rng.below(3)], blocks_for(block),
       rng.chance(0.5) ? KvOrder::token_major : KvOrder::head_major,
       rng.chance(0.5) ? KvPlacing::apart : KvPlacing::interleaved});
}

TEST(KvMover, MovesBetweenAnyLayoutsAgreeWithTheOracle) {
  Rng rng(1);
  std::uint64_t direct = 0, staged = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const KvLayout a = random_layout(rng);
    const KvLayout b = rng.chance(0.3) ? a : random_layout(rng);
    Rig rig(a, b, {seed, rng.chance(0.5) ? 0 : 1U << 30, 256 << 10, {rng.below(9000) + 1, 3}});
    const auto stamped = static_cast<std::uint32_t>(rng.below(kTokens) + 1);
    rig.stamp(seed, stamped);
    const KvPart part = random_part(rng, stamped);
    const KvMoved moved = rig.run(rig.wish(part, stamped));
    ASSERT_EQ(moved.verdict, Verdict::ok) << "seed " << seed;
    ASSERT_TRUE(moved.quiet);
    for (std::size_t i = 0; i < moved.seen.size(); ++i) {
      ASSERT_TRUE(moved.seen[i].intact) << "seed " << seed << " block " << i;
      ASSERT_EQ(moved.seen[i].generation, seed);
    }
    Pools got = rig.to.pools;
    for (auto& pool : rig.to.pools.bytes) std::fill(pool.begin(), pool.end(), std::byte{0xA5});
    oracle(rig.from, rig.to, part);
    ASSERT_EQ(got.bytes, rig.to.pools.bytes)
        << "seed " << seed << ": " << describe(a) << " to " << describe(b);
    ASSERT_EQ(rig.mover->stats().staging_used, 0U);
    direct += rig.mover->stats().bytes_direct;
    staged += rig.mover->stats().bytes_staged;
  }
  EXPECT_GT(direct, 0U);
  EXPECT_GT(staged, 0U);
}

TEST(KvMover, NothingThatDiffersIsEverCalledProven) {
  std::uint64_t moves = 0, lies = 0, accepted = 0, refused = 0, failed = 0;
  for (std::uint64_t seed = 1; moves < 10'000; ++seed) {
    Rng rng(seed);
    const KvLayout a = random_layout(rng);
    Rig rig(a, rng.chance(0.5) ? a : random_layout(rng),
            {seed, rng.chance(0.7) ? 0 : 1U << 30, 256 << 10, {4096, 4}});
    rig.stamp(seed, kTokens);
    rig.link.faults = {0.05, 0.05, 0.02, 0.002, 0.5};
    for (int n = 0; n < 50; ++n, ++moves) {
      const KvPart part = random_part(rng, 40);
      const KvMove wish = rig.wish(part, kTokens);
      for (auto& pool : rig.to.pools.bytes) std::fill(pool.begin(), pool.end(), std::byte{0xA5});
      const KvMoved moved = rig.run(wish);
      if (moved.verdict != Verdict::ok) {
        ++failed;
        rig.fence();
        continue;
      }
      for (std::uint32_t i = 0; i < moved.seen.size(); ++i) {
        const bool proven = moved.seen[i].intact && moved.seen[i].generation == seed;
        ++(proven ? accepted : refused);
        ASSERT_TRUE(!proven || rig.is_right(wish, i)) << "seed " << seed << " move " << n;
      }
    }
    rig.fence();
    ASSERT_EQ(rig.mover->stats().staging_used, 0U);
    ASSERT_EQ(rig.mover->stats().moves_open, 0U);
    lies += rig.link.lies;
  }
  EXPECT_GT(lies, 1000U);
  EXPECT_GT(accepted, moves);
  EXPECT_GT(refused, 500U);
  EXPECT_GT(failed, 100U);
}

KvLayout plain() {
  return make_kv_layout({"m", "b", kLayers, kHeads, kDim, KvDType::f16, 16, 1, blocks_for(16)});
}

TEST(KvMover, ABlockThatWasWrittenAnewShowsItsNewGeneration) {
  Rig rig(plain(), plain(), {});
  rig.stamp(7, 48);
  rig.from.fill(99);
  rig.exporter->stamp({{rig.from.table[1]}, 8, 16, 0, kLayers});
  const KvMoved moved = rig.run(rig.wish({0, 48, 0, kLayers}, 48));
  ASSERT_EQ(moved.seen.size(), 3U);
  EXPECT_EQ(moved.seen[0], (KvSeen{7, 16, false}));  // other bytes under the old stamp
  EXPECT_EQ(moved.seen[1], (KvSeen{8, 16, true}));
}

TEST(KvMover, AStampThatIsTornMisplacedOrTakenBackProvesNothing) {
  Rig rig(plain(), plain(), {});
  rig.stamp(7, 64);
  const std::uint64_t words = kLayers * sizeof(KvStamp) / 8;
  const auto words_of = [&](std::uint32_t i) {
    return rig.stamps[0].data() + rig.from.table[i] * words;
  };
  words_of(0)[0] = 8;                            // torn: another generation
  std::copy_n(words_of(1), words, words_of(2));  // another block's
  rig.exporter->unstamp({rig.from.table[3]});
  const KvMoved moved = rig.run(rig.wish({0, 64, 0, kLayers}, 64));
  EXPECT_FALSE(moved.seen[0].intact);
  EXPECT_TRUE(moved.seen[1].intact);
  EXPECT_FALSE(moved.seen[2].intact);
  EXPECT_EQ(moved.seen[3], (KvSeen{0, 0, false}));
}

TEST(KvMover, AStampOverFewerTokensSaysSo) {
  Rig rig(plain(), plain(), {});
  rig.stamp(7, 40);
  const KvMoved moved = rig.run(rig.wish({0, 48, 0, kLayers}, 48));
  EXPECT_EQ(moved.seen[2], (KvSeen{7, 8, false}));
}

TEST(KvMover, LayersThatAreNotStampedYetAreNotProven) {
  Rig rig(plain(), plain(), {});
  rig.exporter->stamp({{rig.from.table[0]}, 7, 16, 0, 1});
  EXPECT_TRUE(rig.run(rig.wish({0, 16, 0, 1}, 16)).seen[0].intact);
  EXPECT_EQ(rig.run(rig.wish({0, 16, 0, 2}, 16)).seen[0], (KvSeen{0, 0, false}));
}

TEST(KvMover, ACancelledMoveEndsOnceAndItsStagingWaitsForTheFence) {
  Rig rig(plain(), plain(), {1, 1U << 30, 256 << 10, {1, 2}});
  rig.stamp(7, kTokens);
  int ended = 0;
  KvMoved moved;
  const KvMoveId id = rig.mover->start(rig.source, rig.wish({0, kTokens, 0, kLayers}, kTokens),
                                       [&](KvMoveId, KvMoved m) {
                                         ++ended;
                                         moved = std::move(m);
                                       });
  rig.link.progress();
  rig.mover->cancel(id);
  rig.mover->cancel(id);
  while (rig.link.progress() > 0) {
  }
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(moved.verdict, Verdict::cancelled);
  EXPECT_FALSE(moved.quiet);
  EXPECT_GT(rig.mover->stats().staging_used, 0U);
  rig.fence();
  EXPECT_EQ(rig.mover->stats().staging_used, 0U);
  rig.mover->detach(rig.source);
}

TEST(KvMover, AMoveThatMakesNoSenseIsRefusedAtOnce) {
  Rig rig(plain(), plain(), {});
  rig.stamp(7, 48);
  const KvMove good = rig.wish({0, 48, 0, kLayers}, 48);
  std::vector<KvMove> bad(9, good);
  bad[0].end = 49;
  bad[1].layer_end = kLayers + 1;
  bad[2].sources[1].block = {999};
  bad[3].into[1] = {999};
  bad[4].sources[0].tokens = 15;
  bad[5].sources[0].tokens = 17;
  bad[6].source_begin = 8;
  bad[7].into.pop_back();
  bad[8].begin = bad[8].end;
  for (const KvMove& move : bad) {
    const KvMoved moved = rig.run(move);
    EXPECT_EQ(moved.verdict, Verdict::refused);
    EXPECT_TRUE(moved.quiet);
  }
  EXPECT_EQ(rig.run(good).verdict, Verdict::ok);
}

TEST(KvMover, AUnitLargerThanTheStagingIsRefusedWhenAttached) {
  Rig rig(plain(), plain(), {});
  std::vector<std::byte> small(4096);
  KvMover mover(plain(), rig.to.pools.bases(), small);
  KvLayout large = make_kv_layout({"m", "b", kLayers, kHeads, kDim, KvDType::f16, 4096});
  const auto source = mover.attach({&rig.link, {{RegionId{1}}, RegionId{1}}, large, {{1}}, {{1}}});
  ASSERT_FALSE(source.ok());
  EXPECT_EQ(source.error().code, ErrorCode::resource_exhausted);
}

}  // namespace
}  // namespace infos
