// SPDX-License-Identifier: Apache-2.0
// Goal: silence in either direction is noticed within its limit, and nobody is blamed for a pause
// of this process.
// Method: the pure rule under a clock that the test moves.
#include "daemon/runtime/peer/liveness.h"

#include <gtest/gtest.h>

#include <deque>

namespace infos {
namespace {

using Verdict = Liveness::Verdict;

Time at(std::int64_t ms) { return Time{} + milliseconds(ms); }

/// A peer whose bytes reach us, and whom our pings reach, or not, from a moment on.
struct Course {
  std::int64_t deaf_from = std::int64_t{1} << 40;   ///< it no longer answers pings
  std::int64_t mute_from = std::int64_t{1} << 40;   ///< nothing of it comes
  std::int64_t pause_from = std::int64_t{1} << 40;  ///< this process stands still for pause_for
  std::int64_t pause_for = 0;

  /// The first time with this verdict, in ms; -1: never within 5 s.
  std::int64_t first(Verdict wanted) const {
    Liveness liveness({}, at(0));
    for (std::int64_t now = 100; now <= 5000; now += 100) {
      if (now > pause_from && now <= pause_from + pause_for) continue;
      if (now < mute_from && now != pause_from + pause_for + 100) liveness.heard(at(now));
      if (liveness.tick(at(now)) == wanted) return now;
      const std::uint64_t ping = liveness.ping(at(now));
      if (now < deaf_from && now < mute_from) liveness.pong(ping, at(now + 1));
    }
    return -1;
  }
};

TEST(Liveness, AliveInBothDirections_IsNeverSuspect) {
  EXPECT_EQ(Course{}.first(Verdict::suspect), -1);
}

TEST(Liveness, Silence_IsSuspectThenDown) {
  Course run;
  run.mute_from = 1000;
  EXPECT_EQ(run.first(Verdict::suspect), 1200);  // heard last at 900
  EXPECT_EQ(run.first(Verdict::down), 1900);
}

TEST(Liveness, OneWay_PingsWithoutAnswerAreAsBadAsSilence) {
  Course run;
  run.deaf_from = 1000;
  EXPECT_EQ(run.first(Verdict::suspect), 1300);  // asked first at 1000
  EXPECT_EQ(run.first(Verdict::down), 2000);
}

TEST(Liveness, PauseOfThisProcess_BlamesNobody) {
  Course run;
  run.pause_from = 1000;
  run.pause_for = 3000;
  EXPECT_EQ(run.first(Verdict::suspect), -1);
}

TEST(Liveness, PeerThatDiesDuringAPause_IsStillFound) {
  Course run;
  run.pause_from = 1000;
  run.pause_for = 1000;
  run.mute_from = 1000;
  const std::int64_t down = run.first(Verdict::down);
  EXPECT_GT(down, 2000);
  EXPECT_LE(down, 3100);
}

TEST(Liveness, WhatIsWaitingBehindData_IsNoSilence) {
  Liveness liveness({}, at(0));
  for (std::int64_t now = 100; now <= 3000; now += 100) {
    liveness.heard(at(now));
    liveness.taken(at(now));  // the peer's system takes bytes all the time
    EXPECT_EQ(liveness.tick(at(now)), Verdict::alive);
    liveness.ping(at(now));
  }
  EXPECT_NE(liveness.pong(30, at(3001)), std::nullopt);
  EXPECT_EQ(liveness.pong(30, at(3002)), std::nullopt);  // answered before
  EXPECT_EQ(liveness.pong(99, at(3002)), std::nullopt);  // never asked
}

TEST(Liveness, PongOfALaterPing_AnswersTheEarlierOnes) {
  Liveness liveness({}, at(0));
  for (int i = 0; i < 5; ++i) liveness.ping(at(10 * i));
  EXPECT_EQ(liveness.pong(5, at(50)), milliseconds(10));
  EXPECT_EQ(liveness.pong(2, at(50)), std::nullopt);
}

TEST(Backoff, Doubles_WithinItsBounds) {
  Backoff backoff(milliseconds(50), seconds(2), 1);
  std::int64_t base = 50;
  for (int i = 0; i < 12; ++i) {
    const Duration wait = backoff.next();
    EXPECT_GE(wait, milliseconds(base) * 1 - milliseconds(base / 2));
    EXPECT_LE(wait, milliseconds(base + base / 2));
    base = std::min<std::int64_t>(2000, base * 2);
  }
  backoff.reset();
  EXPECT_LE(backoff.next(), milliseconds(75));
}

TEST(Backoff, TwoSeeds_DoNotWaitAlike) {
  Backoff one(seconds(1), seconds(1), 1), two(seconds(1), seconds(1), 2);
  EXPECT_NE(one.next().ns, two.next().ns);
}

}  // namespace
}  // namespace infos
