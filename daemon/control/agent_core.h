// SPDX-License-Identifier: Apache-2.0
// AgentCore keeps a node's workers as they should be: starts them, watches them, restarts them with
// exponential back-off, stops them gently and then by force. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "daemon/control/messages.h"
#include "topology/base/units.h"

namespace infos {

struct AgentConfig {
  Duration start_timeout = seconds(600);  ///< from spawn to ready (loading weights takes long)
  Duration silence_limit =
      seconds(30);  ///< no sign of progress while a step runs: the worker is hung
  Duration stop_timeout = seconds(10);  ///< from "drain" to kill
  Duration backoff_first = milliseconds(100);
  Duration backoff_max = seconds(30);
  Duration healthy_after = seconds(30);  ///< a run this long resets the back-off
  std::uint64_t seed = 1;                ///< jitter of the back-off
  Generation generation_base;  ///< each slot's first process has the next one
  friend bool operator==(const AgentConfig&, const AgentConfig&) = default;
};

/// What one worker slot should run. Two specs that differ mean: replace the process.
struct WorkerSpec {
  WorkerId worker;
  std::string model;                           ///< the name it serves
  std::string source;                          ///< path of the checkpoint
  std::string device;                          ///< "cpu"
  std::map<std::string, std::string> options;  ///< threads, cores, kv_memory, block_tokens, ...
  friend bool operator==(const WorkerSpec&, const WorkerSpec&) = default;
};

// ---- events ----

/// The whole wish; replaces the last one.
struct Desired {
  std::vector<WorkerSpec> workers;
  friend bool operator==(const Desired&, const Desired&) = default;
};
struct WorkerSpawned {
  WorkerId worker;
  Generation generation;
  friend bool operator==(const WorkerSpawned&, const WorkerSpawned&) = default;
};
struct SpawnFailed {
  WorkerId worker;
  Generation generation;
  std::string message;
  friend bool operator==(const SpawnFailed&, const SpawnFailed&) = default;
};
/// The process said WorkerReady.
struct WorkerServing {
  WorkerId worker;
  Generation generation;
  WorkerReady ready;
  friend bool operator==(const WorkerServing&, const WorkerServing&) = default;
};
/// It showed progress or is idle (the shell samples the shared status page).
struct WorkerAlive {
  WorkerId worker;
  Generation generation;
  friend bool operator==(const WorkerAlive&, const WorkerAlive&) = default;
};
/// Its process ended: exit status or signal, in words.
struct WorkerExited {
  WorkerId worker;
  Generation generation;
  std::string how;
  bool permanent = false;  ///< it said that trying again is pointless (bad checkpoint)
  friend bool operator==(const WorkerExited&, const WorkerExited&) = default;
};
struct AgentTick {
  friend bool operator==(const AgentTick&, const AgentTick&) = default;
};
using AgentEvent = std::variant<Desired, WorkerSpawned, SpawnFailed, WorkerServing, WorkerAlive,
                                WorkerExited, AgentTick>;

// ---- effects ----

/// Start a process; answered by WorkerSpawned or SpawnFailed, and once by WorkerExited.
struct Spawn {
  Generation generation;
  WorkerSpec spec;
  friend bool operator==(const Spawn&, const Spawn&) = default;
};
/// Ask it to drain and exit.
struct AskStop {
  WorkerId worker;
  Generation generation;
  friend bool operator==(const AskStop&, const AskStop&) = default;
};
/// SIGKILL.
struct Kill {
  WorkerId worker;
  Generation generation;
  friend bool operator==(const Kill&, const Kill&) = default;
};
/// Tell the gateway (it becomes WorkerUp / WorkerDown there).
struct AnnounceUp {
  WorkerId worker;
  Generation generation;
  WorkerReady ready;
  friend bool operator==(const AnnounceUp&, const AnnounceUp&) = default;
};
struct AnnounceDown {
  WorkerId worker;
  Generation generation;
  std::string why;
  friend bool operator==(const AnnounceDown&, const AnnounceDown&) = default;
};
using AgentEffect = std::variant<Spawn, AskStop, Kill, AnnounceUp, AnnounceDown>;
using AgentEffects = std::vector<AgentEffect>;

/// For `infos get workers`: one row.
struct WorkerStatus {
  WorkerSpec spec;
  Generation generation;
  std::string phase;  ///< starting, serving, stopping, backing-off, failed
  std::uint32_t restarts = 0;
  std::string last_exit;  ///< how the last process ended
};

class AgentCore {
 public:
  explicit AgentCore(const AgentConfig& config);
  ~AgentCore();
  AgentCore(AgentCore&&) noexcept;
  AgentCore& operator=(AgentCore&&) noexcept;

  void step(Time now, const AgentEvent& event, AgentEffects& out);
  Time next_deadline() const;
  std::vector<WorkerStatus> workers() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace infos
