// SPDX-License-Identifier: Apache-2.0
// Who a node is: cluster, name, id and roles, as they stand in the URI of its certificate. Decides
// what is a legal name and a legal URI; there is one spelling of each identity. Pure; any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "topology/base/ids.h"
#include "topology/base/result.h"

namespace infos {

/// What a node may do and therefore say. `worker` computes any phase; `prefill` and `decode` only
/// that one.
enum class Role : std::uint8_t { controller, gateway, worker, prefill, decode };
constexpr std::uint32_t kRoles = 5;
const char* to_string(Role role);

/// A set of roles.
class RoleSet {
 public:
  constexpr RoleSet() = default;
  constexpr RoleSet(std::initializer_list<Role> roles) {
    for (const Role role : roles) bits_ |= bit(role);
  }
  static constexpr RoleSet all() {
    RoleSet set;
    set.bits_ = (1u << kRoles) - 1;
    return set;
  }
  constexpr bool has(Role role) const { return (bits_ & bit(role)) != 0; }
  /// Whether the two sets share a role.
  constexpr bool meets(RoleSet other) const { return (bits_ & other.bits_) != 0; }
  /// Whether each of `other` is in this set.
  constexpr bool covers(RoleSet other) const { return (other.bits_ & ~bits_) == 0; }
  constexpr bool empty() const { return bits_ == 0; }
  friend constexpr RoleSet operator|(RoleSet a, RoleSet b) {
    a.bits_ |= b.bits_;
    return a;
  }
  friend constexpr bool operator==(RoleSet, RoleSet) = default;

 private:
  static constexpr std::uint32_t bit(Role role) { return 1u << static_cast<std::uint32_t>(role); }
  std::uint32_t bits_ = 0;
};
/// "controller,gateway,worker", in the order of the enum.
std::string to_string(RoleSet roles);
/// Words between commas, in any order. Errors: invalid_argument, naming the word and those allowed.
Result<RoleSet> parse_roles(std::string_view text);

struct NodeIdentity {
  std::string cluster;
  std::string name;
  NodeId node;
  RoleSet roles;
  friend bool operator==(const NodeIdentity&, const NodeIdentity&) = default;
};

/// Largest node id: a RequestId keeps 16 bits for it.
constexpr std::uint32_t kNodeIdMax = 0xffff;

/// Names of clusters and nodes: 1 to 63 of a-z, 0-9, '-', '.', begun and ended by a letter or
/// digit. Errors: invalid_argument; `what` is "node name" or the like.
Status check_name(std::string_view what, std::string_view name);

/// "infos://CLUSTER/node/NAME/ID?roles=controller,worker".
std::string to_uri(const NodeIdentity& identity);
/// Errors: corrupt: anything that to_uri would not have written.
Result<NodeIdentity> parse_identity_uri(std::string_view uri);

}  // namespace infos
