// SPDX-License-Identifier: Apache-2.0
// Goal: a node never acts on a plan that is older than the last one or not stored. Method: a random
// mix of plans, store answers and restarts, held against the rule.
#include "daemon/control/plan_follower.h"

#include <gtest/gtest.h>

#include "topology/base/rng.h"

namespace infos {
namespace {

Plan plan(std::uint64_t epoch) {
  Plan made;
  made.epoch = Epoch{epoch};
  return made;
}

TEST(PlanFollower, NewPlan_IsStoredThenActedOnThenReported) {
  PlanFollower follower;
  FollowerEffects out;
  follower.step(PlanArrived{plan(3)}, out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(std::get<StorePlan>(out[0]).plan.epoch, Epoch{3});
  EXPECT_EQ(follower.acting().epoch, Epoch{});
  out.clear();
  follower.step(PlanStored{Epoch{3}, ""}, out);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(std::get<ActOnPlan>(out[0]).epoch, Epoch{3});
  EXPECT_EQ(std::get<ReportHoldings>(out[1]).refused, Epoch{});
}

TEST(PlanFollower, OlderPlan_IsRefusedAndSaidSo) {
  PlanFollower follower;
  FollowerEffects out;
  follower.step(FollowerRestored{plan(7)}, out);
  out.clear();
  follower.step(PlanArrived{plan(6)}, out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(std::get<ReportHoldings>(out[0]).refused, Epoch{6});
  EXPECT_EQ(follower.acting().epoch, Epoch{7});
}

TEST(PlanFollower, PlanThatCannotBeStored_IsNotActedOn) {
  PlanFollower follower;
  FollowerEffects out;
  follower.step(PlanArrived{plan(2)}, out);
  out.clear();
  follower.step(PlanStored{Epoch{2}, "the disk is full"}, out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<ReportHoldings>(out[0]));
  EXPECT_EQ(follower.acting().epoch, Epoch{});
}

TEST(PlanFollower, RandomOrder_NeverGoesBackNorActsOnWhatIsNotStored) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    PlanFollower follower;
    std::uint64_t disk = 0, acted = 0;
    std::optional<std::uint64_t> writing;
    for (int i = 0; i < 100; ++i) {
      FollowerEffects out;
      const std::uint64_t what = rng.below(10);
      if (what < 6) {
        follower.step(PlanArrived{plan(1 + rng.below(40))}, out);
      } else if (what < 9 && writing) {
        const std::uint64_t epoch = *std::exchange(writing, std::nullopt);
        const bool stored = rng.chance(0.8);
        if (stored) disk = epoch;
        follower.step(PlanStored{Epoch{epoch}, stored ? "" : "no"}, out);
      } else if (what == 9) {
        follower = PlanFollower();
        writing.reset();
        follower.step(FollowerRestored{plan(disk)}, out);
      }
      for (const FollowerEffect& effect : out) {
        if (const auto* store = std::get_if<StorePlan>(&effect)) {
          ASSERT_FALSE(writing) << "seed " << seed;
          writing = store->plan.epoch.value;
        } else if (const auto* act = std::get_if<ActOnPlan>(&effect)) {
          ASSERT_EQ(act->epoch.value, disk) << "seed " << seed;
          ASSERT_GE(act->epoch.value, acted) << "seed " << seed;
          acted = act->epoch.value;
        }
      }
    }
  }
}

}  // namespace
}  // namespace infos
