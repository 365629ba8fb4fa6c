// SPDX-License-Identifier: Apache-2.0
// The field list of every message between workers: number, name, member, the same numbers as
// kv.proto. Internal to the codec.
#pragma once

#include "daemon/control/codec_kv.h"
#include "daemon/control/wire.h"

namespace infos {

using wire::Like;

template <typename A>
void fields(A& a, Like<TransferId> auto& m) {
  a(1, "request", m.request), a(2, "attempt", m.attempt), a(3, "serial", m.serial);
}
template <typename A>
void fields(A& a, Like<KvIdentity> auto& m) {
  a(1, "model", m.model), a(2, "checkpoint", m.checkpoint), a(3, "plugin_build", m.plugin_build),
      a(4, "epoch", m.epoch);
  a(5, "layers", m.layers), a(6, "kv_heads", m.kv_heads), a(7, "head_dim", m.head_dim),
      a(8, "dtype", m.dtype);
  a(9, "block_tokens", m.block_tokens), a(10, "ranks", m.ranks), a(11, "layout", m.layout);
}
template <typename A>
void fields(A& a, Like<KvEndpoint> auto& m) {
  a(1, "kind", m.kind), a(2, "host", m.host), a(3, "address", m.address);
}
template <typename A>
void fields(A& a, Like<KvGrant> auto& m) {
  a(1, "endpoint", m.endpoint), a(2, "rank", m.rank), a(3, "pool_key", m.pool_key),
      a(4, "stamp_key", m.stamp_key), a(5, "layout", m.layout);
}
template <typename A>
void fields(A& a, Like<KvAccess> auto& m) {
  a(1, "endpoints", m.endpoints), a(2, "grants", m.grants);
}
template <typename A>
void fields(A& a, Like<KvAsk> auto& m) {
  a(1, "transfer", m.transfer), a(2, "version", m.version), a(3, "version_min", m.version_min);
  a(4, "begin", m.begin), a(5, "end", m.end), a(6, "identity", m.identity),
      a(7, "may_differ", m.may_differ);
}
template <typename A>
void fields(A& a, Like<KvRenew> auto& m) {
  a(1, "transfer", m.transfer), a(2, "lease", m.lease), a(3, "blocks_known", m.blocks_known);
}
template <typename A>
void fields(A& a, Like<KvRelease> auto& m) {
  a(1, "transfer", m.transfer), a(2, "lease", m.lease), a(3, "how", m.how);
}
template <typename A>
void fields(A& a, Like<KvHold> auto& m) {
  a(1, "transfer", m.transfer);
}
template <typename A>
void fields(A& a, Like<KvOffer> auto& m) {
  a(1, "transfer", m.transfer), a(2, "lease", m.lease), a(3, "version", m.version);
  a(4, "lease_for", m.lease_for), a(5, "tokens", m.tokens), a(6, "identity", m.identity),
      a(7, "access", m.access);
}
template <typename A>
void fields(A& a, Like<KvRefuse> auto& m) {
  a(1, "transfer", m.transfer), a(2, "lease", m.lease), a(3, "field", m.field),
      a(4, "message", m.message);
}
template <typename A>
void fields(A& a, Like<KvReady> auto& m) {
  a(1, "blocks", m.blocks), a(2, "layers", m.layers);
}
template <typename A>
void fields(A& a, Like<KvAdvance> auto& m) {
  a(1, "transfer", m.transfer), a(2, "lease", m.lease), a(3, "sequence", m.sequence),
      a(4, "first", m.first);
  a(5, "blocks", m.blocks), a(6, "generations", m.generations), a(7, "ready", m.ready);
}

namespace wire {
template <>
inline constexpr std::uint64_t kEnumMax<KvReleaseHow> = 1;
template <>
inline constexpr const char* kName<KvAsk> = "kv_ask";
template <>
inline constexpr const char* kName<KvRenew> = "kv_renew";
template <>
inline constexpr const char* kName<KvRelease> = "kv_release";
template <>
inline constexpr const char* kName<KvHold> = "kv_hold";
template <>
inline constexpr const char* kName<KvOffer> = "kv_offer";
template <>
inline constexpr const char* kName<KvRefuse> = "kv_refuse";
template <>
inline constexpr const char* kName<KvAdvance> = "kv_advance";
}  // namespace wire

}  // namespace infos
