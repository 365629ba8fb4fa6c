// SPDX-License-Identifier: Apache-2.0
// The field lists of plans and of the words between daemons: the same numbers as messages.proto.
// Internal to the codec.
#pragma once

#include "daemon/control/codec_fields.h"
#include "daemon/control/peer_messages.h"

namespace infos {

// ---- plans
template <typename A>
void fields(A& a, Like<PlannedNode> auto& m) {
  a(1, "node", m.node), a(2, "name", m.name), a(3, "drained", m.drained),
      a(4, "address", m.address);
}
template <typename A>
void fields(A& a, Like<PlannedModel> auto& m) {
  a(1, "name", m.name), a(2, "source", m.source), a(3, "max_context", m.max_context),
      a(4, "drained", m.drained);
}
template <typename A>
void fields(A& a, Like<PlannedWorker> auto& m) {
  a(1, "node", m.node), a(2, "pool", m.pool), a(3, "device", m.device), a(4, "replica", m.replica);
  a(5, "role", m.role), a(6, "spec", m.spec);
}
template <typename A>
void fields(A& a, Like<Plan> auto& m) {
  a(1, "epoch", m.epoch), a(2, "term", m.term), a(3, "nodes", m.nodes), a(4, "models", m.models);
  a(5, "workers", m.workers), a(6, "notes", m.notes), a(7, "last_worker", m.last_worker),
      a(8, "spec", m.spec);
}

// ---- between daemons
template <typename A>
void fields(A& a, Like<ToRemoteWorker> auto& m) {
  a(1, "to", m.to), a(2, "message", m.message);
}
template <typename A>
void fields(A& a, Like<FromRemoteWorker> auto& m) {
  a(1, "from", m.from), a(2, "report", m.report);
}
template <typename A>
void fields(A& a, Like<RemoteWorkerUp> auto& m) {
  a(1, "worker", m.worker), a(2, "ready", m.ready);
}
template <typename A>
void fields(A& a, Like<RemoteWorkerDown> auto& m) {
  a(1, "worker", m.worker), a(2, "why", m.why);
}
template <typename A>
void fields(A& a, Like<RelayedLetter> auto& m) {
  a(1, "letter", m.letter);
}
template <typename A>
void fields(A& a, Like<PlanPush> auto& m) {
  a(1, "plan", m.plan);
}
template <typename A>
void fields(A& a, Like<NodeReport> auto& m) {
  a(1, "applied", m.applied), a(2, "refused", m.refused), a(3, "workers", m.workers);
}
template <typename A>
void fields(A& a, Like<AdminAsk> auto& m) {
  a(1, "id", m.id), a(2, "path", m.path), a(3, "body", m.body);
}
template <typename A>
void fields(A& a, Like<AdminAnswer> auto& m) {
  a(1, "id", m.id), a(2, "status", m.status), a(3, "body", m.body);
}

namespace wire {
template <>
inline constexpr const char* kName<ToRemoteWorker> = "to_remote_worker";
template <>
inline constexpr const char* kName<FromRemoteWorker> = "from_remote_worker";
template <>
inline constexpr const char* kName<RemoteWorkerUp> = "remote_worker_up";
template <>
inline constexpr const char* kName<RemoteWorkerDown> = "remote_worker_down";
template <>
inline constexpr const char* kName<RelayedLetter> = "relayed_letter";
template <>
inline constexpr const char* kName<PlanPush> = "plan_push";
template <>
inline constexpr const char* kName<NodeReport> = "node_report";
template <>
inline constexpr const char* kName<AdminAsk> = "admin_ask";
template <>
inline constexpr const char* kName<AdminAnswer> = "admin_answer";
}  // namespace wire

}  // namespace infos
