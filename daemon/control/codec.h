// SPDX-License-Identifier: Apache-2.0
// Protobuf bytes of the messages and events in this folder: what crosses the worker's socket, and what `infosd --record`
// writes. Unknown fields are skipped and absent ones take their default, so versions N and N-1 understand each other.
#pragma once

#include <string>
#include <string_view>

#include "daemon/control/agent_core.h"
#include "daemon/control/gateway_core.h"
#include "daemon/control/messages.h"
#include "daemon/control/worker_core.h"
#include "topology/base/result.h"

namespace infos {

/// Bound on one frame's payload, checked before anything is allocated for it.
constexpr std::size_t kFrameBytesMax = 64u << 20;

std::string encode(const ToWorker& message);
std::string encode(const FromWorker& message);
/// Errors: corrupt, naming the field.
Result<ToWorker> decode_to_worker(std::string_view bytes);
Result<FromWorker> decode_from_worker(std::string_view bytes);

/// One line of a recording: which core, when, what.
struct RecordedEvent {
  enum class Core : std::uint8_t { gateway, worker, agent };
  Core core = Core::gateway;
  Time now;
  std::variant<GatewayEvent, WorkerEvent, AgentEvent> event;
};
std::string encode(const RecordedEvent& event);
Result<RecordedEvent> decode_recorded(std::string_view bytes);

/// Hashes of effects, for "same seed, same hash" and replay: a running XXH3-64 over their protobuf bytes.
std::uint64_t hash_effects(std::uint64_t running, const GatewayEffects& effects);
std::uint64_t hash_effects(std::uint64_t running, const WorkerEffects& effects);
std::uint64_t hash_effects(std::uint64_t running, const AgentEffects& effects);

}  // namespace infos
