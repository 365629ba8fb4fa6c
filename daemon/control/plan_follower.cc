// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/plan_follower.h"

#include <utility>

namespace infos {

void PlanFollower::on(const FollowerRestored& event, FollowerEffects& out) {
  if (acting_.epoch || !event.plan.epoch) return;
  acting_ = event.plan;
  out.push_back(ActOnPlan{acting_.epoch});
}

void PlanFollower::on(const PlanArrived& event, FollowerEffects& out) {
  if (event.plan.epoch <= acting_.epoch) {
    // The same one is only told again: its acknowledgement was lost.
    out.push_back(ReportHoldings{event.plan.epoch < acting_.epoch ? event.plan.epoch : Epoch{}});
    return;
  }
  if (storing_) {
    const Epoch newest = next_ ? next_->epoch : storing_->epoch;
    if (event.plan.epoch > newest) next_ = event.plan;
    return;
  }
  storing_ = event.plan;
  out.push_back(StorePlan{event.plan});
}

void PlanFollower::on(const PlanStored& event, FollowerEffects& out) {
  if (!storing_ || storing_->epoch != event.epoch) return;
  if (event.error.empty()) {
    acting_ = *std::move(storing_);
    out.push_back(ActOnPlan{acting_.epoch});
  }
  storing_.reset();
  out.push_back(ReportHoldings{});  // not stored: the controller sends it again
  if (next_) on(PlanArrived{*std::exchange(next_, std::nullopt)}, out);
}

void PlanFollower::step(const FollowerEvent& event, FollowerEffects& out) {
  std::visit([&](const auto& e) { on(e, out); }, event);
}

}  // namespace infos
