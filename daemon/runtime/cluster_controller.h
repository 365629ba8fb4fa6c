// SPDX-License-Identifier: Apache-2.0
// ClusterController: the shell of ControllerCore, on the node whose certificate has the role
// controller. Owns who is a member and the stored plan; performs the core's effects. Runs on the
// thread of its io_context; the store answers on another one, and is waited for only in restore().
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "daemon/control/controller_core.h"
#include "daemon/runtime/peer/join_service.h"
#include "daemon/runtime/state_store.h"

namespace boost::asio {
class io_context;
}

namespace infos {

class ClusterController {
 public:
  struct Ports {
    std::function<void(NodeId, const Plan&)> send_plan;
    /// What a spec asks for. Errors: all that is wrong with it.
    std::function<Result<PlanWish>(const std::string& yaml)> read_wish;
  };
  /// What came of a wish.
  struct Applied {
    Epoch epoch;
    std::uint64_t workers = 0;
  };
  using Done = std::function<void(Result<Applied>)>;

  /// `store` must outlive it.
  ClusterController(boost::asio::io_context& io, StateStore& store, const ControllerConfig& config,
                    Ports ports);
  ~ClusterController();
  ClusterController(const ClusterController&) = delete;
  ClusterController& operator=(const ClusterController&) = delete;

  /// Reads members and plan; `self` becomes a member if it is none. Waits for the store. Errors:
  /// the store's; corrupt (a plan or member of another version).
  Status restore(const PlannedNode& self);

  void apply(const std::string& yaml, Done done);
  void drain(const DrainWish& wish, Done done);
  /// For JoinService: gives the node an id once it is stored that it is a member. Errors:
  /// already_exists, resource_exhausted, the store's.
  void admit(const NewMember& member, std::function<void(Result<NodeId>)> done);

  void peer_up(NodeId node);
  void peer_down(NodeId node);
  void reported(NodeId node, const NodeReport& report);

  const ControllerCore& core() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with answers of the store
};

}  // namespace infos
