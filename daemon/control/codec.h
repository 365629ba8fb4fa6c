// SPDX-License-Identifier: Apache-2.0
// Protobuf bytes of the messages and events in this folder (schema: messages.proto): what crosses
// the worker's socket, and what `infosd --record` writes. Unknown fields are skipped and absent
// ones take their default, so versions N and N-1 understand each other. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

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

/// Which machine a record is of; the order is that of the alternatives below.
enum class CoreKind : std::uint8_t { gateway, worker, agent };
const char* to_string(CoreKind core);
using CoreConfig = std::variant<GatewayConfig, WorkerConfig, AgentConfig>;
using CoreEvent = std::variant<GatewayEvent, WorkerEvent, AgentEvent>;

/// A core begins to live: the first record of (kind, instance). A second one starts a new core in
/// its place.
struct RecordedStart {
  std::uint64_t instance =
      0;  ///< tells cores of one kind apart in one recording (a worker's id), else 0
  CoreConfig config;
  CoreKind core() const { return static_cast<CoreKind>(config.index()); }
  friend bool operator==(const RecordedStart&, const RecordedStart&) = default;
};
/// What a core was told, when.
struct RecordedEvent {
  std::uint64_t instance = 0;
  Time now;
  CoreEvent event;
  CoreKind core() const { return static_cast<CoreKind>(event.index()); }
  friend bool operator==(const RecordedEvent&, const RecordedEvent&) = default;
};
/// The running hash of a core's effects after `events` events: what a replay is held against.
struct RecordedHash {
  CoreKind core = CoreKind::gateway;
  std::uint64_t instance = 0;
  std::uint64_t events = 0;
  std::uint64_t hash = 0;
  friend bool operator==(const RecordedHash&, const RecordedHash&) = default;
};
using Record = std::variant<RecordedStart, RecordedEvent, RecordedHash>;
std::string encode(const Record& record);
Result<Record> decode_record(std::string_view bytes);

/// Hashes of effects, for "same seed, same hash" and replay: XXH3-64 over their protobuf bytes,
/// seeded with `running`. The hash of no effects is `running`. Start with 0.
std::uint64_t hash_effects(std::uint64_t running, const GatewayEffects& effects);
std::uint64_t hash_effects(std::uint64_t running, const WorkerEffects& effects);
std::uint64_t hash_effects(std::uint64_t running, const AgentEffects& effects);

}  // namespace infos
