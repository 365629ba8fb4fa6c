// SPDX-License-Identifier: Apache-2.0
// ClusterRelay: the shell of PeerRelay. Feeds it in order, performs its effects, keeps its timer.
// Runs on the thread of its io_context. Decides nothing.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "daemon/control/peer_relay.h"

namespace boost::asio {
class io_context;
}

namespace infos {

class ClusterRelay {
 public:
  /// Where effects go. They may feed the relay: that waits for its turn.
  struct Ports {
    std::function<void(NodeId, PeerMessage)> to_peer;
    std::function<void(const SendWorker&)> to_local;
    std::function<void(GatewayEvent)> to_gateway;
  };
  ClusterRelay(boost::asio::io_context& io, const RelayConfig& config, Ports ports);
  ~ClusterRelay();
  ClusterRelay(const ClusterRelay&) = delete;
  ClusterRelay& operator=(const ClusterRelay&) = delete;

  void feed(RelayEvent event);
  const PeerRelay& core() const;
  /// Nothing goes out any more.
  void stop();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the timer's handler, which the io_context holds
};

}  // namespace infos
