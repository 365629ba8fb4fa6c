// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/peer/join_service.h"

#include <fmt/format.h>

#include <utility>

#include "topology/base/log.h"

namespace infos {

/// One join on its way.
struct JoinService::Joining {
  JoinRequest request;
  TokenRecord token;
  NodeIdentity identity;
  PeerNetOptions::JoinDone done;

  void refuse(const std::string& why) const {
    log_warn("peer", "a node may not join", {{"name", identity.name}, {"why", why}});
    JoinAnswer answer;
    answer.error = why;
    done(answer);
  }
};

JoinService::JoinService(JoinTokens& tokens, Options options)
    : tokens_(tokens), options_(std::move(options)) {}

void JoinService::join(JoinRequest request, const std::string& from,
                       PeerNetOptions::JoinDone done) {
  Joining joining{std::move(request), {}, {}, std::move(done)};
  // The token first: whoever has none learns nothing else.
  Result<TokenRecord> token = tokens_.take(joining.request.token, from);
  if (!token.ok()) return joining.refuse(token.error().message);
  joining.token = *std::move(token);
  joining.identity = {options_.self.cluster, joining.request.name, NodeId{}, joining.token.roles};
  const Status name = check_name("node name", joining.request.name);
  if (!name.ok()) {
    tokens_.give_back(joining.token.id);
    return joining.refuse(name.error().message);
  }
  NewMember member{joining.request.name, joining.token.roles, joining.request.address};
  options_.admit(std::move(member), [this, alive = std::weak_ptr<int>(alive_),
                                     joining =
                                         std::move(joining)](const Result<NodeId>& id) mutable {
    if (alive.expired()) return;
    if (!id.ok()) {
      tokens_.give_back(joining.token.id);
      return joining.refuse(id.error().message);
    }
    joining.identity.node = *id;
    const std::string token_id = joining.token.id;
    const std::string node = fmt::format("{} ({})", joining.identity.name, id->value);
    tokens_.spend(token_id, node, [this, alive, joining = std::move(joining)](const Status& spent) {
      if (alive.expired()) return;
      if (spent.ok()) return sign(joining);
      tokens_.give_back(joining.token.id);
      joining.refuse(spent.error().message);
    });
  });
}

void JoinService::sign(const Joining& joining) {
  const Result<std::string> made =
      sign_request(options_.authority, joining.request.request, joining.identity,
                   node_validity(options_.wall_clock()));
  if (!made.ok()) return joining.refuse(made.error().message);
  log_info("peer", "a node joins",
           {{"name", joining.identity.name},
            {"node", joining.identity.node.value},
            {"roles", to_string(joining.identity.roles)},
            {"token", joining.token.id}});
  JoinAnswer answer;
  answer.certificate = *made;
  answer.authority = options_.authority.certificate;
  answer.controller = options_.self.node;
  joining.done(answer);
}

}  // namespace infos
