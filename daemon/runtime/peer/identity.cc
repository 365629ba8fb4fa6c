// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/peer/identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace infos {
namespace {

bool letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

Error bad_uri(std::string_view uri, std::string_view why) {
  return {ErrorCode::corrupt,
          fmt::format("identity '{}': {}; want infos://CLUSTER/node/NAME/ID?roles=ROLE,...",
                      uri.substr(0, 300), why)};
}

/// The text up to `end`, which both are then taken off `rest`. Nothing when `end` is not there.
bool take_until(std::string_view& rest, std::string_view end, std::string_view& taken) {
  const std::size_t at = rest.find(end);
  if (at == std::string_view::npos) return false;
  taken = rest.substr(0, at);
  rest.remove_prefix(at + end.size());
  return true;
}

}  // namespace

const char* to_string(Role role) {
  switch (role) {
    case Role::controller:
      return "controller";
    case Role::gateway:
      return "gateway";
    case Role::worker:
      return "worker";
    case Role::prefill:
      return "prefill";
    case Role::decode:
      return "decode";
  }
  return "unknown";
}

std::string to_string(RoleSet roles) {
  std::string out;
  for (std::uint32_t i = 0; i < kRoles; ++i) {
    const Role role = static_cast<Role>(i);
    if (!roles.has(role)) continue;
    if (!out.empty()) out += ',';
    out += to_string(role);
  }
  return out;
}

Result<RoleSet> parse_roles(std::string_view text) {
  RoleSet set;
  std::string_view rest = text;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    std::uint32_t i = 0;
    while (i < kRoles && word != to_string(static_cast<Role>(i))) ++i;
    if (i == kRoles || set.has(static_cast<Role>(i)))
      return Error{ErrorCode::invalid_argument,
                   fmt::format("role '{}': want each of {} at most once, between commas",
                               word.substr(0, 60), to_string(RoleSet::all()))};
    set = set | RoleSet{static_cast<Role>(i)};
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  return set;
}

Status check_name(std::string_view what, std::string_view name) {
  const bool legal =
      !name.empty() && name.size() <= 63 && letter_or_digit(name.front()) &&
      letter_or_digit(name.back()) &&
      std::ranges::all_of(name, [](char c) { return letter_or_digit(c) || c == '-' || c == '.'; });
  if (legal) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("{} '{}': want 1 to 63 of a-z, 0-9, '-' and '.', begun and ended by a "
                           "letter or digit",
                           what, name.substr(0, 100))};
}

std::string to_uri(const NodeIdentity& identity) {
  return fmt::format("infos://{}/node/{}/{}?roles={}", identity.cluster, identity.name,
                     identity.node.value, to_string(identity.roles));
}

Result<NodeIdentity> parse_identity_uri(std::string_view uri) {
  if (uri.size() > 512) return bad_uri(uri, "longer than 512 bytes");
  std::string_view rest = uri, scheme, cluster, name, id;
  if (!take_until(rest, "infos://", scheme) || !scheme.empty() ||
      !take_until(rest, "/node/", cluster) || !take_until(rest, "/", name) ||
      !take_until(rest, "?roles=", id))
    return bad_uri(uri, "a part is missing");
  NodeIdentity identity;
  identity.cluster = cluster;
  identity.name = name;
  if (!check_name("cluster name", cluster).ok() || !check_name("node name", name).ok())
    return bad_uri(uri, "a name is not legal");
  const auto [end, code] = std::from_chars(id.data(), id.data() + id.size(), identity.node.value);
  if (code != std::errc() || end != id.data() + id.size() || identity.node.value == 0 ||
      identity.node.value > kNodeIdMax)
    return bad_uri(uri, fmt::format("the id must be from 1 to {}", kNodeIdMax));
  Result<RoleSet> roles = parse_roles(rest);
  if (!roles.ok()) return bad_uri(uri, roles.error().message);
  identity.roles = *roles;
  if (to_uri(identity) != uri) return bad_uri(uri, "not in its one spelling");
  return identity;
}

}  // namespace infos
