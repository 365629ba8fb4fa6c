// SPDX-License-Identifier: Apache-2.0
// The spec: what an operator writes (multi-document YAML), as plain values. Owns the words and
// their defaults; the keys are declared once, in fields_*.cc. Pure: reads text, never a file; any
// thread. Says all errors at once, and gives nothing to act on when there is one.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/base/result.h"
#include "topology/base/units.h"

namespace infos {

/// Where in the given files something was written. Lines and columns count from 1; columns are
/// bytes.
struct SpecPlace {
  std::uint32_t file = 0;  ///< index into the files given to parse_spec
  std::uint32_t line = 0;  ///< 0: not written anywhere (a default)
  std::uint32_t column = 0;
  friend auto operator<=>(const SpecPlace&, const SpecPlace&) = default;
};

/// A name that must exist elsewhere, with the place where it was used.
struct SpecRef {
  std::string name;
  SpecPlace place;
};

/// Logical cores: "0-3,8" written out.
using CoreList = std::vector<std::uint32_t>;

// ---- Cluster ----

struct DeviceSpec {
  SpecPlace place;
  std::string name;
  std::string backend = "cpu";         ///< cpu, cuda, rocm, plugin
  std::string library;                 ///< backend `plugin`: the shared object
  std::string profile;                 ///< a name of the catalogue; empty: measured at start
  CoreList cores;                      ///< cpu only
  std::optional<Bytes> memory;         ///< bound on weights + KV + scratch
  std::optional<std::uint32_t> index;  ///< which of the backend's devices
};

struct NodeSpec {
  SpecPlace place;
  std::string name;
  std::string address;  ///< host:port
  std::vector<DeviceSpec> devices;
};

enum class LinkKind { rdma, tcp, shm, pcie, nvlink };
struct LinkSpec {
  SpecPlace place;
  std::vector<SpecRef> between;  ///< two of: node, or node/device
  LinkKind kind = LinkKind::tcp;
  std::optional<Bandwidth> bandwidth;
  std::optional<Duration> latency;
};

struct StateSpec {
  SpecPlace place;
  std::string sqlite;             ///< path of the database
  std::vector<std::string> etcd;  ///< endpoints
};

struct ClusterSpec {
  SpecPlace place;
  std::string name;
  std::vector<NodeSpec> nodes;
  std::vector<LinkSpec> links;
  StateSpec state;
};

// ---- Model ----

struct SloSpec {
  std::optional<Duration> ttft;  ///< to the first token
  std::optional<Duration> tpot;  ///< from token to token
  double percentile = 95;
};

enum class TopologyKind { automatic, aggregated, prefill_decode, attention_ffn };
enum class Phase { aggregated, prefill, decode, attention, ffn };
enum class Numerics { exact, bounded, permissive };

/// What a pool's engines have otherwise than the model's `engine`; what is absent is the model's.
struct PoolEngineSpec {
  std::optional<std::uint32_t> threads;
  CoreList cores;
  std::optional<Bytes> kv_memory;
  std::string kv_dtype;  ///< empty: the model's
  std::optional<std::uint32_t> block_tokens;
  std::optional<std::uint32_t> max_step_tokens;
  std::optional<std::uint32_t> max_running;
  std::string device_options;
};

struct PoolSpec {
  SpecPlace place;
  Phase phase = Phase::aggregated;
  std::vector<SpecRef> devices;  ///< node/device; empty: the planner chooses
  std::uint32_t replicas = 1;
  std::uint32_t tensor_parallel = 1;
  PoolEngineSpec engine;
};

struct ReplicaSpec {
  SpecPlace place;
  std::uint32_t min = 1;
  std::uint32_t max = 1;
};

/// Options of each worker's engine; a zero or empty value means that the engine chooses.
struct EngineSpec {
  std::string backend = "cpu";
  std::uint32_t threads = 0;
  CoreList cores;
  std::optional<Bytes> kv_memory;
  std::string kv_dtype = "auto";  ///< auto, f32, f16, bf16
  std::uint32_t block_tokens = 16;
  std::uint32_t max_step_tokens = 512;
  std::uint32_t max_running = 64;
  std::uint32_t max_context = 0;
  std::string device_options;  ///< "key=value,...", passed to the backend
};

struct ModelSpec {
  SpecPlace place;
  std::string name;
  std::string source;
  SloSpec slo;
  TopologyKind topology = TopologyKind::automatic;
  std::vector<PoolSpec> pools;
  ReplicaSpec replicas;
  Numerics numerics = Numerics::exact;
  EngineSpec engine;
};

// ---- Workload ----

enum class ArrivalProcess { poisson, constant, gamma, closed };
struct ArrivalSpec {
  SpecPlace place;
  ArrivalProcess process = ArrivalProcess::poisson;
  std::optional<double> rate;                ///< requests/s: poisson, constant, gamma
  std::optional<double> cv;                  ///< coefficient of variation of the gaps: gamma
  std::optional<std::uint32_t> concurrency;  ///< requests in flight: closed
};

enum class LengthShape { fixed, uniform, normal, lognormal };
/// A distribution of token counts.
struct LengthSpec {
  SpecPlace place;
  LengthShape shape = LengthShape::fixed;
  double mean = 128;
  double deviation = 0;
  std::uint32_t min = 1;
  std::uint32_t max = 1u << 20;
};

struct PrefixSpec {
  double share = 0;          ///< part of the requests that begin with a shared prefix
  std::uint32_t tokens = 0;  ///< length of a shared prefix
  std::uint32_t groups = 1;  ///< how many different ones
};

enum class TraceFormat { csv, jsonl };
struct TraceSpec {
  std::string file;
  TraceFormat format = TraceFormat::csv;
  double speed = 1;  ///< 2: twice as fast as recorded
};

struct WorkloadSpec {
  SpecPlace place;
  std::string name;
  SpecRef model;
  std::uint64_t seed = 1;
  std::optional<ArrivalSpec> arrivals;
  std::optional<TraceSpec> trace;
  LengthSpec prompt;
  LengthSpec output;
  PrefixSpec prefix;
  std::optional<std::uint64_t> requests;
  std::optional<Duration> duration;
};

// ---- Policy, Tenant ----

struct AdmissionSpec {
  std::uint32_t max_queue = 1024;
  Duration max_wait = seconds(60);
  std::uint32_t max_prompt_tokens = 0;  ///< 0: the model's context
  std::uint32_t max_output_tokens = 0;  ///< 0: the model's context
  bool deadline_aware = false;
};

struct SwapSpec {
  bool automatic = false;
  double min_gain = 0.1;  ///< predicted gain, as a part of now
  Duration dwell = seconds(60);
  Duration rollback_window = seconds(300);
};

struct AutoscaleSpec {
  Duration idle_before_zero = seconds(600);
  double target_utilisation = 0.8;
};

struct PolicySpec {
  SpecPlace place;
  std::string name;
  AdmissionSpec admission;
  SwapSpec swap;
  AutoscaleSpec autoscale;
};

struct TenantLimits {
  std::optional<std::uint32_t> requests_per_minute;
  std::optional<std::uint32_t> tokens_per_minute;
  std::optional<std::uint32_t> max_running;
};

struct TenantSpec {
  SpecPlace place;
  std::string name;
  std::string keys_file;        ///< one API key a line
  std::vector<SpecRef> models;  ///< empty: all
  TenantLimits limits;
  std::uint32_t priority = 0;
};

// ---- reading ----

struct SpecSet {
  std::vector<ClusterSpec> clusters;  ///< at most one
  std::vector<ModelSpec> models;
  std::vector<WorkloadSpec> workloads;
  std::vector<PolicySpec> policies;  ///< at most one
  std::vector<TenantSpec> tenants;
};

struct SpecFile {
  std::string name;  ///< as errors should call it
  std::string text;
};

struct SpecError {
  std::string file;
  std::uint32_t line = 1;
  std::uint32_t column = 1;
  std::string message;  ///< what was seen, what is allowed
  /// "file:line:col: message".
  std::string text() const;
};

/// `set` is to be acted on only when ok().
struct SpecOutcome {
  SpecSet set;
  std::vector<SpecError> errors;  ///< in the order of files, lines, columns; at most kSpecErrorsMax
  bool ok() const { return errors.empty(); }
  /// All errors, one a line.
  std::string error_text() const;
};

constexpr std::size_t kSpecBytesMax = 1u << 20;  ///< of one file
constexpr std::size_t kSpecDepthMax = 24;        ///< nested maps and lists
constexpr std::size_t kSpecNodesMax = 200'000;   ///< values in one file
constexpr std::size_t kSpecDocumentsMax = 4096;  ///< in one file
constexpr std::size_t kSpecErrorsMax = 100;

/// Whether a Model that a Tenant or Workload names must be in the same files, or may have been
/// applied earlier.
enum class SpecReferences { within_files, may_be_elsewhere };

/// Reads all documents of all files and checks them alone and against each other.
SpecOutcome parse_spec(std::span<const SpecFile> files,
                       SpecReferences references = SpecReferences::within_files);

/// Every kind, key, type, default and meaning as Markdown: docs/spec-reference.md.
std::string spec_reference();

/// The words as they are written in YAML.
const char* to_string(LinkKind kind);
const char* to_string(TopologyKind kind);
const char* to_string(Phase phase);
const char* to_string(Numerics numerics);
const char* to_string(ArrivalProcess process);
const char* to_string(LengthShape shape);
const char* to_string(TraceFormat format);

/// "0-3,8" to {0, 1, 2, 3, 8}. Errors: invalid_argument (empty, reversed, double, above 4095).
Result<CoreList> parse_cores(std::string_view text);
/// The shortest text that parse_cores turns into `cores`. Requires: ascending.
std::string to_string(const CoreList& cores);

}  // namespace infos
