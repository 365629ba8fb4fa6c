// SPDX-License-Identifier: Apache-2.0
// PeerRelay joins this node's gateway and workers with those of other nodes: it announces workers,
// carries what gateways and workers say, splits reports by the gateway that owns the request,
// relays KV letters, and says who is gone when a link or a worker ends. Without links it joins the
// node's own gateway and workers. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/control/gateway_core.h"
#include "daemon/control/peer_messages.h"
#include "topology/base/units.h"

namespace infos {

struct RelayConfig {
  NodeId self;                                 ///< 0: the only node
  Duration load_interval = milliseconds(100);  ///< between two loads of a worker to one gateway
  friend bool operator==(const RelayConfig&, const RelayConfig&) = default;
};

/// The node whose gateway admitted a request.
constexpr NodeId node_of(RequestId request) {
  return NodeId{static_cast<std::uint32_t>(request.value >> 48)};
}
/// The first id of a gateway's requests. Requires: node < 2^16.
constexpr RequestId first_request(NodeId node, std::uint64_t incarnation) {
  return RequestId{std::uint64_t{node.value} << 48 | (incarnation & 0xffff) << 32 | 1};
}
/// The generation before the first one of an incarnation's workers.
constexpr Generation generation_base(std::uint64_t incarnation) {
  return Generation{static_cast<std::uint32_t>(incarnation << 14)};
}

// ---- events ----

struct LocalUp {
  WorkerRef worker;
  WorkerReady ready;
};
struct LocalDown {
  WorkerRef worker;
  std::string why;
};
struct LocalSaid {
  WorkerRef worker;
  StepReport report;
};
/// `from` is true.
struct LocalLetter {
  KvLetter letter;
};
/// This node's gateway speaks to a worker, wherever that is.
struct GatewaySays {
  SendWorker message;
};
/// A link to another node is up; one that was up before has ended.
struct LinkUp {
  NodeId node;
};
struct LinkDown {
  NodeId node;
  std::string why;
};
/// Other words than those of ToRemoteWorker, FromRemoteWorker, RemoteWorkerUp and -Down and
/// RelayedLetter are ignored.
struct LinkSaid {
  NodeId node;
  PeerMessage message;
};
struct RelayTick {};
using RelayEvent = std::variant<LocalUp, LocalDown, LocalSaid, LocalLetter, GatewaySays, LinkUp,
                                LinkDown, LinkSaid, RelayTick>;

// ---- effects ----

struct SendPeer {
  NodeId node;
  PeerMessage message;
};
/// To a worker process of this node.
struct SendLocal {
  SendWorker message;
};
/// WorkerUp, WorkerDown or WorkerSaid.
struct TellGateway {
  GatewayEvent event;
};
/// A peer said what it must not say; it was ignored.
struct RelayRefused {
  NodeId node;
  std::string why;
};
using RelayEffect = std::variant<SendPeer, SendLocal, TellGateway, RelayRefused>;
using RelayEffects = std::vector<RelayEffect>;

/// A worker of another node, as it was announced.
struct RemoteWorker {
  NodeId node;
  WorkerRef worker;
  WorkerReady ready;  ///< with its last load
};

class PeerRelay {
 public:
  explicit PeerRelay(const RelayConfig& config) : config_(config) {}

  void step(Time now, RelayEvent event, RelayEffects& out);
  Time next_deadline() const;
  std::vector<RemoteWorker> remote_workers() const;
  /// Local workers that serve.
  std::vector<WorkerRef> local_workers() const;

 private:
  struct Local {
    Generation generation;
    WorkerReady ready;
    bool load_changed = false;       ///< since the last load that all gateways heard
    StepReport news;                 ///< since then, for all gateways: fetches, held, dropped
    Time load_at = Time{INT64_MIN};  ///< not before this
    /// Requests of other nodes' gateways that run here.
    std::map<RequestId, Attempt> foreign;
    std::set<WorkerRef> correspondents;
  };
  struct Remote {
    NodeId node;
    Generation generation;
    WorkerReady ready;
  };
  struct Link {
    std::uint64_t session = 0;
  };

  void on(LocalUp& event, RelayEffects& out);
  void on(LocalDown& event, RelayEffects& out);
  void on(LocalSaid& event, RelayEffects& out);
  void on(LocalLetter& event, RelayEffects& out);
  void on(GatewaySays& event, RelayEffects& out);
  void on(LinkUp& event, RelayEffects& out);
  void on(LinkDown& event, RelayEffects& out);
  void on(LinkSaid& event, RelayEffects& out);
  void on(RelayTick&, RelayEffects&) {}
  void said(NodeId node, ToRemoteWorker& message, RelayEffects& out);
  void said(NodeId node, FromRemoteWorker& message, RelayEffects& out);
  void said(NodeId node, RemoteWorkerUp& message, RelayEffects& out);
  void said(NodeId node, RemoteWorkerDown& message, RelayEffects& out);
  void said(NodeId node, RelayedLetter& message, RelayEffects& out);
  template <typename Other>
  void said(NodeId, Other&, RelayEffects&) {}

  Local* local(WorkerRef worker);
  Remote* remote(NodeId node, WorkerRef worker);
  void hand_over(SendWorker message, RelayEffects& out);
  void remote_gone(WorkerId id, RelayEffects& out);
  void tell_correspondents(WorkerRef gone, RelayEffects& out);
  void spread_load(WorkerId id, Local& worker, RelayEffects& out);
  void expire(RelayEffects& out);

  RelayConfig config_;
  Time now_{INT64_MIN};
  std::uint64_t sessions_ = 0;
  std::map<NodeId, Link> links_;  ///< up
  std::map<WorkerId, Local> locals_;
  std::map<WorkerId, Remote> remotes_;
};

}  // namespace infos
