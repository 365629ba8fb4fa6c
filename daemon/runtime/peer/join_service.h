// SPDX-License-Identifier: Apache-2.0
// JoinService: answers a node that asks to join, on the controller. Decides the order: the token is
// taken, the owner admits the node and gives it an id, the token is marked used in the store, and
// only then is a certificate signed and sent. Lives on the controller's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "daemon/runtime/peer/join_tokens.h"
#include "daemon/runtime/peer/peer_net.h"

namespace infos {

/// A node that showed a good token.
struct NewMember {
  std::string name;
  RoleSet roles;
  std::string address;  ///< where it will listen; may be empty
};

class JoinService {
 public:
  struct Options {
    Credential authority;
    NodeIdentity self;
    std::function<UnixSeconds()> wall_clock = unix_now;
    /// Gives the node its id, having stored that it is a member. Errors go to the node as they are:
    /// the name is taken, the cluster is full.
    std::function<void(NewMember, std::function<void(Result<NodeId>)>)> admit;
  };
  /// `tokens` must outlive it.
  JoinService(JoinTokens& tokens, Options options);

  /// For PeerNetOptions::join.
  void join(JoinRequest request, const std::string& from, PeerNetOptions::JoinDone done);

 private:
  struct Joining;
  void sign(const Joining& joining);

  JoinTokens& tokens_;
  Options options_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // answers that come later see it gone
};

}  // namespace infos
