// SPDX-License-Identifier: Apache-2.0
// Conformance, what arrives: every size, scatter and gather, order, waits. Method: the source is
// compared with the destination inside the completion; whole regions are compared, so that a byte
// written where none belongs is seen too.
#include <poll.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include "tests/transports/conformance.h"

namespace infos::test {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint64_t kSizes[] = {1,          2,        7,         63,       64,       65,
                                    4095,       4096,     4097,      65'536,   kMiB - 1, kMiB,
                                    kMiB + 777, 5 * kMiB, 16 * kMiB, 64 * kMiB};

/// Pieces that cover a random part of [0, bytes), in random order, each somewhere else remotely; no
/// two overlap on either side.
std::vector<Piece> random_pieces(Rng& rng, std::uint64_t bytes, std::size_t count) {
  std::vector<std::uint64_t> lengths(count);
  for (auto& length : lengths)
    length = rng.below(2 * bytes / count / 3) + (rng.chance(0.9) ? 1 : 0);
  const auto places = [&] {
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
    std::vector<std::uint64_t> at(count);
    std::uint64_t slack = bytes - std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0});
    std::uint64_t next = 0;
    for (const std::size_t i : order) {
      const std::uint64_t gap = rng.below(slack / 2 + 1);
      slack -= gap;
      at[i] = next + gap;
      next = at[i] + lengths[i];
    }
    return at;
  };
  const auto local = places(), remote = places();
  std::vector<Piece> pieces(count);
  for (std::size_t i = 0; i < count; ++i) pieces[i] = {local[i], remote[i], lengths[i]};
  return pieces;
}

TEST_P(TransportConformance, Get_EverySizeArrivesWhole) {
  Pair pair = make_pair(make(), make(), 64 * kMiB + 3);
  fill(pair.of_b.bytes, 1);
  for (const std::uint64_t size : kSizes) {
    Verdicts verdicts;
    const Piece piece{3, 1, size};
    std::memset(pair.of_a.bytes.data(), 0x5A, size + 3);
    pair.a->get(pair.readable, pair.of_a.region, {&piece, 1}, verdicts.done());
    EXPECT_EQ(verdicts.ended(), 0u) << "a verdict inside get()";
    ASSERT_TRUE(pair.pump().until([&] { return verdicts.all_ended(); })) << size;
    ASSERT_EQ(verdicts.of(Verdict::ok), 1u) << size << ": " << verdicts.text();
    ASSERT_TRUE(same(pair.of_a.bytes.subspan(3, size), pair.of_b.bytes.subspan(1, size))) << size;
  }
}

TEST_P(TransportConformance, Put_EverySizeArrivesWhole) {
  Pair pair = make_pair(make(), make(), 64 * kMiB + 3);
  fill(pair.of_a.bytes, 2);
  for (const std::uint64_t size : kSizes) {
    Verdicts verdicts;
    const Piece piece{1, 3, size};
    std::memset(pair.of_b.bytes.data(), 0x5A, size + 3);
    pair.a->put(pair.writable, pair.of_a.region, {&piece, 1}, verdicts.done());
    EXPECT_EQ(verdicts.ended(), 0u) << "a verdict inside put()";
    ASSERT_TRUE(pair.pump().until([&] { return verdicts.all_ended(); })) << size;
    ASSERT_EQ(verdicts.of(Verdict::ok), 1u) << size << ": " << verdicts.text();
    ASSERT_TRUE(same(pair.of_b.bytes.subspan(3, size), pair.of_a.bytes.subspan(1, size))) << size;
  }
}

TEST_P(TransportConformance, Pieces_ScatterAndGatherTouchNothingElse) {
  constexpr std::uint64_t kBytes = 300'001;
  Pair pair = make_pair(make(), make(), kBytes);
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    Rng rng(seed);
    const auto pieces = random_pieces(rng, kBytes, 1 + rng.below(300));
    fill(pair.of_a.bytes, seed);
    fill(pair.of_b.bytes, seed + 1000);
    std::vector<std::byte> of_a(pair.of_a.bytes.begin(), pair.of_a.bytes.end());
    std::vector<std::byte> of_b(pair.of_b.bytes.begin(), pair.of_b.bytes.end());
    Verdicts verdicts;
    if (seed % 2 == 0) {
      for (const Piece& p : pieces) std::memcpy(&of_a[p.local], &of_b[p.remote], p.bytes);
      pair.a->get(pair.readable, pair.of_a.region, pieces, verdicts.done());
    } else {
      for (const Piece& p : pieces) std::memcpy(&of_b[p.remote], &of_a[p.local], p.bytes);
      pair.a->put(pair.writable, pair.of_a.region, pieces, verdicts.done());
    }
    ASSERT_TRUE(pair.pump().until([&] { return verdicts.all_ended(); })) << "seed " << seed;
    ASSERT_EQ(verdicts.of(Verdict::ok), 1u) << "seed " << seed << ": " << verdicts.text();
    ASSERT_TRUE(same(pair.of_a.bytes, of_a)) << "seed " << seed;
    ASSERT_TRUE(same(pair.of_b.bytes, of_b)) << "seed " << seed;
  }
}

TEST_P(TransportConformance, Pieces_AHundredThousandSmallOnesInOneOperation) {
  constexpr std::uint64_t kCount = 100'000, kPiece = 64;
  Pair pair = make_pair(make(), make(), kCount * kPiece);
  fill(pair.of_b.bytes, 3);
  std::vector<Piece> pieces(kCount);
  for (std::uint64_t i = 0; i < kCount; ++i)  // 7919 is prime to the count: a permutation
    pieces[i] = {i * kPiece, i * 7919 % kCount * kPiece, kPiece};
  Verdicts verdicts;
  pair.a->get(pair.readable, pair.of_a.region, pieces, verdicts.done());
  pieces.assign(pieces.size(), Piece{});  // they were read before get() returned
  ASSERT_TRUE(pair.pump().until([&] { return verdicts.all_ended(); }));
  ASSERT_EQ(verdicts.of(Verdict::ok), 1u) << verdicts.text();
  for (std::uint64_t i = 0; i < kCount; ++i)
    ASSERT_TRUE(same(pair.of_a.bytes.subspan(i * kPiece, kPiece),
                     pair.of_b.bytes.subspan(i * 7919 % kCount * kPiece, kPiece)));
}

TEST_P(TransportConformance, Pieces_NoneOrEmptyAreOk) {
  Pair pair = make_pair(make(), make(), 4096);
  const Piece empty[] = {{0, 0, 0}, {4096, 4096, 0}};
  Verdicts verdicts;
  pair.a->get(pair.readable, pair.of_a.region, {}, verdicts.done());
  pair.a->put(pair.writable, pair.of_a.region, {}, verdicts.done());
  pair.a->get(pair.readable, pair.of_a.region, empty, verdicts.done());
  pair.a->put(pair.writable, pair.of_a.region, empty, verdicts.done());
  EXPECT_EQ(verdicts.ended(), 0u) << "a verdict inside get() or put()";
  ASSERT_TRUE(pair.pump().until([&] { return verdicts.all_ended(); }));
  EXPECT_EQ(verdicts.of(Verdict::ok), 4u) << verdicts.text();
}

TEST_P(TransportConformance, Pieces_WhereTheyOverlapEitherWins) {
  Pair pair = make_pair(make(), make(), 8192);
  std::memset(pair.of_b.bytes.data(), 1, 4096);
  std::memset(pair.of_b.bytes.data() + 4096, 2, 4096);
  const Piece pieces[] = {{0, 0, 4096}, {2048, 4096, 4096}, {6144, 0, 2048}};
  Verdicts verdicts;
  pair.a->get(pair.readable, pair.of_a.region, pieces, verdicts.done());
  ASSERT_TRUE(pair.pump().until([&] { return verdicts.all_ended(); }));
  if (verdicts.of(Verdict::ok) == 0) {
    EXPECT_EQ(verdicts.of(Verdict::failed), 1u) << verdicts.text();
    return;
  }
  EXPECT_TRUE(all_are(pair.of_a.bytes.subspan(0, 2048), std::byte{1}));
  EXPECT_TRUE(all_are(pair.of_a.bytes.subspan(4096, 2048), std::byte{2}));
  EXPECT_TRUE(all_are(pair.of_a.bytes.subspan(6144, 2048), std::byte{1}));
  for (const std::byte byte : pair.of_a.bytes.subspan(2048, 2048))
    ASSERT_TRUE(byte == std::byte{1} || byte == std::byte{2});
}

/// Ten thousand transfers, sixteen at once, from both sides; each is checked in its completion.
TEST_P(TransportConformance, TenThousandTransfers_BytesAreThereAtTheCompletion) {
  constexpr std::uint64_t kSlot = 16 * 1024, kSlots = 16, kTransfers = 10'000;
  Pair pair = make_pair(make(), make(), kSlot * kSlots);
  Rng rng(5);
  std::uint64_t given = 0, ended = 0, wrong = 0, not_ok = 0;
  std::function<void(std::uint64_t)> next = [&](std::uint64_t slot) {
    if (given == kTransfers) return;
    ++given;
    const std::uint64_t bytes = rng.below(kSlot) + 1,
                        at = slot * kSlot + rng.below(kSlot - bytes + 1);
    const Piece piece{at, at, bytes};
    const auto here = pair.of_a.bytes.subspan(at, bytes),
               there = pair.of_b.bytes.subspan(at, bytes);
    const bool is_get = given % 2 == 0;
    fill(is_get ? there : here, given);
    const auto check = [&, slot, here, there](OpId, Verdict verdict) {
      ++ended;
      not_ok += verdict == Verdict::ok ? 0 : 1;
      wrong += same(here, there) ? 0 : 1;
      next(slot);
    };
    if (is_get)
      pair.a->get(pair.readable, pair.of_a.region, {&piece, 1}, check);
    else
      pair.a->put(pair.writable, pair.of_a.region, {&piece, 1}, check);
  };
  for (std::uint64_t slot = 0; slot < kSlots; ++slot) next(slot);
  ASSERT_TRUE(pair.pump().until([&] { return ended == kTransfers; }));
  EXPECT_EQ(not_ok, 0u);
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(pair.a->stats().ops_ok, kTransfers);
  EXPECT_EQ(pair.a->stats().ops_open, 0u);
}

TEST_P(TransportConformance, MoreOperationsThanTheLink_WaitTheirTurn) {
  Pair pair = make_pair(make(), make(), 1024 * 1024);
  fill(pair.of_b.bytes, 9);
  const std::size_t many = pair.a->info().ops_in_flight_max + 1000;
  Verdicts verdicts;
  for (std::size_t i = 0; i < many; ++i) {
    const Piece piece{i % 1024 * 1024, i % 1024 * 1024, 1024};
    pair.a->get(pair.readable, pair.of_a.region, {&piece, 1}, verdicts.done());
  }
  ASSERT_TRUE(pair.pump().until([&] { return verdicts.all_ended(); })) << verdicts.text();
  EXPECT_EQ(verdicts.of(Verdict::ok), many) << verdicts.text();
  EXPECT_TRUE(same(pair.of_a.bytes, pair.of_b.bytes));
}

TEST_P(TransportConformance, TenThousandRegions_EachIsReached) {
  constexpr std::uint64_t kRegions = 10'000, kBytes = 4096;
  auto a = make(), b = make();
  const Memory target = make_memory(*a, kBytes);
  const PeerId peer = a->connect(b->address()).value();
  std::vector<Memory> regions;
  std::vector<GrantId> grants;
  for (std::uint64_t i = 0; i < kRegions; ++i) {
    regions.push_back(make_memory(*b, kBytes));
    std::memcpy(regions[i].bytes.data(), &i, sizeof i);
    grants.push_back(b->grant(regions[i].region, 0, kBytes, Access::read).value());
  }
  EXPECT_EQ(b->stats().regions_open, kRegions);
  EXPECT_EQ(b->stats().grants_open, kRegions);
  const Pump pump({a.get(), b.get()});
  for (std::uint64_t i = 0; i < kRegions; i += 97) {
    const RemoteId remote = a->open_remote(peer, b->key(grants[i])).value();
    Verdicts verdicts;
    const Piece piece{0, 0, kBytes};
    a->get(remote, target.region, {&piece, 1}, verdicts.done());
    ASSERT_TRUE(pump.until([&] { return verdicts.all_ended(); }));
    ASSERT_EQ(verdicts.of(Verdict::ok), 1u) << i << ": " << verdicts.text();
    std::uint64_t seen = 0;
    std::memcpy(&seen, target.bytes.data(), sizeof seen);
    ASSERT_EQ(seen, i);
  }
  std::size_t revoked = 0;
  for (const GrantId grant : grants) b->revoke(grant, [&] { ++revoked; });
  ASSERT_TRUE(pump.until([&] { return revoked == kRegions; }));
  for (const Memory& region : regions) b->forget(region.region);
  EXPECT_EQ(b->stats().regions_open, 0u);
  EXPECT_EQ(b->stats().grants_open, 0u);
}

TEST_P(TransportConformance, ManyPeers_EachGivesItsOwnBytes) {
  constexpr std::size_t kPeers = 12;
  constexpr std::uint64_t kBytes = 100'000;
  auto a = make();
  const Memory target = make_memory(*a, kPeers * kBytes);
  std::vector<std::unique_ptr<Transport>> peers;
  std::vector<Memory> sources;
  std::vector<Transport*> all{a.get()};
  Verdicts verdicts;
  for (std::size_t i = 0; i < kPeers; ++i) {
    peers.push_back(make());
    all.push_back(peers[i].get());
    sources.push_back(make_memory(*peers[i], kBytes));
    fill(sources[i].bytes, i);
    const GrantId grant = peers[i]->grant(sources[i].region, 0, kBytes, Access::read).value();
    const PeerId peer = a->connect(peers[i]->address()).value();
    const Piece piece{i * kBytes, 0, kBytes};
    a->get(a->open_remote(peer, peers[i]->key(grant)).value(), target.region, {&piece, 1},
           verdicts.done());
  }
  EXPECT_EQ(a->stats().peers_open, kPeers);
  ASSERT_TRUE(Pump(all).until([&] { return verdicts.all_ended(); }));
  ASSERT_EQ(verdicts.of(Verdict::ok), kPeers) << verdicts.text();
  for (std::size_t i = 0; i < kPeers; ++i)
    EXPECT_TRUE(same(target.bytes.subspan(i * kBytes, kBytes), sources[i].bytes)) << i;
}

/// Two owners on two threads, each asleep on its wait_fd whenever arm() allows.
TEST_P(TransportConformance, Waits_TwoSleepingOwnersLoseNoWakeUp) {
  auto a = make(), b = make();
  const Memory of_a = make_memory(*a, 4096), of_b = make_memory(*b, 4096);
  fill(of_b.bytes, 4);
  const GrantId grant = b->grant(of_b.region, 0, 4096, Access::write).value();
  const PeerId peer = a->connect(b->address()).value();
  const RemoteId remote = a->open_remote(peer, b->key(grant)).value();
  std::atomic<bool> stop{false};
  const auto wait = [](Transport& transport) {
    if (transport.progress() > 0 || !transport.arm()) return;
    pollfd fd{transport.wait_fd(), POLLIN, 0};
    poll(&fd, 1, 5);
  };
  std::thread server([&] {
    while (!stop) wait(*b);
  });
  std::size_t ok = 0, ended = 0;
  const Piece piece{0, 0, 4096};
  for (std::size_t i = 0; i < 300; ++i) {
    a->put(remote, of_a.region, {&piece, 1}, [&](OpId, Verdict verdict) {
      ++ended;
      ok += verdict == Verdict::ok ? 1 : 0;
    });
    while (ended <= i) wait(*a);
  }
  stop = true;
  server.join();
  EXPECT_EQ(ok, 300u);
}

TEST_P(TransportConformance, TwoProcesses_MoveBytes) {
  if (is_peer_process()) return serve_as_peer(make());
  PeerProcess process;
  auto a = make();
  const Memory memory = make_memory(*a, PeerProcess::kBytes);
  std::vector<std::byte> expected(PeerProcess::kBytes);
  fill(expected, 7);
  const PeerId peer = a->connect(process.address()).value();
  const Pump pump({a.get()});
  Verdicts verdicts;
  const Piece piece{0, 0, PeerProcess::kBytes};
  const auto all = std::span(&piece, 1);
  a->get(a->open_remote(peer, process.read_key()).value(), memory.region, all, verdicts.done());
  ASSERT_TRUE(pump.until([&] { return verdicts.all_ended(); }));
  EXPECT_EQ(verdicts.of(Verdict::ok), 1u) << verdicts.text();
  EXPECT_TRUE(same(memory.bytes, expected));
  // Its bytes come back the other way, and ours go there and come back.
  std::memset(memory.bytes.data(), 0, memory.bytes.size());
  const GrantId mine = a->grant(memory.region, 0, PeerProcess::kBytes, Access::write).value();
  process.write_into(a->address(), a->key(mine), 2);
  ASSERT_TRUE(pump.until([&] { return process.has_written(); }));
  EXPECT_TRUE(same(memory.bytes, expected));
  fill(memory.bytes, 8);
  a->put(a->open_remote(peer, process.write_key()).value(), memory.region, all, verdicts.done());
  ASSERT_TRUE(pump.until([&] { return verdicts.all_ended(); }));
  std::memset(memory.bytes.data(), 0, memory.bytes.size());
  a->get(a->open_remote(peer, process.read_key()).value(), memory.region, all, verdicts.done());
  ASSERT_TRUE(pump.until([&] { return verdicts.all_ended(); }));
  EXPECT_EQ(verdicts.of(Verdict::ok), 3u) << verdicts.text();
  fill(expected, 8);
  EXPECT_TRUE(same(memory.bytes, expected));
}

}  // namespace
}  // namespace infos::test
