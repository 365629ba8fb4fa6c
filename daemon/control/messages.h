// SPDX-License-Identifier: Apache-2.0
// The words that gateway, workers and agent say to each other: plain values, the same in production
// (carried as protobuf frames by codec.h) and in the simulator (handed over as they are). Adding a
// field: here and in codec.cc.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "topology/base/ids.h"
#include "topology/base/units.h"
#include "topology/model/sampling.h"

namespace infos {

/// Why a sequence ended.
enum class FinishReason : std::uint8_t {
  none,
  stop,       ///< an end token or stop string
  length,     ///< max tokens, or the model's context is full
  cancelled,  ///< the client went away or said so
  error,      ///< could not be served; `message` says why
  prefilled,  ///< of a `kv_for` submission: the prompt is computed and kept for the other worker
};

/// One process of a worker slot.
struct WorkerRef {
  WorkerId worker;
  Generation generation;
  friend auto operator<=>(const WorkerRef&, const WorkerRef&) = default;
};

/// Where KV may be fetched from, or for whom it is computed. No worker: nowhere, nobody.
struct KvPeer {
  WorkerRef worker;
  std::uint32_t tokens = 0;  ///< how many leading tokens' KV is meant
  friend bool operator==(const KvPeer&, const KvPeer&) = default;
};

// ---- gateway -> worker ----

/// Generate for a request. `tokens` is the prompt followed by what was emitted on earlier attempts;
/// generation goes on after its last token, and token n of the answer is drawn with (seed, n)
/// whatever attempt draws it.
struct Submit {
  RequestId request;
  Attempt attempt;
  std::vector<TokenId> tokens;
  std::uint32_t prompt_tokens = 0;   ///< how many of `tokens` are prompt
  std::uint32_t max_new_tokens = 0;  ///< of the whole answer, emitted ones included
  std::vector<TokenId> stop_tokens;  ///< end the answer and are not part of it
  SamplingParams sampling;
  std::int32_t priority = 0;  ///< lower first
  /// The decode side of a split request: another worker computes the KV of the first tokens under
  /// the same request and attempt. What cannot be fetched and proven is computed here.
  KvPeer kv_from;
  /// The prefill side: compute the prompt, keep its KV for that worker to fetch, and end with
  /// `prefilled`. Tokens up to max_new_tokens (usually 1) are drawn and reported as ever.
  KvPeer kv_for;
  friend bool operator==(const Submit&, const Submit&) = default;
};

/// Forget a request and free its blocks. Unknown requests are ignored.
struct Cancel {
  RequestId request;
  Attempt attempt;
  friend bool operator==(const Cancel&, const Cancel&) = default;
};

/// Finish what runs, take nothing new.
struct Drain {
  friend bool operator==(const Drain&, const Drain&) = default;
};

/// What one worker says to another, about KV; their daemons carry it. The body is opaque to them.
struct KvLetter {
  WorkerRef from;
  WorkerRef to;
  std::string body;  ///< kv_messages.h
  friend bool operator==(const KvLetter&, const KvLetter&) = default;
};

/// Another worker's process has ended, or its node is believed dead: nothing more comes from it by
/// letter. Its data links must be fenced before its blocks are used again.
struct PeerGone {
  WorkerRef peer;
  friend bool operator==(const PeerGone&, const PeerGone&) = default;
};

/// Of a submission with `kv_from`: that worker will not compute (more of) it.
struct KvWithheld {
  RequestId request;
  Attempt attempt;
  friend bool operator==(const KvWithheld&, const KvWithheld&) = default;
};

using ToWorker = std::variant<Submit, Cancel, Drain, KvLetter, PeerGone, KvWithheld>;

// ---- worker -> gateway ----

struct TokenOut {
  RequestId request;
  Attempt attempt;
  std::uint32_t index = 0;  ///< 0-based place in the answer; a gap or repeat is a protocol error
  SampledToken sampled;
  friend bool operator==(const TokenOut&, const TokenOut&) = default;
};

struct SequenceEnd {
  RequestId request;
  Attempt attempt;
  FinishReason reason = FinishReason::none;
  std::uint32_t cached_tokens = 0;  ///< prompt tokens whose KV was reused
  std::string message;              ///< for `error`
  bool retryable = false;  ///< for `error`: the worker's fault, another attempt may succeed
  std::uint32_t answer_tokens =
      0;  ///< emitted in all, earlier attempts included: shows whether any was lost
  friend bool operator==(const SequenceEnd&, const SequenceEnd&) = default;
};

/// What routing and metrics need to know of a worker.
struct WorkerLoad {
  std::uint32_t running = 0;
  std::uint32_t waiting = 0;
  std::uint32_t kv_blocks_total = 0;
  std::uint32_t kv_blocks_used = 0;      ///< referenced by sequences
  std::uint32_t kv_blocks_cached = 0;    ///< free but holding reusable prefixes
  std::uint64_t prompt_tokens = 0;       ///< since start
  std::uint64_t cached_tokens = 0;       ///< since start: prompt tokens not computed
  std::uint64_t generated_tokens = 0;    ///< since start
  std::uint64_t preemptions = 0;         ///< since start
  double prefill_tokens_per_second = 0;  ///< measured lately, 0: unknown
  double decode_step_seconds = 0;        ///< measured lately, 0: unknown
  bool draining = false;                 ///< takes nothing new
  friend bool operator==(const WorkerLoad&, const WorkerLoad&) = default;
};

/// What a worker's pool is for.
enum class WorkerRole : std::uint8_t { aggregated, prefill, decode };

/// The first message of a worker process: it has loaded its model and serves.
struct WorkerReady {
  std::string model;
  std::string device;
  std::uint32_t max_context = 0;  ///< tokens
  std::uint32_t block_tokens = 0;
  WorkerLoad load;
  WorkerRole role = WorkerRole::aggregated;
  std::uint64_t kv_bytes_per_token = 0;  ///< all layers, all ranks
  std::vector<BlockHash> prefixes;       ///< some of the reusable blocks it holds (block_hash.h)
  friend bool operator==(const WorkerReady&, const WorkerReady&) = default;
};

/// How one fetch of KV went: what routing learns a link's speed from, and traces where time went.
struct FetchStat {
  RequestId request;
  Attempt attempt;
  WorkerRef source;
  std::uint32_t tokens = 0;      ///< fetched and proven
  std::uint64_t bytes = 0;       ///< moved
  Duration took;                 ///< from the wish to the last byte proven
  Duration waited;               ///< of that, with nothing ready to move: the source still computed
  std::vector<Duration> layers;  ///< when each layer of the last chunk had landed, since the wish
  friend bool operator==(const FetchStat&, const FetchStat&) = default;
};

/// What came of one step: all tokens and endings together, so that a step costs one frame.
struct StepReport {
  std::vector<TokenOut> tokens;
  std::vector<SequenceEnd> ended;
  WorkerLoad load;
  std::vector<FetchStat> fetches;  ///< ended since the last report
  /// Prefix blocks that are reusable here now, and no longer: changes in bounded batches, and by
  /// and by those it holds anyway, so that whoever listens knows them all after a while.
  std::vector<BlockHash> held;
  std::vector<BlockHash> dropped;
  friend bool operator==(const StepReport&, const StepReport&) = default;
};

using FromWorker = std::variant<WorkerReady, StepReport, KvLetter>;

}  // namespace infos
