// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/peer/join_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "daemon/control/wire.h"
#include "topology/base/log.h"

namespace infos {
namespace {

constexpr std::string_view kPrefix = "join-token/";
constexpr std::size_t kIdDigits = 16;
constexpr std::size_t kSecretDigits = 64;  ///< 256 bits
constexpr Duration kLifeMax = seconds(7 * 24 * 3600);
constexpr std::size_t kSourcesMax = 1024;

/// As it is stored: roles as words, so that a later build with other roles reads it.
struct StoredToken {
  std::string id, hash, roles, used_by;
  UnixSeconds created = 0, expires = 0;
};
template <typename A>
void fields(A& a, wire::Like<StoredToken> auto& m) {
  a(1, "id", m.id), a(2, "hash", m.hash), a(3, "roles", m.roles), a(4, "created", m.created);
  a(5, "expires", m.expires), a(6, "used_by", m.used_by);
}

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Error bad_token() {
  return {
      ErrorCode::invalid_argument,
      "the token is not good: wrong, used or expired; make a new one with `infos token create`"};
}

}  // namespace

std::string encode(const TokenRecord& record) {
  const StoredToken stored{record.id,      record.hash,    to_string(record.roles),
                           record.used_by, record.created, record.expires};
  std::string out;
  wire::WireWriter(out).put_body(stored);
  return out;
}

Result<TokenRecord> decode_token_record(std::string_view bytes) {
  StoredToken stored;
  wire::WireReader reader(bytes);
  if (!reader.read(stored)) return Error{ErrorCode::corrupt, "join token: " + reader.error()};
  const Result<RoleSet> roles = parse_roles(stored.roles);
  if (!is_hex(stored.id, kIdDigits) || stored.hash.size() != 32 || !roles.ok())
    return Error{ErrorCode::corrupt, "join token: id, hash or roles are not legal"};
  return TokenRecord{stored.id,      stored.hash,    *roles,
                     stored.created, stored.expires, stored.used_by};
}

// ---- the limit ----

bool AttemptLimit::allows(const std::string& source, Time now) const {
  const auto found = paid_until_.find(source);
  if (found != paid_until_.end()) return found->second - now <= each_ * (burst_ - 1);
  // So many sources at once are one attacker: all new ones share a place.
  if (paid_until_.size() < kSourcesMax) return true;
  const auto shared = paid_until_.find("");
  return shared == paid_until_.end() || shared->second - now <= each_ * (burst_ - 1);
}

void AttemptLimit::failed(const std::string& source, Time now) {
  if (paid_until_.size() >= kSourcesMax && now - swept_ >= each_) {
    swept_ = now;
    std::erase_if(paid_until_, [&](const auto& entry) { return entry.second <= now; });
  }
  const bool room = paid_until_.size() < kSourcesMax || paid_until_.contains(source);
  Time& until = paid_until_[room ? source : ""];
  until = std::max(until, now) + each_;
}

// ---- the tokens ----

JoinTokens::JoinTokens(StateStore& store, Options options)
    : store_(store), options_(std::move(options)) {}

void JoinTokens::load(std::function<void(Status)> done) {
  store_.list(std::string(kPrefix), [this, alive = std::weak_ptr<int>(alive_), post = options_.post,
                                     done = std::move(done)](Result<StoredList> rows) {
    post([this, alive, done, rows = std::move(rows)] {
      if (alive.expired()) return;
      if (!rows.ok()) return done(rows.error());
      for (const StoredValue& row : rows->rows) {
        Result<TokenRecord> record = decode_token_record(row.value);
        if (!record.ok()) {
          log_error("peer", "a stored token is passed over",
                    {{"key", row.key}, {"why", record.error().message}});
          continue;
        }
        const std::string id = record->id;
        entries_[id] = {*std::move(record), row.revision};
      }
      done({});
    });
  });
}

void JoinTokens::create(RoleSet roles, Duration life, std::function<void(Result<NewToken>)> done) {
  if (roles.empty() || roles.has(Role::controller))
    return done(Error{ErrorCode::invalid_argument,
                      fmt::format("roles '{}': want at least one of gateway, worker, prefill, "
                                  "decode; the controller is the node that made the cluster",
                                  to_string(roles))});
  if (life < seconds(1) || life > kLifeMax)
    return done(
        Error{ErrorCode::invalid_argument,
              fmt::format("time to live {}: want 1s to {}", to_string(life), to_string(kLifeMax))});
  forget_old();
  if (entries_.size() >= options_.tokens_max)
    return done(Error{ErrorCode::resource_exhausted,
                      fmt::format("there are {} tokens, at most {} are allowed: revoke some",
                                  entries_.size(), options_.tokens_max)});
  NewToken made;
  const std::string secret = to_hex(random_secret(kSecretDigits / 2));
  made.record.id = to_hex(random_secret(kIdDigits / 2));
  made.record.hash = sha256(secret);
  made.record.roles = roles;
  made.record.created = options_.wall_clock();
  made.record.expires = made.record.created + life.ns / 1'000'000'000;
  made.text = made.record.id + "." + secret;
  write({made.record}, Revision{0}, [made, done = std::move(done)](const Status& written) {
    if (written.ok())
      done(made);
    else
      done(written.error());
  });
}

std::vector<TokenRecord> JoinTokens::list() const {
  std::vector<TokenRecord> out;
  for (const auto& [id, entry] : entries_) out.push_back(entry.record);
  return out;
}

void JoinTokens::revoke(const std::string& id, std::function<void(Status)> done) {
  if (!entries_.contains(id))
    return done(Error{ErrorCode::not_found,
                      fmt::format("token '{}': there is none with this id; `infos token list` "
                                  "shows those there are",
                                  id.substr(0, 100))});
  entries_.erase(id);
  store_.write({std::string(kPrefix) + id, std::nullopt, std::nullopt, "token"},
               [post = options_.post, done = std::move(done)](Result<StoreWritten> written) {
                 post([done, written = std::move(written)] {
                   done(written.ok() ? Status() : written.error());
                 });
               });
}

Result<TokenRecord> JoinTokens::take(std::string_view text, const std::string& source) {
  const Time now = options_.clock();
  if (!options_.attempts.allows(source, now))
    return Error{ErrorCode::resource_exhausted,
                 "too many wrong tokens from this address: try again in a few seconds"};
  const std::size_t dot = text.find('.');
  const std::string_view id = text.substr(0, dot);
  const std::string_view secret = dot == std::string_view::npos ? "" : text.substr(dot + 1);
  const auto found = entries_.find(id);
  // The same work whether the id is known or not.
  const std::string hash = sha256(is_hex(secret, kSecretDigits) ? secret : std::string_view());
  const std::string& wanted =
      found == entries_.end() ? std::string(32, '\0') : found->second.record.hash;
  const bool equal = equal_secrets(hash, wanted);
  if (!equal || found == entries_.end() || !found->second.record.used_by.empty() ||
      found->second.record.expires <= options_.wall_clock()) {
    options_.attempts.failed(source, now);
    return bad_token();
  }
  if (std::exchange(found->second.taken, true))
    return Error{ErrorCode::unavailable, "another node is joining with this token"};
  return found->second.record;
}

void JoinTokens::give_back(const std::string& id) {
  const auto found = entries_.find(id);
  if (found != entries_.end()) found->second.taken = false;
}

void JoinTokens::spend(const std::string& id, const std::string& node,
                       std::function<void(Status)> done) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return done(bad_token());  // revoked meanwhile
  Entry used = found->second;
  used.record.used_by = node;
  write(used, found->second.revision, std::move(done));
}

/// `expected` decides between two that want the same.
void JoinTokens::write(Entry entry, std::optional<Revision> expected,
                       std::function<void(Status)> done) {
  StoreWrite wish{std::string(kPrefix) + entry.record.id, encode(entry.record), expected, "token"};
  store_.write(std::move(wish), [this, alive = std::weak_ptr<int>(alive_), post = options_.post,
                                 entry = std::move(entry),
                                 done = std::move(done)](Result<StoreWritten> written) mutable {
    post([this, alive, entry = std::move(entry), done = std::move(done),
          written = std::move(written)] {
      if (alive.expired()) return;
      if (!written.ok()) return done(written.error());
      if (!written->applied) {
        entries_.erase(entry.record.id);
        return done(bad_token());
      }
      const std::string id = entry.record.id;
      const bool known = entries_.contains(id);
      if (known || entry.record.used_by.empty()) entries_[id] = {entry.record, written->revision};
      done({});
    });
  });
}

/// Those that nobody can use any more.
void JoinTokens::forget_old() {
  const UnixSeconds now = options_.wall_clock();
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    if (entry->second.record.expires > now) {
      ++entry;
      continue;
    }
    store_.write({std::string(kPrefix) + entry->first, std::nullopt, std::nullopt, "token"},
                 [](const Result<StoreWritten>&) {});
    entry = entries_.erase(entry);
  }
}

}  // namespace infos
