// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/peer/token_admin.h"

#include <fmt/format.h>

#include <utility>

#include <boost/json.hpp>

namespace infos {
namespace {

namespace json = boost::json;

constexpr std::string_view kDefaultRoles = "gateway,worker";
constexpr std::string_view kDefaultLife = "1h";

/// The members of `body`, all of them texts with names from `allowed`.
Result<json::object> texts_of(std::string_view body, std::initializer_list<const char*> allowed) {
  json::error_code failed;
  json::value value = body.empty() ? json::value(json::object()) : json::parse(body, failed);
  if (failed || !value.is_object())
    return Error{ErrorCode::invalid_argument, "body: want a JSON object"};
  for (const auto& [name, member] : value.as_object()) {
    bool known = false;
    for (const char* word : allowed) known = known || name == word;
    if (!known || !member.is_string())
      return Error{ErrorCode::invalid_argument,
                   fmt::format("body: '{}': not known here, or not a text",
                               std::string_view(name).substr(0, 100))};
  }
  return std::move(value).as_object();
}

std::string member(const json::object& object, const char* name, std::string_view fallback) {
  const json::value* value = object.if_contains(name);
  return std::string(value ? std::string_view(value->as_string()) : fallback);
}

}  // namespace

TokenAdmin::TokenAdmin(JoinTokens& tokens, Cluster cluster)
    : tokens_(tokens), cluster_(std::move(cluster)) {}

void TokenAdmin::create(std::string_view body, Done done) {
  const Result<json::object> asked = texts_of(body, {"roles", "ttl"});
  if (!asked.ok()) return done(asked.error());
  const Result<RoleSet> roles = parse_roles(member(*asked, "roles", kDefaultRoles));
  if (!roles.ok()) return done(roles.error());
  const Result<Duration> life = parse_duration(member(*asked, "ttl", kDefaultLife));
  if (!life.ok()) return done(life.error());
  tokens_.create(
      *roles, *life,
      [cluster = cluster_, done = std::move(done)](const Result<JoinTokens::NewToken>& made) {
        if (!made.ok()) return done(made.error());
        const TokenRecord& record = made->record;
        json::object out;
        out["id"] = record.id;
        out["token"] = made->text;
        out["roles"] = to_string(record.roles);
        out["expires"] = record.expires;
        out["cluster"] = cluster.name;
        out["address"] = cluster.address;
        out["ca_hash"] = cluster.authority_hash;
        out["command"] = fmt::format("infos join {} --token {} --ca-hash {}", cluster.address,
                                     made->text, cluster.authority_hash);
        done(json::serialize(out) + "\n");
      });
}

void TokenAdmin::list(Done done) const {
  json::array rows;
  for (const TokenRecord& record : tokens_.list()) {
    const char* state = "open";
    if (!record.used_by.empty())
      state = "used";
    else if (record.expires <= tokens_.wall_now())
      state = "expired";
    rows.push_back({{"id", record.id},
                    {"roles", to_string(record.roles)},
                    {"created", record.created},
                    {"expires", record.expires},
                    {"state", state},
                    {"used_by", record.used_by}});
  }
  done(json::serialize(json::object{{"tokens", std::move(rows)}}) + "\n");
}

void TokenAdmin::revoke(std::string_view body, Done done) {
  const Result<json::object> asked = texts_of(body, {"id"});
  if (!asked.ok()) return done(asked.error());
  const std::string id = member(*asked, "id", "");
  tokens_.revoke(id, [id, done = std::move(done)](const Status& revoked) {
    if (!revoked.ok()) return done(revoked.error());
    done(json::serialize(json::object{{"revoked", id}}) + "\n");
  });
}

}  // namespace infos
