// SPDX-License-Identifier: Apache-2.0
// Goal: two daemons get exactly one link, and keep it or lose it as the contract says.
// Method: nets on loopback, each with its own loop and thread; tests wait for events.
#include <gmock/gmock.h>

#include "tests/peer/cut_proxy.h"
#include "tests/peer/peer_support.h"

namespace infos {
namespace {

using test::Authority;
using test::CutProxy;
using test::kAnyoneSays;
using test::kControllerSays;
using test::TestNode;
using testing::HasSubstr;
using testing::StartsWith;

/// Limits so short that a test does not wait long for a silent peer.
LivenessLimits quick() { return {milliseconds(10), milliseconds(60), milliseconds(200)}; }

TEST(PeerNet, TwoNodes_ExchangeFramesInOrder) {
  const Authority lab;
  TestNode one(lab.options(1)), two(lab.options(2));
  two.dial(1, one.port());
  ASSERT_TRUE(one.saw("up 2/1"));
  ASSERT_TRUE(two.saw("up 1/1"));
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(one.send(2, kAnyoneSays, "to two " + std::to_string(i)).ok());
    ASSERT_TRUE(two.send(1, kAnyoneSays, "to one " + std::to_string(i)).ok());
  }
  ASSERT_TRUE(one.saw("said 2/100: ", 100));
  ASSERT_TRUE(two.saw("said 1/100: ", 100));
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(one.events()[1 + i], "said 2/100: to one " + std::to_string(i));
    EXPECT_EQ(two.events()[1 + i], "said 1/100: to two " + std::to_string(i));
  }
  EXPECT_EQ(one.row(2).frames_in, 100u);
  EXPECT_EQ(one.row(2).frames_out, 100u);
}

TEST(PeerNet, LargeFrame_ArrivesWhole) {
  const Authority lab;
  TestNode one(lab.options(1)), two(lab.options(2));
  one.dial(2, two.port());
  ASSERT_TRUE(one.saw("up 2/1"));
  const std::string payload(kPeerFrameBytesMax, 'x');
  ASSERT_TRUE(one.send(2, kAnyoneSays, payload).ok());
  ASSERT_TRUE(two.saw("said 1/100: xxx"));
  EXPECT_EQ(two.row(1).bytes_in, payload.size());
  EXPECT_EQ(one.send(2, kAnyoneSays, payload + "x").error().code, ErrorCode::invalid_argument);
}

TEST(PeerNet, SendWithoutALink_IsUnavailable) {
  const Authority lab;
  TestNode one(lab.options(1));
  EXPECT_EQ(one.send(2, kAnyoneSays, "x").error().code, ErrorCode::unavailable);
}

TEST(PeerNet, BothDialAtOnce_GetOneLinkAndKeepIt) {
  const Authority lab;
  for (int round = 0; round < 10; ++round) {
    TestNode one(lab.options(1)), two(lab.options(2));
    one.pause();
    two.pause();
    one.net().set_peers({{NodeId{2}, "127.0.0.1:" + std::to_string(two.port())}});
    two.net().set_peers({{NodeId{1}, "127.0.0.1:" + std::to_string(one.port())}});
    one.resume();
    two.resume();
    ASSERT_TRUE(one.saw("up 2/1"));
    ASSERT_TRUE(two.saw("up 1/1"));
    ASSERT_TRUE(one.send(2, kAnyoneSays, "a").ok());
    ASSERT_TRUE(two.send(1, kAnyoneSays, "b").ok());
    ASSERT_TRUE(one.saw("said 2/100: b"));
    ASSERT_TRUE(two.saw("said 1/100: a"));
    EXPECT_EQ(one.events().size(), 2u);
    EXPECT_EQ(two.events().size(), 2u);
  }
}

TEST(PeerNet, ThreeNodes_FormAMesh) {
  const Authority lab;
  TestNode one(lab.options(1)), two(lab.options(2)), three(lab.options(3));
  const auto at = [](TestNode& node) { return "127.0.0.1:" + std::to_string(node.port()); };
  const std::vector<PeerAddress> all = {
      {NodeId{1}, at(one)}, {NodeId{2}, at(two)}, {NodeId{3}, at(three)}};
  for (TestNode* node : {&one, &two, &three})
    node->with([&](PeerNet& net) { net.set_peers(all); });  // its own address is passed over
  ASSERT_TRUE(one.saw("up ", 2) && two.saw("up ", 2) && three.saw("up ", 2));
  ASSERT_TRUE(three.send(1, kAnyoneSays, "hi").ok());
  ASSERT_TRUE(one.saw("said 3/100: hi"));
}

TEST(PeerNet, PeerThatEnds_IsDownAtOnceAndIsDialledAgain) {
  const Authority lab;
  const PeerNetOptions options = lab.options(2);
  TestNode one(lab.options(1));
  auto two = std::make_unique<TestNode>(options);
  const std::uint16_t port = two->port();
  one.dial(2, port);
  ASSERT_TRUE(one.saw("up 2/1"));
  two.reset();
  ASSERT_TRUE(one.saw("down 2: "));
  PeerNetOptions restarted = options;
  restarted.incarnation = 2;
  two = std::make_unique<TestNode>(restarted);
  one.dial(2, two->port());
  ASSERT_TRUE(one.saw("up 2/2"));
}

TEST(PeerNet, RestartedPeer_ReplacesItsHangingLinkAtOnce) {
  // The limits of silence are a minute here: only the incarnation can tell.
  const Authority lab;
  const PeerNetOptions options = lab.options(2);
  TestNode one(lab.options(1));
  TestNode old(options);
  old.dial(1, one.port());
  ASSERT_TRUE(one.saw("up 2/1"));
  old.pause();
  PeerNetOptions restarted = options;
  restarted.incarnation = 2;
  TestNode fresh(restarted);
  fresh.dial(1, one.port());
  ASSERT_TRUE(one.saw("up 2/2"));
  const auto events = one.events();
  EXPECT_EQ(events.at(1), "down 2: it restarted as incarnation 2");
  // The old process wakes up: it lost its link and may not come back.
  old.resume();
  ASSERT_TRUE(old.saw("down 1: "));
  ASSERT_TRUE(one.until([&](PeerNet& net) { return net.totals().refused >= 1; }));
  EXPECT_EQ(one.events().size(), 3u);
}

TEST(PeerNet, RestartOfTheNodeWithTheLargerId_IsSeenByTheSmallerToo) {
  const Authority lab;
  const PeerNetOptions options = lab.options(1);
  TestNode two(lab.options(2));
  TestNode old(options);
  old.dial(2, two.port());
  ASSERT_TRUE(two.saw("up 1/1"));
  old.pause();
  PeerNetOptions restarted = options;
  restarted.incarnation = 2;
  TestNode fresh(restarted);
  fresh.dial(2, two.port());
  ASSERT_TRUE(two.saw("up 1/2"));
  EXPECT_EQ(two.events().at(1), "down 1: it restarted as incarnation 2");
}

TEST(PeerNet, StalledPeer_IsSuspectThenDownAndComesBack) {
  const Authority lab;
  PeerNetOptions options = lab.options(1);
  options.liveness = quick();
  TestNode one(options);
  TestNode two(lab.options(2));
  one.dial(2, two.port());
  ASSERT_TRUE(one.saw("up 2/1"));
  two.pause();
  ASSERT_TRUE(one.saw("down 2: "));
  const auto events = one.events();
  EXPECT_NE(std::find(events.begin(), events.end(), "suspect 2"), events.end());
  EXPECT_THAT(events.back(), HasSubstr(" ms"));
  EXPECT_GE(one.totals().silent_cut, 1u);
  two.resume();
  ASSERT_TRUE(one.saw("up 2/1", 2));
}

/// One direction of the path swallows bytes: both ends must give the link up.
void expect_both_down(CutProxy::Direction swallowed) {
  const Authority lab;
  PeerNetOptions first = lab.options(1), second = lab.options(2);
  first.liveness = second.liveness = quick();
  TestNode one(first), two(second);
  CutProxy proxy(two.port());
  one.dial(2, proxy.port());
  ASSERT_TRUE(one.saw("up 2/1"));
  ASSERT_TRUE(two.saw("up 1/1"));
  proxy.swallow(swallowed);
  EXPECT_TRUE(one.saw("down 2: "));
  EXPECT_TRUE(two.saw("down 1: "));
}
TEST(PeerNet, BytesLostOnTheWayThere_EndTheLinkOnBothSides) {
  expect_both_down(CutProxy::Direction::to_server);
}
TEST(PeerNet, BytesLostOnTheWayBack_EndTheLinkOnBothSides) {
  expect_both_down(CutProxy::Direction::to_client);
}

TEST(PeerNet, HalfOpenLink_IsReplacedWhenThePeerDialsAgain) {
  // Node 2 sees a reset, node 1 sees nothing for a minute: node 2's word must do.
  const Authority lab;
  TestNode one(lab.options(1)), two(lab.options(2));
  CutProxy proxy(one.port());
  two.dial(1, proxy.port());
  ASSERT_TRUE(one.saw("up 2/1"));
  ASSERT_TRUE(two.saw("up 1/1"));
  proxy.reset_clients();
  ASSERT_TRUE(two.saw("down 1: "));
  ASSERT_TRUE(two.saw("up 1/1", 2));
  ASSERT_TRUE(one.saw("up 2/1", 2));
  EXPECT_EQ(one.events().at(1), "down 2: it lost the link");
}

TEST(PeerNet, PeerThatDoesNotRead_IsCutAtTheBound) {
  const Authority lab;
  PeerNetOptions options = lab.options(1);
  options.unsent_bytes_max = 1u << 20;
  TestNode one(options), two(lab.options(2));
  one.dial(2, two.port());
  ASSERT_TRUE(one.saw("up 2/1"));
  ASSERT_TRUE(two.saw("up 1/1"));
  two.pause();
  const std::string payload(64u << 10, 'x');
  Status sent;
  std::uint64_t most = 0;
  for (int i = 0; i < 10000 && sent.ok(); ++i) {
    sent = one.send(2, kAnyoneSays, payload);
    most = std::max(most, one.row(2).unsent_bytes);
  }
  ASSERT_FALSE(sent.ok());
  EXPECT_EQ(sent.error().code, ErrorCode::resource_exhausted);
  EXPECT_LE(most, options.unsent_bytes_max + 4096);
  ASSERT_TRUE(one.saw("down 2: it leaves "));
  EXPECT_EQ(one.totals().slow_cut, 1u);
}

TEST(PeerNet, WhatTheRoleMayNotSay_CutsTheLink) {
  const Authority lab;
  TestNode controller(lab.options(1, {Role::controller})), decode(lab.options(2, {Role::decode}));
  decode.dial(1, controller.port());
  ASSERT_TRUE(decode.saw("up 1/1"));
  ASSERT_TRUE(controller.send(2, kControllerSays, "a plan").ok());
  ASSERT_TRUE(decode.saw("said 1/101: a plan"));
  ASSERT_TRUE(decode.send(1, kControllerSays, "a plan of mine").ok());
  ASSERT_TRUE(controller.saw(
      "down 2: frame of kind 101 is for the roles controller, its roles are decode"));
  ASSERT_TRUE(decode.saw("down 1: it refused: frame of kind 101 is for the roles controller"));
  EXPECT_EQ(controller.totals().violations, 1u);
  for (const std::string& event : controller.events()) EXPECT_THAT(event, Not(StartsWith("said")));
  // Not at once back in.
  ASSERT_TRUE(controller.until([](PeerNet& net) { return net.totals().refused >= 1; }));
  EXPECT_FALSE(controller.with([](PeerNet& net) { return net.is_up(NodeId{2}); }));
}

TEST(PeerNet, UnknownKind_CutsTheLink) {
  const Authority lab;
  PeerNetOptions newer = lab.options(2);
  TestNode one(lab.options(1)), two(newer);
  two.dial(1, one.port());
  ASSERT_TRUE(two.saw("up 1/1"));
  ASSERT_TRUE(two.send(1, 999, "new").ok());
  ASSERT_TRUE(one.saw("down 2: frame of kind 999 is not known here"));
}

TEST(PeerNet, Cut_EndsTheLinkAndItComesBack) {
  const Authority lab;
  TestNode one(lab.options(1)), two(lab.options(2));
  two.dial(1, one.port());
  ASSERT_TRUE(one.saw("up 2/1"));
  one.with([](PeerNet& net) { net.cut(NodeId{2}, "by hand"); });
  ASSERT_TRUE(one.saw("down 2: by hand"));
  ASSERT_TRUE(one.saw("up 2/1", 2));
}

TEST(PeerNet, RoundTrip_IsMeasured) {
  const Authority lab;
  TestNode one(lab.options(1)), two(lab.options(2));
  two.dial(1, one.port());
  ASSERT_TRUE(one.saw("up 2/1"));
  EXPECT_TRUE(one.until([](PeerNet& net) { return net.peers().at(0).round_trip > Duration{0}; }));
}

}  // namespace
}  // namespace infos
