// SPDX-License-Identifier: Apache-2.0
// PlanFollower decides which plan a node acts on: never an older one than before, and none that is
// not stored. Runs on every node, the controller's too. Pure.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "daemon/control/plan.h"

namespace infos {

// ---- events ----

/// At the start, once: what was stored last.
struct FollowerRestored {
  Plan plan;
};
/// The controller sent a plan.
struct PlanArrived {
  Plan plan;
};
/// The answer to StorePlan. `error` empty: stored.
struct PlanStored {
  Epoch epoch;
  std::string error;
};
using FollowerEvent = std::variant<FollowerRestored, PlanArrived, PlanStored>;

// ---- effects ----

/// Answered by PlanStored.
struct StorePlan {
  Plan plan;
};
/// It is stored: run what it says, which is acting().
struct ActOnPlan {
  Epoch epoch;
};
/// Tell the controller what this node holds. `refused`: an older plan than it acts on.
struct ReportHoldings {
  Epoch refused;
};
using FollowerEffect = std::variant<StorePlan, ActOnPlan, ReportHoldings>;
using FollowerEffects = std::vector<FollowerEffect>;

class PlanFollower {
 public:
  void step(const FollowerEvent& event, FollowerEffects& out);
  /// The plan that is acted on; epoch 0: none.
  const Plan& acting() const { return acting_; }

 private:
  void on(const FollowerRestored& event, FollowerEffects& out);
  void on(const PlanArrived& event, FollowerEffects& out);
  void on(const PlanStored& event, FollowerEffects& out);

  Plan acting_;
  std::optional<Plan> storing_;
  std::optional<Plan> next_;  ///< arrived while another one is being stored
};

}  // namespace infos
