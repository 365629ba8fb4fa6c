// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/cluster_controller.h"

#include <fmt/format.h>

#include <chrono>
#include <deque>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/control/codec_peer.h"
#include "daemon/runtime/clock.h"
#include "daemon/runtime/store_wait.h"
#include "topology/base/log.h"

namespace infos {
namespace {

constexpr const char* kPlanKey = "plan/current";
constexpr const char* kMemberPrefix = "member/";

std::string member_key(NodeId node) { return fmt::format("{}{:05}", kMemberPrefix, node.value); }

/// A member is stored as a plan that has nothing but it, so that there is one codec.
std::string encode_member(const PlannedNode& member) {
  Plan one;
  one.nodes.push_back(member);
  return encode_plan(one);
}

Result<PlannedNode> decode_member(const StoredValue& row) {
  Plan one = INFOS_TRY(decode_plan(row.value));
  if (one.nodes.size() != 1 || !one.nodes[0].node)
    return Error{ErrorCode::corrupt, fmt::format("state: {} is no member", row.key)};
  return one.nodes[0];
}

}  // namespace

struct ClusterController::State : std::enable_shared_from_this<ClusterController::State> {
  State(boost::asio::io_context& context, StateStore& s, const ControllerConfig& config, Ports p)
      : io(context), store(s), core(config), ports(std::move(p)), timer(context) {}

  void feed(ControllerEvent event);
  void perform(ControllerEffect& effect);
  void persist(const Plan& plan);
  void arm();
  Status restore_members(const PlannedNode& self);

  boost::asio::io_context& io;
  StateStore& store;
  ControllerCore core;
  Ports ports;
  boost::asio::steady_timer timer;
  Time armed = kNever;
  std::deque<ControllerEvent> events;
  bool stepping = false;
  std::uint64_t ids = 0;
  std::map<EffectId, Done> waiting;
  std::map<NodeId, std::string> members;  ///< by name; also those that are being stored
};

void ClusterController::State::feed(ControllerEvent event) {
  events.push_back(std::move(event));
  if (stepping) return;
  stepping = true;
  ControllerEffects effects;
  while (!events.empty()) {
    const ControllerEvent next = std::move(events.front());
    events.pop_front();
    effects.clear();
    core.step(monotonic_now(), next, effects);
    for (ControllerEffect& effect : effects) perform(effect);
  }
  stepping = false;
  arm();
}

void ClusterController::State::perform(ControllerEffect& effect) {
  if (const auto* plan = std::get_if<PersistPlan>(&effect)) return persist(plan->plan);
  if (const auto* send = std::get_if<SendPlan>(&effect)) {
    INFOS_CHECK(send->epoch == core.plan().epoch);
    return ports.send_plan(send->node, core.plan());
  }
  const auto& answer = std::get<WishAnswered>(effect);
  const auto found = waiting.find(answer.id);
  if (found == waiting.end()) return;
  const Done done = std::move(found->second);
  waiting.erase(found);
  if (answer.error.empty()) return done(Applied{answer.epoch, answer.workers});
  done(Error{ErrorCode::invalid_argument, answer.error});
}

void ClusterController::State::persist(const Plan& plan) {
  StoreWrite write{kPlanKey, encode_plan(plan), std::nullopt, "controller"};
  store.write(std::move(write), [weak = weak_from_this(), this,
                                 epoch = plan.epoch](const Result<StoreWritten>& written) {
    const std::string error = written.ok() ? "" : written.error().message;
    const auto alive = weak.lock();
    if (!alive) return;
    boost::asio::post(io, [weak, epoch, error] {
      const auto self = weak.lock();
      if (!self) return;
      log_info("controller", error.empty() ? "a plan is stored" : "a plan could not be stored",
               {{"epoch", epoch.value}, {"why", error}});
      self->feed(PlanPersisted{epoch, error});
    });
  });
}

void ClusterController::State::arm() {
  const Time next = core.next_deadline();
  if (next >= armed) return;
  armed = next;
  timer.expires_at(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(next.ns)));
  timer.async_wait([weak = weak_from_this()](boost::system::error_code error) {
    const auto self = weak.lock();
    if (error || !self) return;
    self->armed = kNever;
    self->feed(ControllerTick{});
  });
}

Status ClusterController::State::restore_members(const PlannedNode& self) {
  const auto rows =
      wait_for<StoredList>([&](auto done) { store.list(kMemberPrefix, std::move(done)); });
  if (!rows.ok()) return rows.error();
  for (const StoredValue& row : rows->rows) {
    const PlannedNode member = INFOS_TRY(decode_member(row));
    if (member.node == self.node) continue;
    members[member.node] = member.name;
    feed(MemberJoined{member.node, member.name, member.address});
  }
  members[self.node] = self.name;
  feed(MemberJoined{self.node, self.name, self.address});
  return {};
}

ClusterController::ClusterController(boost::asio::io_context& io, StateStore& store,
                                     const ControllerConfig& config, Ports ports)
    : state_(std::make_shared<State>(io, store, config, std::move(ports))) {}
ClusterController::~ClusterController() { state_->timer.cancel(); }

Status ClusterController::restore(const PlannedNode& self) {
  const std::string stored = INFOS_TRY(read_key(state_->store, kPlanKey));
  if (!stored.empty()) {
    ControllerRestored restored;
    restored.plan = INFOS_TRY(decode_plan(stored));
    auto wish = state_->ports.read_wish(restored.plan.spec);
    if (wish.ok())
      restored.wish = *std::move(wish);
    else  // what runs goes on; only an apply can change it
      log_error("controller", "the stored spec cannot be read", {{"why", wish.error().message}});
    state_->feed(std::move(restored));
  }
  Status status = state_->restore_members(self);
  if (status.ok()) state_->feed(MemberUp{self.node});
  return status;
}

void ClusterController::apply(const std::string& yaml, Done done) {
  auto wish = state_->ports.read_wish(yaml);
  if (!wish.ok()) return done(std::move(wish).error());
  const EffectId id{++state_->ids};
  state_->waiting[id] = std::move(done);
  state_->feed(PlanWished{id, *std::move(wish)});
}

void ClusterController::drain(const DrainWish& wish, Done done) {
  const EffectId id{++state_->ids};
  state_->waiting[id] = std::move(done);
  state_->feed(DrainWished{id, wish});
}

void ClusterController::admit(const NewMember& member, std::function<void(Result<NodeId>)> done) {
  auto& members = state_->members;
  for (const auto& [id, name] : members)
    if (name == member.name)
      return done(Error{ErrorCode::already_exists,
                        fmt::format("the name '{}' is taken by node {}", name, id.value)});
  const NodeId node{members.empty() ? 1 : members.rbegin()->first.value + 1};
  if (node.value > kNodeIdMax)
    return done(
        Error{ErrorCode::resource_exhausted, fmt::format("all {} ids are used up", kNodeIdMax)});
  members[node] = member.name;
  StoreWrite write{member_key(node), encode_member({node, member.name, false, member.address}),
                   Revision{0}, "join"};
  state_->store.write(std::move(write), [weak = std::weak_ptr(state_), &io = state_->io, node,
                                         member, done](const Result<StoreWritten>& written) {
    Status status = written.ok() ? Status() : Status(written.error());
    if (written.ok() && !written->applied)
      status = Error{ErrorCode::already_exists, "the node's id is in use"};
    if (weak.expired()) return;
    boost::asio::post(io, [weak, node, member, done, status] {
      const auto self = weak.lock();
      if (!self) return;
      if (!status.ok()) {
        self->members.erase(node);
        return done(status.error());
      }
      done(node);
      self->feed(MemberJoined{node, member.name, member.address});
    });
  });
}

void ClusterController::peer_up(NodeId node) { state_->feed(MemberUp{node}); }
void ClusterController::peer_down(NodeId node) { state_->feed(MemberDown{node}); }
void ClusterController::reported(NodeId node, const NodeReport& report) {
  state_->feed(MemberReported{node, report});
}
const ControllerCore& ClusterController::core() const { return state_->core; }

}  // namespace infos
