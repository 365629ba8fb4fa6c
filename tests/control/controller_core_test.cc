// SPDX-License-Identifier: Apache-2.0
// Goal: plans give every slot its node, keep what need not change, and no node hears of a plan that
// is not stored; a controller that forgot goes on above what nodes remember. Method: a small world
// of named nodes that feeds events and looks at effects.
#include "daemon/control/controller_core.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "daemon/control/plan_layout.h"

namespace infos {
namespace {

PoolWish pool(WorkerRole role, std::vector<DeviceWish> devices, std::uint32_t replicas = 1) {
  return {role, replicas, std::move(devices), "cpu", {{"block_tokens", "16"}}};
}

PlanWish wish_of(std::vector<PoolWish> pools, const std::string& model = "m") {
  return {"yaml of " + model, {{model, "/models/" + model, 0, std::move(pools)}}};
}

PlanWish split_wish() {
  return wish_of(
      {pool(WorkerRole::prefill, {{"n1", "cpu0", "cpu", {{"cores", "0"}}}}),
       pool(WorkerRole::decode, {{"n2", "cpu0", "cpu", {}}, {"n3", "cpu0", "cpu", {}}})});
}

/// Drives a core; answers PersistPlan only when told to.
class World {
 public:
  explicit World(std::uint64_t term = 1) : core(ControllerConfig{NodeId{1}, term}) {}

  void feed(const ControllerEvent& event) {
    ControllerEffects effects;
    core.step(now, event, effects);
    for (const ControllerEffect& effect : effects) take(effect);
  }
  void store(const std::string& error = "") {
    ASSERT_TRUE(to_store) << "no plan waits for the disk";
    const Epoch epoch = to_store->epoch;
    if (error.empty()) disk = *to_store;
    to_store.reset();
    feed(PlanPersisted{epoch, error});
  }
  void up(std::uint32_t node) {
    feed(MemberJoined{NodeId{node}, "n" + std::to_string(node), ""});
    feed(MemberUp{NodeId{node}});
  }
  void applied(std::uint32_t node, Epoch epoch) {
    feed(MemberReported{NodeId{node}, NodeReport{epoch, {}, {}}});
  }
  WishAnswered wish(const PlanWish& wanted) {
    feed(PlanWished{EffectId{++ids}, wanted});
    if (to_store) store();
    return answers.at(EffectId{ids});
  }
  WishAnswered drain(DrainWish::What what, const std::string& name, bool drained = true) {
    feed(DrainWished{EffectId{++ids}, DrainWish{what, name, drained}});
    if (to_store) store();
    return answers.at(EffectId{ids});
  }
  std::map<NodeId, std::size_t> workers_by_node() const {
    std::map<NodeId, std::size_t> counts;
    for (const PlannedWorker& worker : core.plan().workers) ++counts[worker.node];
    return counts;
  }

  ControllerCore core;
  Time now{1};
  std::uint64_t ids = 0;
  std::optional<Plan> to_store;
  Plan disk;
  std::map<EffectId, WishAnswered> answers;
  std::vector<SendPlan> sent;

 private:
  void take(const ControllerEffect& effect) {
    if (const auto* persist = std::get_if<PersistPlan>(&effect)) {
      ASSERT_FALSE(to_store) << "two plans on their way to the disk";
      ASSERT_GT(persist->plan.epoch, disk.epoch);
      to_store = persist->plan;
    } else if (const auto* send = std::get_if<SendPlan>(&effect)) {
      // The invariant of this core: what a node hears of is on the disk.
      ASSERT_EQ(send->epoch, disk.epoch);
      ASSERT_EQ(core.plan(), disk);
      sent.push_back(*send);
    } else {
      const auto& answered = std::get<WishAnswered>(effect);
      ASSERT_TRUE(answers.emplace(answered.id, answered).second) << "a wish was answered twice";
    }
  }
};

TEST(ControllerCore, Wish_IsStoredBeforeAnyNodeHearsOfIt) {
  World world;
  world.up(1), world.up(2), world.up(3);
  world.feed(PlanWished{EffectId{9}, split_wish()});
  EXPECT_TRUE(world.sent.empty());
  EXPECT_TRUE(world.answers.empty());
  world.store();
  EXPECT_EQ(world.sent.size(), 3u);
  EXPECT_EQ(world.answers.at(EffectId{9}).workers, 3u);
  EXPECT_EQ(world.answers.at(EffectId{9}).error, "");
}

TEST(ControllerCore, Pools_GoWhereTheyAreWished) {
  World world;
  world.up(1), world.up(2), world.up(3);
  world.wish(split_wish());
  const Plan& plan = world.core.plan();
  ASSERT_EQ(plan.workers.size(), 3u);
  EXPECT_EQ(plan.workers[0].role, WorkerRole::prefill);
  EXPECT_EQ(plan.workers[0].node, NodeId{1});
  EXPECT_EQ(plan.workers[0].spec.options.at("cores"), "0");
  EXPECT_EQ(plan.workers[2].node, NodeId{3});
  std::set<WorkerId> ids;
  for (const PlannedWorker& worker : plan.workers) ids.insert(worker.spec.worker);
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_EQ(part_of(plan, NodeId{2}).size(), 1u);
}

TEST(ControllerCore, NodeThatHasNotJoined_IsNotedAndGetsItsPartWhenItComes) {
  World world;
  world.up(1), world.up(2);
  world.wish(split_wish());
  ASSERT_EQ(world.core.plan().workers.size(), 2u);
  ASSERT_EQ(world.core.plan().notes.size(), 1u);
  EXPECT_EQ(world.core.plan().notes[0],
            "decode pool 1 of model m waits for node n3, which has not joined");
  const std::vector<PlannedWorker> before = world.core.plan().workers;
  world.up(3);
  world.store();
  EXPECT_TRUE(world.core.plan().notes.empty());
  ASSERT_EQ(world.core.plan().workers.size(), 3u);
  EXPECT_EQ(world.core.plan().workers[0], before[0]);
  EXPECT_EQ(world.core.plan().workers[1], before[1]);
}

TEST(ControllerCore, AnywherePools_SpreadAndStayWhereTheyAre) {
  World world;
  world.up(1), world.up(2);
  world.wish(wish_of({pool(WorkerRole::aggregated, {}, 4)}));
  EXPECT_EQ(world.workers_by_node(),
            (std::map<NodeId, std::size_t>{{NodeId{1}, 2}, {NodeId{2}, 2}}));
  const std::vector<PlannedWorker> before = world.core.plan().workers;
  world.up(3);
  world.store();
  EXPECT_EQ(world.core.plan().workers, before);
}

TEST(ControllerCore, NodeGoesAndComesBack_NothingIsPlannedAnew) {
  World world;
  world.up(1), world.up(2), world.up(3);
  world.wish(split_wish());
  const Plan before = world.core.plan();
  world.feed(MemberDown{NodeId{2}});
  world.sent.clear();
  world.up(2);
  EXPECT_EQ(world.core.plan(), before);
  ASSERT_EQ(world.sent.size(), 1u);  // it gets its part again
  EXPECT_EQ(world.sent[0].node, NodeId{2});
}

TEST(ControllerCore, NotAcknowledged_IsSentAgainUntilItIs) {
  World world;
  world.up(1);
  world.wish(wish_of({pool(WorkerRole::aggregated, {})}));
  ASSERT_EQ(world.sent.size(), 1u);
  for (std::size_t resends = 1; resends <= 3; ++resends) {
    world.now = world.core.next_deadline();
    ASSERT_NE(world.now, kNever);
    world.feed(ControllerTick{});
    EXPECT_EQ(world.sent.size(), 1 + resends);
  }
  world.applied(1, world.core.plan().epoch);
  EXPECT_EQ(world.core.next_deadline(), kNever);
}

TEST(ControllerCore, DrainedNode_RunsNothingUntilItIsTakenBack) {
  World world;
  world.up(1), world.up(2), world.up(3);
  world.wish(split_wish());
  const std::vector<PlannedWorker> before = world.core.plan().workers;
  EXPECT_EQ(world.drain(DrainWish::What::node, "n3").error, "");
  EXPECT_EQ(world.workers_by_node().count(NodeId{3}), 0u);
  EXPECT_EQ(world.core.plan().notes[0],
            "decode pool 1 of model m waits for node n3, which is drained");
  EXPECT_EQ(world.drain(DrainWish::What::node, "n3", false).error, "");
  EXPECT_EQ(world.workers_by_node().count(NodeId{3}), 1u);
  EXPECT_EQ(world.core.plan().workers[0], before[0]);
  EXPECT_GT(world.core.plan().workers[2].spec.worker, before[2].spec.worker);  // never used again
}

TEST(ControllerCore, DrainedModel_HasNoWorkersAndStaysListed) {
  World world;
  world.up(1);
  world.wish(wish_of({pool(WorkerRole::aggregated, {})}));
  EXPECT_EQ(world.drain(DrainWish::What::model, "m").error, "");
  EXPECT_TRUE(world.core.plan().workers.empty());
  ASSERT_EQ(world.core.plan().models.size(), 1u);
  EXPECT_TRUE(world.core.plan().models[0].drained);
}

TEST(ControllerCore, DrainOfNobody_IsRefusedWithTheNames) {
  World world;
  world.up(1), world.up(2);
  world.wish(split_wish());
  const Epoch epoch = world.core.plan().epoch;
  EXPECT_EQ(world.drain(DrainWish::What::node, "n9").error,
            "there is no node 'n9', want one of: n1, n2");
  EXPECT_EQ(world.core.plan().epoch, epoch);
}

TEST(ControllerCore, PlanThatCannotBeStored_ChangesNothing) {
  World world;
  world.up(1);
  world.wish(wish_of({pool(WorkerRole::aggregated, {})}));
  const Plan before = world.core.plan();
  world.sent.clear();
  world.feed(PlanWished{EffectId{50}, wish_of({pool(WorkerRole::aggregated, {}, 3)})});
  world.feed(PlanWished{EffectId{51}, wish_of({pool(WorkerRole::aggregated, {}, 5)})});
  world.store("the disk is full");
  EXPECT_EQ(world.answers.at(EffectId{50}).error, "the disk is full");
  EXPECT_EQ(world.answers.at(EffectId{51}).error, "the disk is full");
  EXPECT_EQ(world.core.plan(), before);
  EXPECT_TRUE(world.sent.empty());
  // The number is burnt: a write that failed may be on the disk all the same.
  world.wish(wish_of({pool(WorkerRole::aggregated, {}, 2)}));
  EXPECT_GT(world.core.plan().epoch.value, before.epoch.value + 1);
}

TEST(ControllerCore, WishesWhileOneIsStored_AreFulfilledByTheNextPlan) {
  World world;
  world.up(1);
  world.feed(PlanWished{EffectId{1}, wish_of({pool(WorkerRole::aggregated, {}, 1)})});
  world.feed(PlanWished{EffectId{2}, wish_of({pool(WorkerRole::aggregated, {}, 2)})});
  world.feed(PlanWished{EffectId{3}, wish_of({pool(WorkerRole::aggregated, {}, 3)})});
  world.store();
  EXPECT_TRUE(world.answers.contains(EffectId{1}));
  EXPECT_FALSE(world.answers.contains(EffectId{3}));
  world.store();
  EXPECT_EQ(world.answers.at(EffectId{2}).workers, 3u);
  EXPECT_EQ(world.answers.at(EffectId{3}).workers, 3u);
}

TEST(ControllerCore, SameWishAgain_IsAnsweredWithoutANewPlan) {
  World world;
  world.up(1);
  world.wish(wish_of({pool(WorkerRole::aggregated, {})}));
  const Epoch epoch = world.core.plan().epoch;
  EXPECT_EQ(world.wish(wish_of({pool(WorkerRole::aggregated, {})})).epoch, epoch);
}

TEST(ControllerCore, Restart_KeepsPlanDrainsAndIds) {
  World first;
  first.up(1), first.up(2), first.up(3);
  first.wish(split_wish());
  first.drain(DrainWish::What::node, "n3");
  World second(2);
  second.disk = first.disk;
  second.feed(ControllerRestored{first.disk, split_wish()});
  EXPECT_EQ(second.core.plan(), first.disk);
  EXPECT_TRUE(second.sent.empty());
  second.up(2);
  ASSERT_EQ(second.sent.size(), 1u);
  second.drain(DrainWish::What::node, "n3", false);
  EXPECT_EQ(second.core.plan().workers[0], first.disk.workers[0]);
  EXPECT_GT(second.core.plan().epoch, first.disk.epoch);
  EXPECT_EQ(second.core.plan().term, 2u);
}

TEST(ControllerCore, ForgottenState_GoesOnAboveWhatNodesRemember) {
  World world;
  world.up(1);
  world.applied(1, Epoch{40});
  EXPECT_FALSE(world.to_store);  // nothing was wished: it must not stop what runs
  world.wish(wish_of({pool(WorkerRole::aggregated, {})}));
  EXPECT_EQ(world.core.plan().epoch, Epoch{41});
  world.up(2);
  world.store();
  world.applied(2, Epoch{77});
  world.store();
  EXPECT_EQ(world.core.plan().epoch, Epoch{78});
}

}  // namespace
}  // namespace infos
