// SPDX-License-Identifier: Apache-2.0
// JoinTokens: who may join. A token is single-use, has an end and roles; of its secret only a hash
// is kept. Decides whether a token is good; what it decides survives a crash, for the store says so
// before anybody is told. Lives on the controller's thread; never on two controllers at once
// without the store's compare-and-swap deciding between them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/runtime/peer/certificate.h"
#include "daemon/runtime/peer/identity.h"
#include "daemon/runtime/state_store.h"
#include "topology/base/result.h"
#include "topology/base/units.h"

namespace infos {

/// What is stored of a token, under "join-token/ID".
struct TokenRecord {
  std::string id;    ///< 16 hex digits; no secret
  std::string hash;  ///< SHA-256 of the secret
  RoleSet roles;
  UnixSeconds created = 0;
  UnixSeconds expires = 0;
  std::string used_by;  ///< the node that joined with it; empty: nobody yet
  friend bool operator==(const TokenRecord&, const TokenRecord&) = default;
};
std::string encode(const TokenRecord& record);
/// Errors: corrupt.
Result<TokenRecord> decode_token_record(std::string_view bytes);

/// Bounds the wrong attempts of each source: `burst` at once, then one in `each`. Pure.
class AttemptLimit {
 public:
  explicit AttemptLimit(std::uint32_t burst = 10, Duration each = seconds(1))
      : burst_(burst), each_(each) {}
  bool allows(const std::string& source, Time now) const;
  void failed(const std::string& source, Time now);

 private:
  std::uint32_t burst_;
  Duration each_;
  std::map<std::string, Time> paid_until_;  ///< bounded; what has passed is forgotten
  Time swept_;
};

class JoinTokens {
 public:
  struct Options {
    std::function<UnixSeconds()> wall_clock = unix_now;
    std::function<Time()> clock;
    /// Runs a task on the controller's thread: the store answers on its own.
    std::function<void(std::function<void()>)> post;
    std::size_t tokens_max = 1024;
    AttemptLimit attempts;
  };
  JoinTokens(StateStore& store, Options options);

  /// Reads the tokens that are there; nobody joins before `done`. A damaged one is logged and good
  /// for nothing.
  void load(std::function<void(Status)> done);

  struct NewToken {
    std::string text;  ///< "ID.SECRET": shown once
    TokenRecord record;
  };
  /// Errors: invalid_argument (no role, the role controller, a life of no time or above 7 days),
  /// resource_exhausted, and the store's.
  void create(RoleSet roles, Duration life, std::function<void(Result<NewToken>)> done);
  /// By id; those that were used are listed until they expire.
  std::vector<TokenRecord> list() const;
  UnixSeconds wall_now() const { return options_.wall_clock(); }
  /// Errors: not_found, and the store's.
  void revoke(const std::string& id, std::function<void(Status)> done);

  /// Whether `text` may join now; takes it, so that nobody else can. Must be followed by spend() or
  /// give_back(). Errors: invalid_argument (one sentence for all that is wrong with a secret),
  /// resource_exhausted (too many wrong attempts from `source`).
  Result<TokenRecord> take(std::string_view text, const std::string& source);
  void give_back(const std::string& id);
  /// Marks it used by `node`, for ever. Nothing may be signed before `done` says so.
  void spend(const std::string& id, const std::string& node, std::function<void(Status)> done);

 private:
  struct Entry {
    TokenRecord record;
    Revision revision;
    bool taken = false;
  };
  void write(Entry entry, std::optional<Revision> expected, std::function<void(Status)> done);
  void forget_old();

  StateStore& store_;
  Options options_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // answers that come later see it gone
};

}  // namespace infos
