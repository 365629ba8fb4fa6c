// SPDX-License-Identifier: Apache-2.0
// Goal: over real transports, with faults, 10,000 transfers: what a move proves is what the source
// has, checked at each completion; what fails is fenced, reached again and leaves nothing behind.
// Method: source and destination in one thread, the destination's link wrapped by `faulty`; small
// random moves between unequal layouts, destination compared with the element-by-element oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include "tests/kv/kv_sides.h"
#include "transports/faulty/faulty_transport.h"
#include "transports/kv/exporter.h"
#include "transports/kv/mover.h"
#include "transports/shm/shm_transport.h"
#include "transports/tcp/tcp_transport.h"

namespace infos {
namespace {

using namespace test;  // NOLINT: the oracle's words

struct LinkKind {
  const char* name;
  std::function<Result<std::unique_ptr<Transport>>()> make;
};

/// A region that a transport has given, as large as some pool.
struct Shared {
  Shared(Transport& transport, std::uint64_t bytes) {
    region = transport.allocate(bytes, memory).value();
  }
  std::span<std::byte> memory;
  RegionId region;
};

class Pairing {
 public:
  Pairing(const LinkKind& kind, const KvLayout& a, const KvLayout& b, std::uint64_t seed)
      : rng_(seed), from_(a, rng_), to_(b, rng_), theirs_(kind.make().value()) {
    FaultyOptions faults;
    faults.seed = seed;
    faults.delay = 0.05;
    faults.corrupt = 0.05;
    faults.fail = faults.truncate = faults.drop = faults.late = 0.005;
    auto inner = kind.make().value();
    ours_ = std::make_unique<FaultyTransport>(std::move(inner), faults);
    from_.fill(seed);
    export_all(a, seed);
    staging_.emplace(*ours_, 256 << 10);
    for (std::uint32_t r = 0; r < b.ranks; ++r) sinks_.emplace_back(*ours_, b.pool_bytes());
    mover_.emplace(b, bases(sinks_), staging_->memory, KvMoverOptions{4096, 4});
    reach();
  }

  /// One random move; counts what came of it. False: something false was called proven.
  bool move_once(std::uint64_t generation) {
    const KvLayout &a = from_.pools.layout, &b = to_.pools.layout;
    const std::uint32_t begin = static_cast<std::uint32_t>(rng_.below(kTokens));
    const std::uint32_t end =
        begin + 1 + static_cast<std::uint32_t>(rng_.below(std::min(40U, kTokens - begin)));
    KvMove wish{begin, end, 0, kLayers};
    wish.source_begin = begin / a.block_tokens * a.block_tokens;
    for (std::uint32_t t = wish.source_begin; t < end; t += a.block_tokens)
      wish.sources.push_back(
          {{from_.table[t / a.block_tokens]}, std::min(a.block_tokens, kTokens - t)});
    wish.into_begin = begin / b.block_tokens * b.block_tokens;
    for (std::uint32_t t = wish.into_begin; t < end; t += b.block_tokens)
      wish.into.push_back({to_.table[t / b.block_tokens]});
    for (const Shared& sink : sinks_)
      std::fill(sink.memory.begin(), sink.memory.end(), std::byte{0xA5});
    std::optional<KvMoved> moved;
    mover_->start(source_, wish, [&](KvMoveId, KvMoved m) { moved = std::move(m); });
    turn_until([&] { return moved.has_value(); });
    if (moved->verdict != Verdict::ok) {
      ++failed;
      fence();
      reach();
      return true;
    }
    for (std::uint32_t i = 0; i < moved->seen.size(); ++i) {
      const bool proven = moved->seen[i].intact && moved->seen[i].generation == generation;
      ++(proven ? accepted : refused);
      const std::uint32_t first = wish.source_begin + i * a.block_tokens;
      const KvPart part{std::max(first, begin), std::min(first + a.block_tokens, end), 0, kLayers};
      if (proven && !is_right(part)) return false;
    }
    return true;
  }

  /// Ends everything; what is still held then.
  std::uint64_t close() {
    fence();
    mover_->detach(source_);
    return mover_->stats().staging_used + mover_->stats().moves_open + ours_->stats().peers_open +
           ours_->stats().ops_open;
  }

  std::uint64_t accepted = 0, refused = 0, failed = 0;

 private:
  static std::vector<std::byte*> bases(const std::vector<Shared>& shared) {
    std::vector<std::byte*> out;
    for (const Shared& s : shared) out.push_back(s.memory.data());
    return out;
  }

  void export_all(const KvLayout& a, std::uint64_t generation) {
    std::vector<const std::byte*> pools;
    std::vector<std::span<std::byte>> tables;
    for (std::uint32_t r = 0; r < a.ranks; ++r) {
      const Shared pool(*theirs_, a.pool_bytes()), table(*theirs_, stamp_table_bytes(a));
      std::copy(from_.pools.bytes[r].begin(), from_.pools.bytes[r].end(), pool.memory.begin());
      pools.push_back(pool.memory.data());
      tables.push_back(table.memory);
      const auto key = [&](const Shared& memory) {
        return theirs_->key(
            theirs_->grant(memory.region, 0, memory.memory.size(), Access::read).value());
      };
      keys_.push_back({key(pool), key(table)});
    }
    exporter_.emplace(*KvExporter::create(a, pools, tables));
    for (std::uint32_t t = 0; t < kTokens; t += a.block_tokens)
      exporter_->stamp({{from_.table[t / a.block_tokens]},
                        generation,
                        std::min(a.block_tokens, kTokens - t),
                        0,
                        kLayers});
  }

  void turn_until(const std::function<bool()>& done) {
    while (!done()) {
      theirs_->progress();
      ours_->progress();
    }
  }

  void reach() {
    if (source_) mover_->detach(source_);
    peer_ = ours_->connect(theirs_->address()).value();
    KvRemote remote;
    remote.transport = ours_.get();
    remote.layout = from_.pools.layout;
    remote.memory.staging = staging_->region;
    for (const Shared& sink : sinks_) remote.memory.pools.push_back(sink.region);
    for (const auto& [pool, table] : keys_) {
      remote.pools.push_back(ours_->open_remote(peer_, pool).value());
      remote.stamps.push_back(ours_->open_remote(peer_, table).value());
    }
    source_ = mover_->attach(remote).value();
  }

  void fence() {
    bool fenced = false;
    ours_->fence(peer_, [&] { fenced = true; });
    turn_until([&] { return fenced; });
    mover_->fenced(source_);
  }

  bool is_right(const KvPart& part) {
    for (std::uint32_t r = 0; r < sinks_.size(); ++r)
      std::copy_n(sinks_[r].memory.begin(), to_.pools.bytes[r].size(), to_.pools.bytes[r].begin());
    const auto got = to_.pools.bytes;
    oracle(from_, to_, part);
    return got == to_.pools.bytes;
  }

  Rng rng_;
  Side from_, to_;
  std::unique_ptr<Transport> theirs_;
  std::unique_ptr<FaultyTransport> ours_;
  std::vector<std::pair<std::string, std::string>> keys_;
  std::optional<KvExporter> exporter_;
  std::optional<Shared> staging_;
  std::vector<Shared> sinks_;
  std::optional<KvMover> mover_;
  PeerId peer_;
  KvSourceId source_;
};

class KvMoverLinks : public testing::TestWithParam<LinkKind> {};

TEST_P(KvMoverLinks, FiveThousandTransfersProveOnlyWhatTheSourceHas) {
  std::uint64_t accepted = 0, refused = 0, failed = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Rng rng(seed);
    const KvLayout a = odd_layout(rng);
    Pairing pairing(GetParam(), a, seed % 2 == 0 ? a : odd_layout(rng), seed);
    for (int n = 0; n < 500; ++n)
      ASSERT_TRUE(pairing.move_once(seed)) << "seed " << seed << " move " << n;
    ASSERT_EQ(pairing.close(), 0U) << "seed " << seed;
    accepted += pairing.accepted;
    refused += pairing.refused;
    failed += pairing.failed;
  }
  EXPECT_GT(accepted, 5'000U);
  EXPECT_GT(refused, 200U);
  EXPECT_GT(failed, 50U);
}

INSTANTIATE_TEST_SUITE_P(Links, KvMoverLinks,
                         testing::Values(LinkKind{"shm", [] { return make_shm_transport({}); }},
                                         LinkKind{"tcp", [] { return make_tcp_transport({}); }}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace infos
