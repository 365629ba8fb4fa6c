// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/cluster_node.h"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/control/codec_peer.h"
#include "daemon/control/plan_follower.h"
#include "daemon/runtime/clock.h"
#include "daemon/runtime/peer/address.h"
#include "daemon/runtime/peer/identity_dir.h"
#include "daemon/runtime/peer/node_options.h"
#include "daemon/runtime/store_wait.h"
#include "topology/base/log.h"

namespace infos {
namespace {

constexpr const char* kPlanKey = "plan/acting";
constexpr std::size_t kAsksMax = 64;
constexpr Duration kAskLimit = seconds(20);

RoleSet roles_of(PeerRight right) {
  switch (right) {
    case PeerRight::member:
      return RoleSet::all();
    case PeerRight::gateway:
      return {Role::gateway};
    case PeerRight::worker:
      return {Role::worker, Role::prefill, Role::decode};
    case PeerRight::controller:
      return {Role::controller};
  }
  return {};
}

std::uint16_t kind_of(const PeerMessage& message) {
  return static_cast<std::uint16_t>(kOwnerKinds + message.index());
}

}  // namespace

struct ClusterNode::State final : PeerListener {
  State(boost::asio::io_context& context, IdentityDir folder, StateStore& s, ClusterHost& h)
      : io(context), dir(std::move(folder)), store(s), host(h) {}

  Status open(const ClusterNodeOptions& options);
  Status open_controller(PeerNetOptions& net_options);
  Status start();
  void stop();

  // ---- PeerListener
  void peer_up(const PeerInfo& peer) override;
  void peer_down(NodeId peer, const std::string& why) override;
  void peer_said(NodeId peer, std::uint16_t kind, std::string_view payload) override;

  void said(NodeId peer, PeerMessage message);
  void send(NodeId peer, const PeerMessage& message);
  void follow(const FollowerEvent& event);
  void store_plan(const Plan& plan);
  void act();
  void report(NodeId controller_node, Epoch refused);
  void report_all(Epoch refused);
  void dial();
  void answered(NodeId peer, const AdminAnswer& answer);
  void fail_asks(NodeId peer, const std::string& why);

  struct Asked {
    NodeId controller;
    ClusterHost::Respond respond;
    std::unique_ptr<boost::asio::steady_timer> timer;
  };

  boost::asio::io_context& io;
  IdentityDir dir;
  StateStore& store;
  ClusterHost& host;
  std::uint32_t incarnation = 0;
  std::string listen;
  PlanFollower follower;
  std::map<NodeId, RoleSet> up;
  std::map<std::uint64_t, Asked> asks;
  std::uint64_t ask_ids = 0;
  std::unique_ptr<JoinTokens> join_tokens;
  std::unique_ptr<JoinService> joins;
  std::unique_ptr<TokenAdmin> token_admin;
  std::unique_ptr<ClusterController> controller;
  std::unique_ptr<ClusterRelay> relay;
  std::unique_ptr<PeerNet> net;
  std::shared_ptr<int> alive = std::make_shared<int>(0);  // late answers of the store look here
};

// ---- making ----

Status ClusterNode::State::open(const ClusterNodeOptions& options) {
  PeerNetOptions net_options = INFOS_TRY(peer_options_of(dir));
  incarnation = net_options.incarnation;
  listen = options.listen.empty() ? dir.cluster().listen : options.listen;
  net_options.build = options.build;
  for (std::size_t i = 0; i < kPeerRights.size(); ++i)
    net_options.may_say[static_cast<std::uint16_t>(kOwnerKinds + i)] = roles_of(kPeerRights[i]);
  ClusterRelay::Ports ports;
  ports.to_peer = [this](NodeId node, const PeerMessage& message) { send(node, message); };
  ports.to_local = [this](const SendWorker& message) { host.cluster_sends_worker(message); };
  ports.to_gateway = [this](GatewayEvent event) { host.cluster_tells_gateway(std::move(event)); };
  relay = std::make_unique<ClusterRelay>(io, RelayConfig{dir.who().node}, std::move(ports));
  if (dir.who().roles.has(Role::controller)) {
    Status status = open_controller(net_options);
    if (!status.ok()) return status;
  }
  net = INFOS_TRY(PeerNet::make(io, std::move(net_options), *this));
  return {};
}

Status ClusterNode::State::open_controller(PeerNetOptions& net_options) {
  ClusterController::Ports ports;
  ports.send_plan = [this](NodeId node, const Plan& plan) {
    if (node != dir.who().node) return send(node, PlanPush{plan});
    boost::asio::post(io, [this, plan, watch = std::weak_ptr(alive)] {
      if (!watch.expired()) follow(PlanArrived{plan});
    });
  };
  ports.read_wish = [this](const std::string& yaml) { return host.cluster_reads(yaml); };
  controller = std::make_unique<ClusterController>(
      io, store, ControllerConfig{dir.who().node, incarnation}, std::move(ports));
  const std::optional<Credential> signer = dir.signer();
  if (!signer) return {};
  JoinTokens::Options tokens;
  tokens.clock = [] { return monotonic_now(); };
  tokens.post = [&io = io](std::function<void()> task) { boost::asio::post(io, std::move(task)); };
  join_tokens = std::make_unique<JoinTokens>(store, std::move(tokens));
  JoinService::Options joining;
  joining.authority = *signer;
  joining.self = dir.who();
  joining.admit = [this](const NewMember& member, std::function<void(Result<NodeId>)> done) {
    controller->admit(member, std::move(done));
  };
  joins = std::make_unique<JoinService>(*join_tokens, std::move(joining));
  net_options.join = [this](JoinRequest request, const std::string& from,
                            PeerNetOptions::JoinDone done) {
    joins->join(std::move(request), from, std::move(done));
  };
  TokenAdmin::Cluster about{dir.who().cluster, dir.cluster().address,
                            INFOS_TRY(key_hash(dir.authority()))};
  token_admin = std::make_unique<TokenAdmin>(*join_tokens, std::move(about));
  return {};
}

Status ClusterNode::State::start() {
  HostPort at = INFOS_TRY(split_address(listen));
  at.port = INFOS_TRY(net->listen(at.host, at.port));
  listen = join_address(at);
  const std::string stored = INFOS_TRY(read_key(store, kPlanKey));
  if (!stored.empty()) follow(FollowerRestored{INFOS_TRY(decode_plan(stored))});
  if (controller) {
    const NodeIdentity& who = dir.who();
    Status status = controller->restore({who.node, who.name, false, dir.cluster().address});
    if (!status.ok()) return status;
    report(who.node, Epoch{});
  }
  if (join_tokens)
    join_tokens->load([](const Status& loaded) {
      if (!loaded.ok())
        log_error("cluster", "join tokens cannot be read", {{"why", loaded.error().message}});
    });
  dial();
  return {};
}

void ClusterNode::State::stop() {
  relay->stop();
  net->stop();
  for (auto& [id, ask] : std::exchange(asks, {})) ask.respond(503, "");
}

/// Controllers by the folder, everybody by the plan.
void ClusterNode::State::dial() {
  std::map<NodeId, std::string> addresses;
  for (const ControllerAddress& known : dir.cluster().controllers)
    addresses[known.node] = known.address;
  for (const PlannedNode& node : follower.acting().nodes)
    if (!node.address.empty()) addresses[node.node] = node.address;
  addresses.erase(dir.who().node);
  std::vector<PeerAddress> peers;
  for (auto& [node, address] : addresses) peers.push_back({node, address});
  net->set_peers(std::move(peers));
}

// ---- links ----

void ClusterNode::State::peer_up(const PeerInfo& peer) {
  const NodeId node = peer.identity.node;
  up[node] = peer.identity.roles;
  log_info("cluster", "a link is up",
           {{"node", node.value},
            {"name", peer.identity.name},
            {"roles", to_string(peer.identity.roles)},
            {"incarnation", peer.incarnation}});
  relay->feed(LinkUp{node});
  if (controller) controller->peer_up(node);
  if (peer.identity.roles.has(Role::controller)) report(node, Epoch{});
}

void ClusterNode::State::peer_down(NodeId peer, const std::string& why) {
  up.erase(peer);
  log_warn("cluster", "a link is down", {{"node", peer.value}, {"why", why}});
  relay->feed(LinkDown{peer, why});
  if (controller) controller->peer_down(peer);
  fail_asks(peer, why);
}

void ClusterNode::State::peer_said(NodeId peer, std::uint16_t kind, std::string_view payload) {
  auto message = decode_peer_message(payload);
  // The kind is what the certificate's roles were held against.
  if (message.ok() && kind_of(*message) == kind) return said(peer, *std::move(message));
  net->cut(peer, message.ok() ? "a frame holds another message than its kind says"
                              : message.error().message);
}

void ClusterNode::State::said(NodeId peer, PeerMessage message) {
  if (auto* push = std::get_if<PlanPush>(&message)) {
    follow(PlanArrived{std::move(push->plan)});
  } else if (const auto* told = std::get_if<NodeReport>(&message)) {
    if (told->refused)
      log_warn(
          "cluster", "a node refused an older plan",
          {{"node", peer.value}, {"plan", told->refused.value}, {"acts_on", told->applied.value}});
    if (controller) controller->reported(peer, *told);
  } else if (const auto* answer = std::get_if<AdminAnswer>(&message)) {
    answered(peer, *answer);
  } else if (const auto* ask = std::get_if<AdminAsk>(&message)) {
    const std::uint64_t id = ask->id;
    const auto respond = [this, peer, id, watch = std::weak_ptr(alive)](std::uint32_t status,
                                                                        std::string body) {
      if (!watch.expired()) send(peer, AdminAnswer{id, status, std::move(body)});
    };
    if (controller) host.cluster_asked(*ask, respond);
  } else {
    relay->feed(LinkSaid{peer, std::move(message)});
  }
}

/// What cannot be sent is lost, as everything is when a link ends.
void ClusterNode::State::send(NodeId peer, const PeerMessage& message) {
  const Status sent = net->send(peer, kind_of(message), encode(message));
  if (!sent.ok() && sent.error().code != ErrorCode::unavailable)
    log_warn("cluster", "a message could not be sent",
             {{"node", peer.value}, {"why", sent.error().message}});
}

// ---- plans ----

void ClusterNode::State::follow(const FollowerEvent& event) {
  FollowerEffects effects;
  follower.step(event, effects);
  for (const FollowerEffect& effect : effects) {
    if (const auto* plan = std::get_if<StorePlan>(&effect))
      store_plan(plan->plan);
    else if (const auto* told = std::get_if<ReportHoldings>(&effect))
      report_all(told->refused);
    else
      act();
  }
}

void ClusterNode::State::store_plan(const Plan& plan) {
  StoreWrite write{kPlanKey, encode_plan(plan), std::nullopt, "plan"};
  store.write(std::move(write), [this, &io = io, watch = std::weak_ptr(alive),
                                 epoch = plan.epoch](const Result<StoreWritten>& written) {
    const std::string error = written.ok() ? "" : written.error().message;
    boost::asio::post(io, [this, watch, epoch, error] {
      if (watch.expired()) return;
      if (!error.empty()) log_error("cluster", "a plan could not be stored", {{"why", error}});
      follow(PlanStored{epoch, error});
    });
  });
}

void ClusterNode::State::act() {
  const Plan& plan = follower.acting();
  std::vector<WorkerSpec> part = part_of(plan, dir.who().node);
  log_info("cluster", "acts on a plan", {{"epoch", plan.epoch.value}, {"workers", part.size()}});
  dial();
  host.cluster_acts(plan, std::move(part));
}

void ClusterNode::State::report(NodeId controller_node, Epoch refused) {
  NodeReport told{follower.acting().epoch, refused, relay->core().local_workers()};
  if (controller_node != dir.who().node) return send(controller_node, std::move(told));
  if (controller) controller->reported(controller_node, told);
}

void ClusterNode::State::report_all(Epoch refused) {
  if (controller) report(dir.who().node, refused);
  for (const auto& [node, roles] : up)
    if (roles.has(Role::controller)) report(node, refused);
}

// ---- asking the controller ----

void ClusterNode::State::answered(NodeId peer, const AdminAnswer& answer) {
  const auto found = asks.find(answer.id);
  if (found == asks.end() || found->second.controller != peer) return;
  const ClusterHost::Respond respond = std::move(found->second.respond);
  asks.erase(found);
  respond(answer.status, answer.body);
}

void ClusterNode::State::fail_asks(NodeId peer, const std::string& why) {
  std::vector<ClusterHost::Respond> failed;
  for (auto at = asks.begin(); at != asks.end();) {
    if (at->second.controller != peer) {
      ++at;
      continue;
    }
    failed.push_back(std::move(at->second.respond));
    at = asks.erase(at);
  }
  for (const auto& respond : failed) respond(503, "the link to the controller ended: " + why);
}

// ---- the outside ----

Result<std::unique_ptr<ClusterNode>> ClusterNode::open(boost::asio::io_context& io,
                                                       const ClusterNodeOptions& options,
                                                       StateStore& store, ClusterHost& host) {
  IdentityDir dir = INFOS_TRY(IdentityDir::open(options.dir));
  auto state = std::make_unique<State>(io, std::move(dir), store, host);
  Status status = state->open(options);
  if (!status.ok()) return status.error();
  return std::unique_ptr<ClusterNode>(new ClusterNode(std::move(state)));
}

ClusterNode::ClusterNode(std::unique_ptr<State> state) : state_(std::move(state)) {}
ClusterNode::~ClusterNode() = default;

const NodeIdentity& ClusterNode::self() const { return state_->dir.who(); }
std::uint32_t ClusterNode::incarnation() const { return state_->incarnation; }
bool ClusterNode::is_controller() const { return state_->controller != nullptr; }
const std::string& ClusterNode::listens() const { return state_->listen; }
Status ClusterNode::start() { return state_->start(); }
void ClusterNode::stop() { state_->stop(); }

void ClusterNode::feed(RelayEvent event) {
  const bool changes =
      std::holds_alternative<LocalUp>(event) || std::holds_alternative<LocalDown>(event);
  state_->relay->feed(std::move(event));
  if (changes) state_->report_all(Epoch{});
}

ClusterController* ClusterNode::controller() { return state_->controller.get(); }
TokenAdmin* ClusterNode::tokens() { return state_->token_admin.get(); }

void ClusterNode::ask_controller(std::string path, std::string body, ClusterHost::Respond respond) {
  State& s = *state_;
  const auto found = std::ranges::find_if(
      s.up, [](const auto& peer) { return peer.second.has(Role::controller); });
  if (found == s.up.end())
    return respond(503,
                   "no controller can be reached: what runs goes on, but nothing can be changed");
  if (s.asks.size() >= kAsksMax) return respond(503, "too many questions wait for the controller");
  const std::uint64_t id = ++s.ask_ids;
  auto timer =
      std::make_unique<boost::asio::steady_timer>(s.io, std::chrono::nanoseconds(kAskLimit.ns));
  timer->async_wait([&s, id](boost::system::error_code error) {
    const auto asked = error ? s.asks.end() : s.asks.find(id);
    if (error || asked == s.asks.end()) return;
    const ClusterHost::Respond late = std::move(asked->second.respond);
    s.asks.erase(asked);
    late(504, "the controller did not answer in time");
  });
  s.asks[id] = {found->first, std::move(respond), std::move(timer)};
  s.send(found->first, AdminAsk{id, std::move(path), std::move(body)});
}

const Plan& ClusterNode::plan() const { return state_->follower.acting(); }
const PeerRelay& ClusterNode::relay() const { return state_->relay->core(); }
const PeerNet& ClusterNode::net() const { return *state_->net; }

}  // namespace infos
