// SPDX-License-Identifier: Apache-2.0
// lay_out: gives every wished slot a node and an id. Slots that were planned before stay where they
// are under the same id, so that an unchanged worker is not restarted. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "daemon/control/plan.h"
#include "daemon/control/plan_wish.h"

namespace infos {

/// What may be used, and what may not.
struct Grounds {
  std::vector<PlannedNode> nodes;  ///< every node that has joined, in the order of their ids
  std::set<std::string> drained_models;
};

/// Epoch and term are the caller's to set. What cannot be placed is in the plan's notes.
Plan lay_out(const PlanWish& wish, const Grounds& grounds, const Plan& previous);

}  // namespace infos
