// SPDX-License-Identifier: Apache-2.0
// Goal: two daemons get exactly one link, and keep it or lose it as the contract says.
// Method: nets on loopback, each with its own loop and thread; tests wait for events.
#include "tests/peer/peer_support.h"

namespace infos {
namespace {

using test::Authority;
using test::kAnyoneSays;
using test::kControllerSays;
using test::TestNode;

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
}

}  // namespace
}  // namespace infos
