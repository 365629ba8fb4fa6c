// SPDX-License-Identifier: Apache-2.0
// Goal: AgentCore keeps each slot's process as wished through crashes, hangs, slow starts, spec
// changes, and late or double words. Method: scenarios; then random events held against the rules
// that a process life must obey.
#include "daemon/control/agent_core.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "topology/base/rng.h"

namespace infos {
namespace {

struct Agent {
  explicit Agent(const AgentConfig& config = {}) : core(config) {}
  AgentEffects tell(const AgentEvent& event) {
    AgentEffects out;
    core.step(now, event, out);
    return out;
  }
  template <typename T>
  static std::optional<T> one(const AgentEffects& effects) {
    std::optional<T> found;
    for (const AgentEffect& e : effects) {
      const T* t = std::get_if<T>(&e);
      if (!t) continue;
      EXPECT_FALSE(found.has_value());
      found = *t;
    }
    return found;
  }
  AgentEffects wish(const std::string& option = "") { return tell(Desired{{spec(option)}}); }
  static WorkerSpec spec(const std::string& option = "") {
    return {{1}, "m", "/m", "cpu", {{"option", option}}};
  }
  AgentEffects serve(std::uint32_t generation) {
    return tell(WorkerServing{{1}, {generation}, {"m"}});
  }
  AgentEffects exit(std::uint32_t generation, bool permanent = false) {
    return tell(WorkerExited{{1}, {generation}, "signal 9", permanent});
  }
  AgentEffects wait_for_deadline() {
    now = core.next_deadline();
    return tell(AgentTick{});
  }
  std::string phase() const { return core.workers().empty() ? "none" : core.workers()[0].phase; }
  Time now;
  AgentCore core;
};

TEST(AgentCore, Wish_StartsServesAndAnnounces) {
  Agent a;
  EXPECT_EQ(Agent::one<Spawn>(a.wish())->generation, Generation{1});
  EXPECT_EQ(a.phase(), "starting");
  EXPECT_TRUE(a.tell(WorkerSpawned{{1}, {1}}).empty());
  EXPECT_TRUE(Agent::one<AnnounceUp>(a.serve(1)));
  EXPECT_TRUE(a.serve(1).empty()) << "said twice";
  EXPECT_EQ(a.phase(), "serving");
  EXPECT_TRUE(a.wish().empty()) << "the same wish again";
}

TEST(AgentCore, Crash_IsAnnouncedAndRestartedWithGrowingBackOff) {
  Agent a;
  a.wish();
  Duration last{};
  for (std::uint32_t g = 1; g <= 12; ++g) {
    a.serve(g);
    const AgentEffects ended = a.exit(g);
    EXPECT_TRUE(Agent::one<AnnounceDown>(ended));
    EXPECT_EQ(a.phase(), "backing-off");
    const Duration wait = a.core.next_deadline() - a.now;
    const double full = std::min(0.1 * (1U << (g - 1)), 30.0);
    EXPECT_LE(wait.seconds(), full * 1.0001);
    EXPECT_GE(wait.seconds(), full * 0.4999);
    last = wait;
    EXPECT_EQ(Agent::one<Spawn>(a.wait_for_deadline())->generation, Generation{g + 1});
  }
  EXPECT_GE(last.seconds(), 15);
  EXPECT_EQ(a.core.workers()[0].restarts, 12U);
  // A long healthy run resets it.
  a.serve(13);
  for (int i = 0; i < 10; ++i) a.now = a.now + seconds(5), a.tell(WorkerAlive{{1}, {13}});
  a.exit(13);
  EXPECT_LE((a.core.next_deadline() - a.now).seconds(), 0.11);
}

TEST(AgentCore, Silence_KillsAndRestarts) {
  Agent a;
  a.wish();
  a.serve(1);
  a.now = a.now + seconds(29);
  a.tell(WorkerAlive{{1}, {1}});
  a.now = a.now + seconds(29);
  EXPECT_TRUE(a.tell(AgentTick{}).empty());
  const AgentEffects hung = a.wait_for_deadline();
  EXPECT_TRUE(Agent::one<Kill>(hung));
  EXPECT_TRUE(Agent::one<AnnounceDown>(hung)) << "the gateway must not wait for the body";
  EXPECT_TRUE(Agent::one<Kill>(a.wait_for_deadline())) << "again, until it has ended";
  a.exit(1);
  EXPECT_EQ(a.phase(), "backing-off");
  EXPECT_NE(a.core.workers()[0].last_exit.find("signal 9"), std::string::npos);
}

TEST(AgentCore, SlowStart_IsKilledAtItsTimeout) {
  AgentConfig config;
  config.start_timeout = seconds(5);
  Agent a(config);
  a.wish();
  a.now = a.now + seconds(5);
  EXPECT_TRUE(Agent::one<Kill>(a.tell(AgentTick{})));
  EXPECT_TRUE(a.serve(1).empty()) << "too late";
}

TEST(AgentCore, PermanentFailure_StaysFailedUntilTheNextWish) {
  Agent a;
  a.wish();
  a.exit(1, true);
  EXPECT_EQ(a.phase(), "failed");
  EXPECT_EQ(a.core.next_deadline(), kNever);
  EXPECT_EQ(Agent::one<Spawn>(a.wish())->generation, Generation{2}) << "its file may be mended";
  EXPECT_TRUE(a.wish().empty()) << "it is on its way";
  a.exit(2, true);
  EXPECT_EQ(Agent::one<Spawn>(a.wish("new"))->generation, Generation{3});
}

TEST(AgentCore, SpecChange_DrainsTheOldAndStartsTheNewAtOnce) {
  Agent a;
  a.wish("old");
  a.serve(1);
  EXPECT_TRUE(Agent::one<AskStop>(a.wish("new")));
  EXPECT_EQ(a.phase(), "stopping");
  EXPECT_TRUE(a.wish("new").empty());
  const AgentEffects ended = a.exit(1);
  EXPECT_TRUE(Agent::one<AnnounceDown>(ended));
  EXPECT_EQ(Agent::one<Spawn>(ended)->spec, Agent::spec("new"));
  EXPECT_EQ(a.core.workers()[0].restarts, 0U);
}

TEST(AgentCore, DrainThatDoesNotEnd_IsForced) {
  Agent a;
  a.wish("old");
  a.serve(1);
  a.wish("new");
  EXPECT_TRUE(Agent::one<Kill>(a.wait_for_deadline()));
  EXPECT_TRUE(Agent::one<Spawn>(a.exit(1)));
}

TEST(AgentCore, NoLongerWished_StopsAndIsForgottenButItsGenerationIsNot) {
  Agent a;
  a.wish();
  a.serve(1);
  EXPECT_TRUE(Agent::one<AskStop>(a.tell(Desired{})));
  a.exit(1);
  EXPECT_EQ(a.phase(), "none");
  EXPECT_EQ(Agent::one<Spawn>(a.wish())->generation, Generation{2});
}

TEST(AgentCore, WishedAgainWhileStopping_StartsWithoutBackOff) {
  Agent a;
  a.wish();
  a.serve(1);
  a.tell(Desired{});
  a.wish();
  EXPECT_TRUE(Agent::one<Spawn>(a.exit(1)));
}

TEST(AgentCore, SpawnFailure_BacksOff) {
  Agent a;
  a.wish();
  EXPECT_TRUE(a.tell(SpawnFailed{{1}, {1}, "no memory"}).empty());
  EXPECT_EQ(a.phase(), "backing-off");
  EXPECT_EQ(a.core.workers()[0].last_exit, "no memory");
  EXPECT_TRUE(a.exit(1).empty()) << "one end is enough";
  EXPECT_TRUE(Agent::one<Spawn>(a.wait_for_deadline()));
}

TEST(AgentCore, OldGenerations_AreNotHeard) {
  Agent a;
  a.wish();
  a.exit(1);
  a.wait_for_deadline();
  EXPECT_TRUE(a.serve(1).empty());
  EXPECT_TRUE(a.exit(1).empty());
  EXPECT_EQ(a.phase(), "starting");
  EXPECT_TRUE(a.tell(WorkerServing{{9}, {1}, {}}).empty());
}

/// Rules: one process per slot at a time, generations only grow, Up and Down alternate, nothing is
/// said to the dead.
TEST(AgentCore, RandomEvents_KeepTheRulesOfAProcessLife) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    Agent a;
    std::map<std::uint64_t, std::uint32_t> living, last;
    std::set<std::uint64_t> believed;
    for (int i = 0; i < 400; ++i) {
      a.now = rng.chance(0.3) && a.core.next_deadline() != kNever
                  ? std::max(a.now, a.core.next_deadline())
                  : a.now + milliseconds(static_cast<std::int64_t>(rng.below(3000)));
      const std::uint64_t w = 1 + rng.below(3);
      const Generation g{rng.chance(0.8) ? last[w] : static_cast<std::uint32_t>(rng.below(5))};
      AgentEvent event = AgentTick{};
      switch (rng.below(9)) {
        case 0: {
          Desired wish;
          for (std::uint64_t s = 1; s <= 3; ++s) {
            if (rng.chance(0.8))
              wish.workers.push_back(
                  {{s}, "m", "/m", "cpu", {{"v", std::to_string(rng.below(2))}}});
          }
          event = wish;
          break;
        }
        case 1:
          event = WorkerSpawned{{w}, g};
          break;
        case 2:
          event = WorkerServing{{w}, g, {}};
          break;
        case 3:
        case 4:
          event = WorkerAlive{{w}, g};
          break;
        case 5:
        case 6:
          event = WorkerExited{{w}, g, "x", rng.chance(0.1)};
          break;
        case 7:
          event = SpawnFailed{{w}, g, "x"};
          break;
        default:
          break;
      }
      const auto* exited = std::get_if<WorkerExited>(&event);
      const auto* failed = std::get_if<SpawnFailed>(&event);
      if ((exited || failed) && living[w] == g.value) living[w] = 0;
      for (const AgentEffect& e : a.tell(event)) {
        if (const auto* spawn = std::get_if<Spawn>(&e)) {
          const std::uint64_t slot = spawn->spec.worker.value;
          EXPECT_EQ(living[slot], 0U);
          EXPECT_GT(spawn->generation.value, last[slot]);
          living[slot] = last[slot] = spawn->generation.value;
          EXPECT_FALSE(believed.contains(slot));
        }
        if (const auto* up = std::get_if<AnnounceUp>(&e)) {
          EXPECT_TRUE(believed.insert(up->worker.value).second);
          EXPECT_EQ(living[up->worker.value], up->generation.value);
        }
        if (const auto* down = std::get_if<AnnounceDown>(&e)) {
          EXPECT_EQ(believed.erase(down->worker.value), 1U);
        }
        if (const auto* stop = std::get_if<AskStop>(&e)) {
          EXPECT_EQ(living[stop->worker.value], stop->generation.value);
        }
        if (const auto* kill = std::get_if<Kill>(&e)) {
          EXPECT_EQ(living[kill->worker.value], kill->generation.value);
        }
      }
      EXPECT_GE(a.core.next_deadline(), a.now) << "a deadline that has passed would spin";
    }
  }
}

}  // namespace
}  // namespace infos
