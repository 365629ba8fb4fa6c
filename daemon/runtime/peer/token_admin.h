// SPDX-License-Identifier: Apache-2.0
// What `infos token create|list|revoke` asks of the controller, as JSON in and out; whoever owns
// the admin socket routes to these. Lives on the controller's thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "daemon/runtime/peer/join_tokens.h"

namespace infos {

class TokenAdmin {
 public:
  struct Cluster {
    std::string name;
    std::string address;         ///< HOST:PORT that a joining node dials
    std::string authority_hash;  ///< "sha256:..."
  };
  /// JSON, or an error for the caller: invalid_argument and not_found are its own fault.
  using Done = std::function<void(Result<std::string>)>;

  /// `tokens` must outlive it.
  TokenAdmin(JoinTokens& tokens, Cluster cluster);

  /// POST /admin/v1/tokens: {"roles": "gateway,worker", "ttl": "1h"}, both may be left out. Returns
  /// {"id", "token", "roles", "expires", "cluster", "address", "ca_hash", "command"}.
  void create(std::string_view body, Done done);
  /// GET /admin/v1/tokens: {"tokens": [{"id", "roles", "created", "expires", "state", "used_by"}]};
  /// state: open, used or expired.
  void list(Done done) const;
  /// POST /admin/v1/tokens/revoke: {"id": ID}. Returns {"revoked": ID}.
  void revoke(std::string_view body, Done done);

 private:
  JoinTokens& tokens_;
  Cluster cluster_;
};

}  // namespace infos
