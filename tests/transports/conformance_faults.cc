// SPDX-License-Identifier: Apache-2.0
// Conformance, what goes wrong: cancel, fence, the delayed writer, and a peer that is killed,
// stopped or closed in every state of an operation. Method: memory is overwritten with a mark when
// the fence is answered and must keep it; counters and descriptors must come back to where they
// were.
#include <signal.h>

#include <cstring>

#include "tests/transports/conformance.h"

namespace infos::test {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;
const auto kMark = std::byte{0x77};

TEST_P(TransportConformance, Cancel_EndsWithOneVerdictAndHarmsNoOther) {
  Pair pair = make_pair(make(), make(), 8 * kMiB);
  fill(pair.of_b.bytes, 6);
  Verdicts cancelled, others;
  const Piece piece{0, 0, 4 * kMiB}, other{4 * kMiB, 4 * kMiB, 4 * kMiB};
  const RegionId here = pair.of_a.region;
  for (int i = 0; i < 20; ++i) {
    const OpId op = pair.a->get(pair.readable, here, {&piece, 1}, cancelled.done());
    pair.a->get(pair.readable, here, {&other, 1}, others.done());
    for (int turns = i % 4; turns > 0; --turns) {
      pair.a->progress();
      pair.b->progress();
    }
    const std::size_t before = cancelled.ended();
    pair.a->cancel(op);
    EXPECT_EQ(cancelled.ended(), before) << "a verdict inside cancel()";
    pair.a->cancel(op);
  }
  pair.a->cancel(OpId{});
  ASSERT_TRUE(pair.pump().until([&] { return cancelled.all_ended() && others.all_ended(); }));
  EXPECT_EQ(cancelled.of(Verdict::ok) + cancelled.of(Verdict::cancelled), 20u) << cancelled.text();
  EXPECT_EQ(others.of(Verdict::ok), 20u) << others.text();
  const std::size_t half = 4 * kMiB;
  EXPECT_TRUE(same(pair.of_a.bytes.subspan(half, half), pair.of_b.bytes.subspan(half, half)));
  EXPECT_EQ(pair.a->stats().ops_open, 0u);
}

/// Our own gets are under way when the peer is fenced, after more and more of it has happened.
TEST_P(TransportConformance, Fence_OfOurGetsLetsNoByteLandAfterwards) {
  Pair pair = make_pair(make(), make(), 8 * kMiB);
  std::memset(pair.of_b.bytes.data(), 0x11, pair.of_b.bytes.size());
  for (int turns = 0; turns < 24; turns += 3) {
    const PeerId peer = pair.a->connect(pair.b->address()).value();
    const RemoteId remote = pair.a->open_remote(peer, pair.b->key(pair.read_grant)).value();
    Verdicts verdicts;
    const Piece all{0, 0, 8 * kMiB};
    for (int i = 0; i < 8; ++i) pair.a->get(remote, pair.of_a.region, {&all, 1}, verdicts.done());
    for (int i = 0; i < turns; ++i) {
      pair.a->progress();
      pair.b->progress();
    }
    bool fenced = false;
    pair.a->fence(peer, [&] {
      EXPECT_TRUE(verdicts.all_ended()) << "verdicts come before the answer";
      fenced = true;
      std::memset(pair.of_a.bytes.data(), 0x77, pair.of_a.bytes.size());
    });
    ASSERT_TRUE(pair.pump().until([&] { return fenced; }));
    EXPECT_EQ(pair.a->peer_state(peer), PeerState::closed);
    EXPECT_EQ(verdicts.of(Verdict::ok) + verdicts.of(Verdict::cancelled), 8u) << verdicts.text();
    // What is given after the fence is cancelled, not performed.
    pair.a->get(remote, pair.of_a.region, {&all, 1}, verdicts.done());
    ASSERT_TRUE(pair.pump().until([&] { return verdicts.all_ended(); }));
    EXPECT_GE(verdicts.of(Verdict::cancelled), 1u);
    pair.pump().a_while();
    EXPECT_TRUE(all_are(pair.of_a.bytes, kMark)) << turns << " turns before the fence";
  }
}

/// The peer's puts are under way when we fence it: the delayed writer within one process.
TEST_P(TransportConformance, Fence_OfItsPutsLetsNoByteLandAfterwards) {
  for (int turns = 1; turns < 30; turns += 4) {
    Pair pair = make_pair(make(), make(), 8 * kMiB);
    std::memset(pair.of_a.bytes.data(), 0x11, pair.of_a.bytes.size());
    const PeerId a_of_b = pair.b->connect(pair.a->address()).value();
    Verdicts verdicts;
    const Piece all{0, 0, 8 * kMiB};
    for (int i = 0; i < 8; ++i)
      pair.a->put(pair.writable, pair.of_a.region, {&all, 1}, verdicts.done());
    for (int i = 0; i < turns; ++i) {
      pair.a->progress();
      pair.b->progress();
    }
    for (int i = 0; i < 3; ++i) pair.a->progress();  // held: sent, not yet served
    bool fenced = false;
    pair.b->fence(a_of_b, [&] {
      fenced = true;
      std::memset(pair.of_b.bytes.data(), 0x77, pair.of_b.bytes.size());
    });
    ASSERT_TRUE(Pump({pair.b.get()}).until([&] { return fenced; })) << "needs no help of the peer";
    pair.pump().a_while();
    EXPECT_TRUE(all_are(pair.of_b.bytes, kMark)) << turns << " turns before the fence";
    bool ended = false;
    pair.a->fence(pair.b_of_a, [&] { ended = true; });
    ASSERT_TRUE(pair.pump().until([&] { return ended; }));
    EXPECT_TRUE(verdicts.all_ended()) << verdicts.text();
    EXPECT_TRUE(all_are(pair.of_b.bytes, kMark));
  }
}

TEST_P(TransportConformance, Fence_ThenConnectAgainGoesOn) {
  Pair pair = make_pair(make(), make(), kMiB);
  fill(pair.of_b.bytes, 12);
  for (int round = 0; round < 5; ++round) {
    bool fenced = false;
    pair.a->fence(pair.b_of_a, [&] { fenced = true; });
    ASSERT_TRUE(pair.pump().until([&] { return fenced; }));
    pair.b_of_a = pair.a->connect(pair.b->address()).value();
    const GrantId grant = pair.b->grant(pair.of_b.region, 0, kMiB, Access::read).value();
    const RemoteId remote = pair.a->open_remote(pair.b_of_a, pair.b->key(grant)).value();
    std::memset(pair.of_a.bytes.data(), 0, kMiB);
    Verdicts verdicts;
    const Piece all{0, 0, kMiB};
    pair.a->get(remote, pair.of_a.region, {&all, 1}, verdicts.done());
    ASSERT_TRUE(pair.pump().until([&] { return verdicts.all_ended(); }));
    ASSERT_EQ(verdicts.of(Verdict::ok), 1u) << verdicts.text();
    EXPECT_EQ(pair.a->peer_state(pair.b_of_a), PeerState::open);
    EXPECT_TRUE(same(pair.of_a.bytes, pair.of_b.bytes));
  }
  EXPECT_EQ(pair.a->stats().peers_open, 1u);
}

TEST_P(TransportConformance, Fence_FromACompletionIsAnswered) {
  Pair pair = make_pair(make(), make(), kMiB);
  bool fenced = false;
  Verdicts verdicts;
  const Piece all{0, 0, kMiB};
  pair.a->get(pair.readable, pair.of_a.region, {&all, 1}, [&](OpId, Verdict) {
    pair.a->fence(pair.b_of_a, [&] { fenced = true; });
    pair.a->get(pair.readable, pair.of_a.region, {&all, 1}, verdicts.done());
  });
  for (int i = 0; i < 4; ++i)
    pair.a->get(pair.readable, pair.of_a.region, {&all, 1}, verdicts.done());
  ASSERT_TRUE(pair.pump().until([&] { return fenced && verdicts.all_ended(); }));
  EXPECT_EQ(verdicts.given(), 5u);
}

TEST_P(TransportConformance, Destructor_EndsWhatIsOpen) {
  Pair pair = make_pair(make(), make(), 8 * kMiB);
  Verdicts verdicts;
  const Piece all{0, 0, 8 * kMiB};
  for (int i = 0; i < 6; ++i)
    pair.a->get(pair.readable, pair.of_a.region, {&all, 1}, verdicts.done());
  pair.a->progress();
  pair.a.reset();
  EXPECT_TRUE(verdicts.all_ended()) << verdicts.text();
  EXPECT_GE(verdicts.of(Verdict::cancelled), 1u) << verdicts.text();
}

TEST_P(TransportConformance, Close_OfThePeerIsALoss) {
  const std::size_t before = open_descriptors();
  {
    Pair pair = make_pair(make(), make(), 8 * kMiB);
    Verdicts verdicts;
    const Piece all{0, 0, 8 * kMiB};
    const auto round = [&] {
      pair.a->get(pair.readable, pair.of_a.region, {&all, 1}, verdicts.done());
      pair.a->put(pair.writable, pair.of_a.region, {&all, 1}, verdicts.done());
    };
    round();
    ASSERT_TRUE(pair.pump().until([&] { return verdicts.all_ended(); }));
    EXPECT_EQ(verdicts.of(Verdict::ok), 2u) << verdicts.text();
    round();
    pair.a->progress();
    pair.b->progress();
    pair.b.reset();
    const Pump pump({pair.a.get()});
    ASSERT_TRUE(pump.until([&] { return pair.a->peer_state(pair.b_of_a) == PeerState::lost; }));
    ASSERT_TRUE(pump.until([&] { return verdicts.all_ended(); })) << verdicts.text();
    round();
    ASSERT_TRUE(pump.until([&] { return verdicts.all_ended(); })) << verdicts.text();
    EXPECT_GE(verdicts.of(Verdict::peer_lost), 2u) << verdicts.text();  // the last round
    bool fenced = false;
    pair.a->fence(pair.b_of_a, [&] { fenced = true; });
    ASSERT_TRUE(pump.until([&] { return fenced; }));
    EXPECT_EQ(pair.a->stats().ops_open, 0u);
    EXPECT_EQ(pair.a->stats().peers_open, 0u);
  }
  EXPECT_EQ(open_descriptors(), before);
}

/// What happens to the peer process, in which state of things.
enum class State { idle, before_anything, our_get, our_put, its_put };

/// A peer process, and a transport that has it in the given state.
struct Scene {
  PeerProcess process;
  std::unique_ptr<Transport> transport;
  Memory memory;
  PeerId peer;
  Verdicts verdicts;
  Pump pump() const { return Pump({transport.get()}); }
};

void enter(Scene& scene, State state) {
  Transport& a = *scene.transport;
  scene.memory = make_memory(a, PeerProcess::kBytes);
  scene.peer = a.connect(scene.process.address()).value();
  const RemoteId readable = a.open_remote(scene.peer, scene.process.read_key()).value();
  const RemoteId writable = a.open_remote(scene.peer, scene.process.write_key()).value();
  const Piece all{0, 0, PeerProcess::kBytes}, little{0, 0, 1};
  if (state == State::before_anything) return;
  bool answered = false;
  a.get(readable, scene.memory.region, {&little, 1}, [&](OpId, Verdict) { answered = true; });
  ASSERT_TRUE(scene.pump().until([&] { return answered; }));
  if (state == State::our_get)
    for (int i = 0; i < 16; ++i)
      a.get(readable, scene.memory.region, {&all, 1}, scene.verdicts.done());
  if (state == State::our_put)
    for (int i = 0; i < 16; ++i)
      a.put(writable, scene.memory.region, {&all, 1}, scene.verdicts.done());
  if (state == State::its_put) {
    const GrantId grant =
        a.grant(scene.memory.region, 0, PeerProcess::kBytes, Access::write).value();
    std::memset(scene.memory.bytes.data(), 0x77, PeerProcess::kBytes);
    scene.process.write_into(a.address(), a.key(grant), 1000);
    ASSERT_TRUE(scene.pump().until([&] { return !all_are(scene.memory.bytes, kMark); }));
  }
  for (int i = 0; i < 3; ++i) a.progress();
}

TEST_P(TransportConformance, Kill_InEveryStateIsALossAndLeaksNothing) {
  const std::size_t before = open_descriptors();
  for (const State state :
       {State::idle, State::before_anything, State::our_get, State::our_put, State::its_put}) {
    SCOPED_TRACE(static_cast<int>(state));
    Scene scene;
    scene.transport = make();
    enter(scene, state);
    scene.process.signal(SIGKILL);
    scene.process.reap();
    ASSERT_TRUE(scene.pump().until(
        [&] { return scene.transport->peer_state(scene.peer) == PeerState::lost; }));
    ASSERT_TRUE(scene.pump().until([&] { return scene.verdicts.all_ended(); }))
        << scene.verdicts.text();
    EXPECT_EQ(scene.verdicts.of(Verdict::ok) + scene.verdicts.of(Verdict::peer_lost),
              scene.verdicts.given())
        << scene.verdicts.text();
    bool fenced = false;
    scene.transport->fence(scene.peer, [&] {
      fenced = true;
      std::memset(scene.memory.bytes.data(), 0x77, PeerProcess::kBytes);
    });
    ASSERT_TRUE(scene.pump().until([&] { return fenced; }));
    scene.pump().a_while();
    EXPECT_TRUE(all_are(scene.memory.bytes, kMark));
    EXPECT_EQ(scene.transport->stats().ops_open, 0u);
    EXPECT_EQ(scene.transport->stats().peers_open, 0u);
  }
  EXPECT_EQ(open_descriptors(), before);
}

/// The delayed writer between processes: the peer is stopped, fenced, its memory used for something
/// else; then it runs again.
TEST_P(TransportConformance, Stop_InEveryStateIsALossAndTheFenceHolds) {
  const std::size_t before = open_descriptors();
  for (const State state : {State::idle, State::our_get, State::our_put, State::its_put}) {
    SCOPED_TRACE(static_cast<int>(state));
    Scene scene;
    scene.transport = make();
    enter(scene, state);
    scene.process.signal(SIGSTOP);
    if (state != State::its_put) {  // there the owner fences before it knows
      ASSERT_TRUE(scene.pump().until(
          [&] { return scene.transport->peer_state(scene.peer) == PeerState::lost; }));
      ASSERT_TRUE(scene.pump().until([&] { return scene.verdicts.all_ended(); }))
          << scene.verdicts.text();
      EXPECT_EQ(scene.verdicts.of(Verdict::ok) + scene.verdicts.of(Verdict::peer_lost),
                scene.verdicts.given())
          << scene.verdicts.text();
    }
    bool fenced = false;
    scene.transport->fence(scene.peer, [&] {
      fenced = true;
      std::memset(scene.memory.bytes.data(), 0x77, PeerProcess::kBytes);
    });
    ASSERT_TRUE(scene.pump().until([&] { return fenced; }));
    scene.process.signal(SIGCONT);
    if (state == State::its_put) {
      EXPECT_TRUE(scene.pump().until([&] { return scene.process.has_written(); }));
    }
    scene.pump().a_while();
    EXPECT_TRUE(all_are(scene.memory.bytes, kMark));
    EXPECT_EQ(scene.transport->stats().ops_open, 0u);
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace infos::test
