// SPDX-License-Identifier: Apache-2.0
// The door of the simulator: plain options in, a plain report out. Drives the production cores
// (gateway, agent, workers) from a virtual clock, a modelled network and modelled devices. Same
// options, same report, same hash. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "daemon/control/agent_core.h"
#include "daemon/control/gateway_core.h"
#include "daemon/control/recording.h"
#include "daemon/control/worker_core.h"

namespace infos {

/// A device's speed: a step takes `step + prefill_row x rows + decode_row x sequences` (x up to 1 +
/// jitter).
struct DeviceFigures {
  Duration step = microseconds(2000);
  Duration prefill_row = microseconds(100);
  Duration decode_row = microseconds(200);
  Duration load = seconds(2);  ///< from spawn to serving
  double jitter = 0.05;
};

/// What clients ask for: independent arrivals, lengths uniform between bounds.
struct WorkloadFigures {
  std::uint64_t requests = 1000;
  double requests_per_second = 20;
  std::uint32_t prompt_tokens_min = 16;
  std::uint32_t prompt_tokens_max = 256;
  std::uint32_t answer_tokens_min = 8;
  std::uint32_t answer_tokens_max = 128;
  double shared_prefix = 0.3;         ///< share of requests that begin like others
  std::uint32_t shared_prefixes = 8;  ///< how many such beginnings there are
  double stop_tokens = 0.3;           ///< share of requests that a stop token may end early
  double deadline = 0;                ///< share of requests with a deadline
  double nonsense =
      0;  ///< share of requests that must be refused (unknown model, no or too long prompt)
};

/// What goes wrong until the world heals. Chances are per opportunity, gaps are mean times between
/// two of a kind (0: never).
struct FaultFigures {
  Duration worker_death_gap{};
  Duration worker_hang_gap{};
  Duration worker_slow_gap{};  ///< a worker computes 10 times slower for a while
  Duration worker_roll_gap{};  ///< its spec changes: drain, then a new process
  double spawn_failure = 0;    ///< per spawn
  double slow_start = 0;       ///< per spawn
  double step_failure = 0;     ///< per step
  double client_gone = 0;      ///< per request, at a random moment
  double client_stop = 0;      ///< per request: the shell finds a stop string at a random moment
  double message_late = 0;     ///< per message
  double message_twice = 0;    ///< per message
  double message_lost = 0;     ///< per message: the stream breaks, the worker's process ends
  // Of worlds with several nodes or split requests:
  Duration node_death_gap{};
  Duration link_cut_gap{};  ///< reset, silent, one way, or of the data path alone
  double letter_lost = 0;   ///< per letter between workers
  double letter_late = 0;
  double letter_twice = 0;
  double move_corrupt = 0;  ///< per move of KV: a row arrives changed
  double move_torn = 0;     ///< its bytes are read later than the stamps that prove them
  double move_held = 0;     ///< it lands seconds late, whatever is said of it meanwhile
  double move_failed = 0;
  double move_slow = 0;  ///< takes ten times as long
};

/// Several nodes, and workers with roles. Node 0 has the gateway; workers are dealt out in turn.
struct ClusterFigures {
  std::uint32_t nodes = 1;
  std::uint32_t prefill_workers =
      0;  ///< the first of all workers; the rest decode, if there are any
  Duration latency = microseconds(100);  ///< of a message between nodes
  Bandwidth link{1.25e9};                ///< out of and into each node
  Bandwidth memory{1e10};                ///< between workers of one node
  std::uint64_t kv_bytes_per_token = 100'000;
  std::uint32_t prefill_block_tokens = 0;  ///< 0: as all
  bool is_plain() const { return nodes == 1 && prefill_workers == 0; }
};

struct SimulateOptions {
  std::uint64_t seed = 1;
  std::uint32_t workers = 1;
  ClusterFigures cluster;
  DeviceFigures device;
  WorkloadFigures workload;
  FaultFigures faults;
  WorkerConfig worker{.kv_blocks = 4096, .max_context = 4096};
  GatewayConfig gateway;
  AgentConfig agent;
  Duration latency = microseconds(50);  ///< of a message between gateway and worker
  Duration heal_after = seconds(60);    ///< no faults from here on
  Duration converge_within =
      seconds(900);  ///< after healing and the last arrival, all must be answered
  /// `off`: capacity figures as fast as possible. `every_event`: invariants after each event.
  enum class Checks { off, every_event } checks = Checks::off;
  enum class Hash {
    off,
    effects
  } hash = Hash::effects;  ///< off: report.hash covers the clients' view alone
  enum class Record { off, on } record = Record::off;

  /// For tests of the invariants alone: spoils what a core wishes.
  std::function<void(GatewayEffects&)> spoil_gateway;
  std::function<void(WorkerEffects&)> spoil_worker;
};

/// Of durations in virtual time. Relative error below 2 %.
struct Percentiles {
  std::uint64_t count = 0;
  double mean_ms = 0, p50_ms = 0, p90_ms = 0, p99_ms = 0, max_ms = 0;
};

struct SimulateReport {
  std::uint64_t seed = 0;
  std::string violation;  ///< the first broken invariant, with time and place; empty: none
  std::uint64_t requests = 0;
  std::map<std::string, std::uint64_t>
      outcomes;                      ///< stop, length, cancelled, error, rejected-429, ...
  std::uint64_t prompt_tokens = 0;   ///< of answered requests
  std::uint64_t cached_tokens = 0;   ///< of those, not computed
  std::uint64_t tokens = 0;          ///< delivered
  std::uint64_t retries = 0;         ///< attempts beyond the first
  std::uint64_t split = 0;           ///< attempts on two workers
  std::uint64_t fetched_tokens = 0;  ///< whose KV came from another worker
  std::uint64_t bytes_sent = 0;      ///< of KV
  std::uint64_t bytes_received = 0;
  std::map<std::string, std::uint64_t> bytes_dropped;  ///< by reason
  std::uint64_t preemptions = 0;
  std::uint64_t events = 0;                     ///< told to cores
  std::uint64_t steps = 0;                      ///< run on devices
  std::map<std::string, std::uint64_t> faults;  ///< injected, by kind
  double virtual_seconds = 0;
  double tokens_per_second = 0;  ///< in virtual time
  Percentiles first_token, inter_token, whole_answer;
  std::uint64_t hash = 0;
  std::string
      recording;  ///< with Record::on: bytes for a file that `infos simulate --replay` takes
};

SimulateReport simulate(const SimulateOptions& options);

/// The swarm: sizes, loads and a subset of faults drawn from the seed.
SimulateOptions fuzz_options(std::uint64_t seed, std::uint64_t requests);

struct FuzzOptions {
  std::uint64_t first_seed = 1;
  std::uint64_t seeds = 100;
  std::uint64_t requests = 60;                       ///< per seed
  std::uint64_t failures_max = 5;                    ///< then it stops
  std::function<void(std::uint64_t seed)> progress;  ///< after each seed
};
struct FuzzFailure {
  std::uint64_t seed = 0;
  std::string violation;
};
struct FuzzReport {
  std::uint64_t seeds = 0, requests = 0, events = 0, tokens = 0, split = 0, fetched_tokens = 0;
  std::map<std::string, std::uint64_t> faults, outcomes;
  std::vector<FuzzFailure> failures;
};
FuzzReport fuzz(const FuzzOptions& options);

std::string to_json(const SimulateReport& report);
std::string to_json(const FuzzReport& report);
std::string to_json(const ReplayReport& report);

}  // namespace infos
