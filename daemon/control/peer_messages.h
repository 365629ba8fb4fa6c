// SPDX-License-Identifier: Apache-2.0
// The words that the daemons of a cluster say to each other over their links: plain values, the
// same in production (carried as protobuf by codec_peer.h) and in the simulator. Which certificate
// may say which word is decided here.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "daemon/control/messages.h"
#include "daemon/control/plan.h"

namespace infos {

// ---- gateway's node -> worker's node ----

/// A gateway speaks to a worker of the receiver. Lost without a word when that process is gone.
struct ToRemoteWorker {
  WorkerRef to;
  ToWorker message;
  friend bool operator==(const ToRemoteWorker&, const ToRemoteWorker&) = default;
};

// ---- worker's node -> all nodes ----

/// What a worker reports: what is of the receiver's requests alone, and its load.
struct FromRemoteWorker {
  WorkerRef from;
  StepReport report;
  friend bool operator==(const FromRemoteWorker&, const FromRemoteWorker&) = default;
};

/// A worker of the sender serves.
struct RemoteWorkerUp {
  WorkerRef worker;
  WorkerReady ready;
  friend bool operator==(const RemoteWorkerUp&, const RemoteWorkerUp&) = default;
};
struct RemoteWorkerDown {
  WorkerRef worker;
  std::string why;
  friend bool operator==(const RemoteWorkerDown&, const RemoteWorkerDown&) = default;
};
/// A letter of one of the sender's workers to one of the receiver's.
struct RelayedLetter {
  KvLetter letter;
  friend bool operator==(const RelayedLetter&, const RelayedLetter&) = default;
};

// ---- controller -> node ----

struct PlanPush {
  Plan plan;
  friend bool operator==(const PlanPush&, const PlanPush&) = default;
};

// ---- node -> controller ----

/// What a node holds: said when a link comes up, when a plan was taken or refused, and when its
/// workers change.
struct NodeReport {
  Epoch applied;  ///< it acts on this plan; 0: on none
  Epoch refused;  ///< it was sent this one and has a newer one; 0: nothing was refused
  std::vector<WorkerRef> workers;  ///< serving
  friend bool operator==(const NodeReport&, const NodeReport&) = default;
};

// ---- node -> controller, for its operator ----

/// `infos apply` or `infos drain` on a node that is not the controller. Answered by AdminAnswer.
struct AdminAsk {
  std::uint64_t id = 0;  ///< the asker's
  std::string path;      ///< of the admin API
  std::string body;
  friend bool operator==(const AdminAsk&, const AdminAsk&) = default;
};
struct AdminAnswer {
  std::uint64_t id = 0;
  std::uint32_t status = 0;  ///< HTTP
  std::string body;
  friend bool operator==(const AdminAnswer&, const AdminAnswer&) = default;
};

using PeerMessage = std::variant<ToRemoteWorker, FromRemoteWorker, RemoteWorkerUp, RemoteWorkerDown,
                                 RelayedLetter, PlanPush, NodeReport, AdminAsk, AdminAnswer>;

/// What a peer's certificate must allow for it to say a word.
enum class PeerRight : std::uint8_t {
  member,   ///< any member of the cluster
  gateway,  ///< one whose gateway serves
  worker,   ///< one with workers, of any phase
  controller,
};
/// By alternative of PeerMessage.
constexpr std::array<PeerRight, std::variant_size_v<PeerMessage>> kPeerRights = {
    PeerRight::gateway,     // ToRemoteWorker
    PeerRight::worker,      // FromRemoteWorker
    PeerRight::worker,      // RemoteWorkerUp
    PeerRight::worker,      // RemoteWorkerDown
    PeerRight::worker,      // RelayedLetter
    PeerRight::controller,  // PlanPush
    PeerRight::member,      // NodeReport
    PeerRight::gateway,     // AdminAsk
    PeerRight::controller,  // AdminAnswer
};

}  // namespace infos
