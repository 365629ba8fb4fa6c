// SPDX-License-Identifier: Apache-2.0
// Conformance, what is refused: keys that are wrong, too short in reach, of another kind, of
// another peer or revoked; and addresses that are none. Method: after each refusal the destination
// is as it was, and a good operation with a new peer still works.
#include <cstring>

#include "tests/transports/conformance.h"

namespace infos::test {
namespace {

constexpr std::uint64_t kBytes = 64 * 1024;
const auto kMark = std::byte{0x77};

class Refusals {
 public:
  explicit Refusals(Pair pair) : pair_(std::move(pair)) {
    std::memset(pair_.of_a.bytes.data(), 0x77, kBytes);
    std::memset(pair_.of_b.bytes.data(), 0x77, kBytes);
  }
  Pair& pair() { return pair_; }
  /// A new peer each time: a link may close on a refusal.
  RemoteId open(const std::string& key) {
    const PeerId peer = pair_.a->connect(pair_.b->address()).value();
    return pair_.a->open_remote(peer, key).value();
  }
  void expect_get_refused(RemoteId remote, Piece piece) {
    Verdicts verdicts;
    std::memset(pair_.of_b.bytes.data(), 0x11, kBytes);
    pair_.a->get(remote, pair_.of_a.region, {&piece, 1}, verdicts.done());
    expect_refused(verdicts);
    EXPECT_TRUE(all_are(pair_.of_a.bytes, kMark));
    std::memset(pair_.of_b.bytes.data(), 0x77, kBytes);
  }
  void expect_put_refused(RemoteId remote, Piece piece) {
    Verdicts verdicts;
    std::memset(pair_.of_a.bytes.data(), 0x11, kBytes);
    pair_.a->put(remote, pair_.of_a.region, {&piece, 1}, verdicts.done());
    expect_refused(verdicts);
    EXPECT_TRUE(all_are(pair_.of_b.bytes, kMark));
    std::memset(pair_.of_a.bytes.data(), 0x77, kBytes);
  }

 private:
  void expect_refused(const Verdicts& verdicts) const {
    ASSERT_TRUE(pair_.pump().until([&] { return verdicts.all_ended(); }));
    EXPECT_EQ(verdicts.of(Verdict::refused), 1u) << verdicts.text();
  }
  Pair pair_;
};

TEST_P(TransportConformance, Grant_OutOfRangeIsRefused) {
  Refusals refusals(make_pair(make(), make(), kBytes));
  Transport& b = *refusals.pair().b;
  const RegionId region = refusals.pair().of_b.region;
  const std::string readable = b.key(b.grant(region, 4096, 8192, Access::read).value());
  const std::string writable = b.key(b.grant(region, 4096, 8192, Access::write).value());
  for (const Piece piece : {Piece{0, 8192, 1}, Piece{0, 0, 8193}, Piece{0, 8191, 2},
                            Piece{0, UINT64_MAX, 1}, Piece{0, UINT64_MAX - 4, 4096}}) {
    refusals.expect_get_refused(refusals.open(readable), piece);
    refusals.expect_put_refused(refusals.open(writable), piece);
  }
  // From the grant's begin, not the region's.
  b.forget(make_memory(b, 4096).region);
  std::memset(refusals.pair().of_b.bytes.data() + 4096, 0x22, 8192);
  Verdicts verdicts;
  const Piece piece{0, 0, 8192};
  refusals.pair().a->get(refusals.open(readable), refusals.pair().of_a.region, {&piece, 1},
                         verdicts.done());
  ASSERT_TRUE(refusals.pair().pump().until([&] { return verdicts.all_ended(); }));
  EXPECT_EQ(verdicts.of(Verdict::ok), 1u) << verdicts.text();
  EXPECT_TRUE(all_are(refusals.pair().of_a.bytes.subspan(0, 8192), std::byte{0x22}));
}

TEST_P(TransportConformance, Grant_IsForOneKindOfAccess) {
  Refusals refusals(make_pair(make(), make(), kBytes));
  Pair& pair = refusals.pair();
  refusals.expect_put_refused(refusals.open(pair.b->key(pair.read_grant)), {0, 0, 4096});
  refusals.expect_get_refused(refusals.open(pair.b->key(pair.write_grant)), {0, 0, 4096});
}

TEST_P(TransportConformance, Grant_OfAnotherPeerIsRefused) {
  Refusals refusals(make_pair(make(), make(), kBytes));
  Pair& pair = refusals.pair();
  auto other = make();
  const Memory of_other = make_memory(*other, kBytes);
  for (const Access access : {Access::read, Access::write}) {
    const GrantId grant = other->grant(of_other.region, 0, kBytes, access).value();
    const PeerId peer = pair.a->connect(pair.b->address()).value();
    const auto remote = pair.a->open_remote(peer, other->key(grant));
    if (!remote.ok())
      EXPECT_EQ(remote.error().code, ErrorCode::invalid_argument);
    else if (access == Access::read)
      refusals.expect_get_refused(*remote, {0, 0, 4096});
    else
      refusals.expect_put_refused(*remote, {0, 0, 4096});
  }
}

TEST_P(TransportConformance, Grant_RevokedIsRefused) {
  Refusals refusals(make_pair(make(), make(), kBytes));
  Pair& pair = refusals.pair();
  const std::string readable = pair.b->key(pair.read_grant);
  const std::string writable = pair.b->key(pair.write_grant);
  std::size_t revoked = 0;
  pair.b->revoke(pair.read_grant, [&] { ++revoked; });
  pair.b->revoke(pair.write_grant, [&] { ++revoked; });
  ASSERT_TRUE(pair.pump().until([&] { return revoked == 2; }));
  EXPECT_EQ(pair.b->stats().grants_open, 0u);
  refusals.expect_put_refused(refusals.open(writable), {0, 0, 4096});
  if (GetParam().revoked_reads == Backend::RevokedReads::refused)
    refusals.expect_get_refused(refusals.open(readable), {0, 0, 4096});
}

/// The delayed writer of one grant: puts on their way when it is revoked.
TEST_P(TransportConformance, Grant_RevokedUnderWayLetsNoByteLandAfterwards) {
  Pair pair = make_pair(make(), make(), 8u << 20);
  std::memset(pair.of_a.bytes.data(), 0x11, pair.of_a.bytes.size());
  Verdicts verdicts;
  const Piece all{0, 0, pair.of_a.bytes.size()};
  for (int i = 0; i < 8; ++i)
    pair.a->put(pair.writable, pair.of_a.region, {&all, 1}, verdicts.done());
  for (int i = 0; i < 20; ++i) {  // until some of it is there
    pair.a->progress();
    pair.b->progress();
  }
  bool revoked = false;
  pair.b->revoke(pair.write_grant, [&] {
    revoked = true;
    std::memset(pair.of_b.bytes.data(), 0x77, pair.of_b.bytes.size());
  });
  ASSERT_TRUE(pair.pump().until([&] { return revoked && verdicts.all_ended(); }));
  pair.pump().a_while();
  EXPECT_TRUE(all_are(pair.of_b.bytes, kMark));
}

TEST_P(TransportConformance, Key_ThatIsWrongIsRefusedOrNoKey) {
  Refusals refusals(make_pair(make(), make(), kBytes));
  Pair& pair = refusals.pair();
  const std::string good = pair.b->key(pair.write_grant);
  for (const std::string bad : {"", "x", "tcp", "shm 1 2 3", "\xff\xfe\x00\x01", "7 7 7 7 7 7 7"}) {
    const auto remote = pair.a->open_remote(pair.b_of_a, bad);
    ASSERT_FALSE(remote.ok()) << bad;
    EXPECT_EQ(remote.error().code, ErrorCode::invalid_argument);
  }
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = bad[i] == '1' ? '2' : '1';
    const PeerId peer = pair.a->connect(pair.b->address()).value();
    const auto remote = pair.a->open_remote(peer, bad);
    if (remote.ok() && bad != good) {
      // A key that is right but for its reach may be good for less, never for more.
      Verdicts verdicts;
      const Piece piece{0, 0, 4096};
      std::memset(pair.of_a.bytes.data(), 0x11, kBytes);
      pair.a->put(*remote, pair.of_a.region, {&piece, 1}, verdicts.done());
      ASSERT_TRUE(pair.pump().until([&] { return verdicts.all_ended(); }));
      EXPECT_EQ(verdicts.of(Verdict::ok), 0u) << "character " << i << " of " << good;
      EXPECT_TRUE(all_are(pair.of_b.bytes, kMark)) << i;
    }
    bool fenced = false;
    pair.a->fence(peer, [&] { fenced = true; });
    ASSERT_TRUE(pair.pump().until([&] { return fenced; }));
  }
}

TEST_P(TransportConformance, Address_ThatIsWrongReachesNobody) {
  Pair pair = make_pair(make(), make(), kBytes);
  for (const std::string bad : {"", "x", "nowhere:1", "\xff\xff\xff\xff", "1 2 3 4 5 6 7"}) {
    const auto peer = pair.a->connect(bad);
    ASSERT_FALSE(peer.ok()) << bad;
    EXPECT_EQ(peer.error().code, ErrorCode::invalid_argument) << bad;
  }
  // Cut short, and from a transport that is gone.
  std::vector<std::string> addresses;
  const std::string good = pair.b->address();
  for (const std::size_t cut : {std::size_t{1}, good.size() / 2, good.size() - 1})
    addresses.push_back(good.substr(0, cut));
  addresses.push_back(make()->address());
  for (const std::string& address : addresses) {
    const auto peer = pair.a->connect(address);
    if (!peer.ok()) continue;
    const auto remote = pair.a->open_remote(*peer, pair.b->key(pair.read_grant));
    if (!remote.ok()) continue;
    Verdicts verdicts;
    const Piece piece{0, 0, 1};
    pair.a->get(*remote, pair.of_a.region, {&piece, 1}, verdicts.done());
    ASSERT_TRUE(pair.pump().until([&] { return verdicts.all_ended(); }));
    EXPECT_EQ(verdicts.of(Verdict::ok), 0u) << address;
  }
  Verdicts verdicts;
  const Piece piece{0, 0, 4096};
  pair.a->get(pair.readable, pair.of_a.region, {&piece, 1}, verdicts.done());
  ASSERT_TRUE(pair.pump().until([&] { return verdicts.all_ended(); }));
  EXPECT_EQ(verdicts.of(Verdict::ok), 1u) << verdicts.text();
}

}  // namespace
}  // namespace infos::test
