// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/controller_core.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "daemon/control/plan_layout.h"

namespace infos {
namespace {

struct Member {
  bool up = false;
  Epoch applied;
  std::uint64_t running = 0;
  Time resend_at = kNever;
};

struct NodeFacts {
  std::string name;
  std::string address;
  friend bool operator==(const NodeFacts&, const NodeFacts&) = default;
};

/// Everything that a plan is made of.
struct Wanted {
  std::optional<PlanWish> wish;  ///< none: nothing was ever wished, and no plan is made
  std::map<NodeId, NodeFacts> nodes;
  std::set<std::string> drained_nodes;
  std::set<std::string> drained_models;
};

/// A plan on its way to the disk.
struct Storing {
  Plan plan;
  Wanted wanted;
  std::vector<EffectId> answers;
};

bool same_but_number(Plan a, const Plan& b) {
  a.epoch = b.epoch;
  a.term = b.term;
  return a == b;
}

}  // namespace

struct ControllerCore::State {
  explicit State(const ControllerConfig& given) : config(given) {}

  void on(const ControllerRestored& event, ControllerEffects& out);
  void on(const PlanWished& event, ControllerEffects& out);
  void on(const DrainWished& event, ControllerEffects& out);
  void on(const MemberJoined& event, ControllerEffects& out);
  void on(const MemberUp& event, ControllerEffects& out);
  void on(const MemberDown& event, ControllerEffects& out);
  void on(const MemberReported& event, ControllerEffects& out);
  void on(const PlanPersisted& event, ControllerEffects& out);
  void on(const ControllerTick&, ControllerEffects&) {}

  void replan(ControllerEffects& out);
  Plan draw() const;
  std::string refuse(const DrainWish& wish) const;
  void send(NodeId node, Member& member, ControllerEffects& out);
  void expire(ControllerEffects& out);
  void answer(const std::vector<EffectId>& ids, const std::string& error, ControllerEffects& out);

  ControllerConfig config;
  Time now{INT64_MIN};
  Plan plan;      ///< stored
  Wanted stored;  ///< what `plan` was made of
  Wanted wanted;
  std::optional<Storing> storing;
  std::vector<EffectId> unanswered;  ///< wishes that the next plan fulfils
  Epoch highest;                     ///< given out or heard of
  Time retry_at = kNever;            ///< of a plan that could not be stored
  std::map<NodeId, Member> members;
};

void ControllerCore::State::on(const ControllerRestored& event, ControllerEffects& out) {
  if (plan.epoch || storing || !event.plan.epoch) return;
  plan = event.plan;
  highest = std::max(highest, plan.epoch);
  wanted.wish = event.wish;
  for (const PlannedNode& node : plan.nodes) {
    wanted.nodes.try_emplace(node.node, NodeFacts{node.name, node.address});
    if (node.drained) wanted.drained_nodes.insert(node.name);
    members.try_emplace(node.node);
  }
  for (const PlannedModel& model : plan.models)
    if (model.drained) wanted.drained_models.insert(model.name);
  stored = wanted;
  for (auto& [id, member] : members) send(id, member, out);
}

void ControllerCore::State::on(const PlanWished& event, ControllerEffects& out) {
  wanted.wish = event.wish;
  // A drain outlives an apply, unless the model is gone.
  std::erase_if(wanted.drained_models, [&](const std::string& name) {
    return std::ranges::find(event.wish.models, name, &ModelWish::name) == event.wish.models.end();
  });
  unanswered.push_back(event.id);
  replan(out);
}

/// Why a drain cannot be done; empty: it can.
std::string ControllerCore::State::refuse(const DrainWish& wish) const {
  if (!wanted.wish) return "there is no plan yet: apply a spec first";
  std::string names;
  const auto known = [&](const std::string& name) {
    names += (names.empty() ? "" : ", ") + name;
    return name == wish.name;
  };
  bool found = false;
  if (wish.what == DrainWish::What::node)
    for (const auto& [id, facts] : wanted.nodes) found |= known(facts.name);
  else
    for (const ModelWish& model : wanted.wish->models) found |= known(model.name);
  if (found) return "";
  return std::string("there is no ") + (wish.what == DrainWish::What::node ? "node" : "model") +
         " '" + wish.name + "', want one of: " + names;
}

void ControllerCore::State::on(const DrainWished& event, ControllerEffects& out) {
  std::string error = refuse(event.wish);
  std::set<std::string>& set =
      event.wish.what == DrainWish::What::node ? wanted.drained_nodes : wanted.drained_models;
  if (error.empty() && event.wish.drained && set.size() >= config.drains_max)
    error = std::to_string(set.size()) + " are drained already";
  if (!error.empty()) return answer({event.id}, error, out);
  if (event.wish.drained)
    set.insert(event.wish.name);
  else
    set.erase(event.wish.name);
  unanswered.push_back(event.id);
  replan(out);
}

void ControllerCore::State::on(const MemberJoined& event, ControllerEffects& out) {
  members.try_emplace(event.node);
  NodeFacts& facts = wanted.nodes[event.node];
  const NodeFacts before = std::exchange(facts, {event.name, event.address});
  if (facts != before) replan(out);
}

void ControllerCore::State::on(const MemberUp& event, ControllerEffects& out) {
  const auto found = members.find(event.node);
  if (found == members.end()) return;
  found->second.up = true;
  found->second.applied = Epoch{};  // until it says so itself
  send(event.node, found->second, out);
}

void ControllerCore::State::on(const MemberDown& event, ControllerEffects&) {
  const auto found = members.find(event.node);
  if (found == members.end()) return;
  found->second.up = false;
  found->second.running = 0;
  found->second.resend_at = kNever;
}

void ControllerCore::State::on(const MemberReported& event, ControllerEffects& out) {
  const auto found = members.find(event.node);
  if (found == members.end() || !found->second.up) return;
  Member& member = found->second;
  member.applied = event.report.applied;
  member.running = event.report.workers.size();
  if (member.applied == plan.epoch) member.resend_at = kNever;
  // This controller has forgotten plans that a node remembers: go on above them.
  if (member.applied > highest) {
    highest = member.applied;
    replan(out);
  } else if (member.applied < plan.epoch && member.resend_at == kNever) {
    send(event.node, member, out);
  }
}

Plan ControllerCore::State::draw() const {
  Grounds grounds;
  for (const auto& [id, facts] : wanted.nodes)
    grounds.nodes.push_back(
        {id, facts.name, wanted.drained_nodes.contains(facts.name), facts.address});
  grounds.drained_models = wanted.drained_models;
  return lay_out(*wanted.wish, grounds, plan);
}

/// Makes the next plan, unless one is being stored: then that one's end makes it.
void ControllerCore::State::replan(ControllerEffects& out) {
  if (storing || !wanted.wish) return;
  Plan next = draw();
  const bool overtaken = highest > plan.epoch;
  if (plan.epoch && !overtaken && same_but_number(next, plan)) {
    answer(std::exchange(unanswered, {}), "", out);
    return;
  }
  next.epoch = Epoch{highest.value + 1};
  next.term = config.term;
  highest = next.epoch;
  retry_at = kNever;
  storing = Storing{next, wanted, std::exchange(unanswered, {})};
  out.push_back(PersistPlan{std::move(next)});
}

void ControllerCore::State::on(const PlanPersisted& event, ControllerEffects& out) {
  if (!storing || storing->plan.epoch != event.epoch) return;
  Storing done = *std::move(storing);
  storing.reset();
  if (!event.error.empty()) {
    const std::map<NodeId, NodeFacts> nodes = wanted.nodes;
    wanted = stored;  // what cannot be stored was not wished
    wanted.nodes = nodes;
    answer(done.answers, event.error, out);
    answer(std::exchange(unanswered, {}), event.error, out);
    retry_at = now + config.resend_after;
    return;
  }
  plan = std::move(done.plan);
  stored = std::move(done.wanted);
  answer(done.answers, "", out);
  for (auto& [id, member] : members) send(id, member, out);
  replan(out);
}

void ControllerCore::State::send(NodeId node, Member& member, ControllerEffects& out) {
  if (!member.up || !plan.epoch || member.applied >= plan.epoch) return;
  member.resend_at = now + config.resend_after;
  out.push_back(SendPlan{node, plan.epoch});
}

void ControllerCore::State::expire(ControllerEffects& out) {
  for (auto& [id, member] : members) {
    if (member.resend_at > now) continue;
    member.resend_at = kNever;
    send(id, member, out);
  }
  if (retry_at > now) return;
  retry_at = kNever;
  replan(out);
}

void ControllerCore::State::answer(const std::vector<EffectId>& ids, const std::string& error,
                                   ControllerEffects& out) {
  for (const EffectId id : ids)
    out.push_back(WishAnswered{id, plan.epoch, plan.workers.size(), error});
}

ControllerCore::ControllerCore(const ControllerConfig& config)
    : state_(std::make_unique<State>(config)) {}
ControllerCore::~ControllerCore() = default;
ControllerCore::ControllerCore(ControllerCore&&) noexcept = default;
ControllerCore& ControllerCore::operator=(ControllerCore&&) noexcept = default;

void ControllerCore::step(Time now, const ControllerEvent& event, ControllerEffects& out) {
  state_->now = std::max(state_->now, now);
  std::visit([&](const auto& e) { state_->on(e, out); }, event);
  state_->expire(out);
}

Time ControllerCore::next_deadline() const {
  Time next = state_->retry_at;
  for (const auto& [id, member] : state_->members) next = std::min(next, member.resend_at);
  return next;
}

const Plan& ControllerCore::plan() const { return state_->plan; }

std::vector<MemberStatus> ControllerCore::members() const {
  std::vector<MemberStatus> rows;
  for (const auto& [id, member] : state_->members) {
    const NodeFacts& facts = state_->wanted.nodes[id];
    const auto planned = std::ranges::count(state_->plan.workers, id, &PlannedWorker::node);
    rows.push_back({id, facts.name, member.up, state_->wanted.drained_nodes.contains(facts.name),
                    member.applied, static_cast<std::uint64_t>(planned), member.running});
  }
  return rows;
}

}  // namespace infos
