// SPDX-License-Identifier: Apache-2.0
// ClusterNode: what makes an infosd one of several. Owns its identity, its links to the other
// daemons, the relay between gateways and workers, the plan that it acts on and, on the
// controller's node, the controller. Runs on the thread of its io_context. Never decides where a
// request or a worker goes: the cores do.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/control/plan_wish.h"
#include "daemon/runtime/cluster_controller.h"
#include "daemon/runtime/cluster_relay.h"
#include "daemon/runtime/peer/peer_net.h"
#include "daemon/runtime/peer/token_admin.h"

namespace infos {

/// What a ClusterNode needs of the daemon that it is in. Called on the node's thread.
class ClusterHost {
 public:
  virtual ~ClusterHost() = default;
  virtual void cluster_tells_gateway(GatewayEvent event) = 0;
  virtual void cluster_sends_worker(const SendWorker& message) = 0;
  /// Run `part` and nothing else, and offer the plan's models.
  virtual void cluster_acts(const Plan& plan, std::vector<WorkerSpec> part) = 0;
  /// What a spec asks for. Errors: all that is wrong with it. Only on the controller.
  virtual Result<PlanWish> cluster_reads(const std::string& yaml) = 0;
  /// A member asks the controller for its operator. `respond`: HTTP status and body, once.
  using Respond = std::function<void(std::uint32_t, std::string)>;
  virtual void cluster_asked(const AdminAsk& ask, Respond respond) = 0;
};

struct ClusterNodeOptions {
  std::string dir;
  std::string listen;  ///< HOST:PORT; empty: as the folder says
  std::string build;   ///< for people
};

class ClusterNode {
 public:
  /// Opens the folder and counts a start. Errors: in one sentence, for the person who started it.
  static Result<std::unique_ptr<ClusterNode>> open(boost::asio::io_context& io,
                                                   const ClusterNodeOptions& options,
                                                   StateStore& store, ClusterHost& host);
  ~ClusterNode();
  ClusterNode(const ClusterNode&) = delete;
  ClusterNode& operator=(const ClusterNode&) = delete;

  const NodeIdentity& self() const;
  std::uint32_t incarnation() const;
  bool is_controller() const;
  /// HOST:PORT where it listens. Requires: started.
  const std::string& listens() const;

  /// Listens, acts on the stored plan, looks for its peers. Waits for the store.
  Status start();
  /// What the node's own workers and gateway do. Links are its own.
  void feed(RelayEvent event);
  /// Links end without a word; the plan stays.
  void stop();

  /// Null: the controller is another node.
  ClusterController* controller();
  TokenAdmin* tokens();
  /// Has a controller answer; errors become answers too. Requires: !is_controller().
  void ask_controller(std::string path, std::string body, ClusterHost::Respond respond);

  const Plan& plan() const;
  const PeerRelay& relay() const;
  const PeerNet& net() const;

 private:
  struct State;
  explicit ClusterNode(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace infos
