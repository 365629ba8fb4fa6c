// SPDX-License-Identifier: Apache-2.0
// WorkerCore decides what a worker computes next: continuous batching with chunked prefill, KV
// block accounting with prefix reuse, preemption by recompute. Pure: no clock, thread, file or
// socket; the shell runs its steps on the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "daemon/control/messages.h"
#include "topology/base/units.h"

namespace infos {

struct WorkerConfig {
  std::uint32_t kv_blocks = 0;
  std::uint32_t block_tokens = 16;
  std::uint32_t max_context = 0;        ///< tokens of one sequence
  std::uint32_t max_running = 64;       ///< sequences in a batch
  std::uint32_t max_waiting = 1024;     ///< sequences queued; beyond: ended with an error
  std::uint32_t max_step_tokens = 512;  ///< rows of one step
  double prefill_share =
      1.0;  ///< prefill time allowed per step, as a multiple of the decode time in it; grows
            ///< to twice that with a second of prefill backlog, further after four
  std::uint64_t seed = 1;
  Duration fetch_limit = seconds(120);  ///< a fetch that takes longer is given up
  Duration export_limit = seconds(60);  ///< computed KV is kept this long for who should fetch it
  double export_share = 0.5;  ///< of all blocks, that such KV may hold; beyond: no new ones
  friend bool operator==(const WorkerConfig&, const WorkerConfig&) = default;
};

// ---- events ----

/// The engine finished step `id`: one sampled token for each sequence of the step that had
/// `sample`, in its order.
struct StepDone {
  EffectId id;
  std::vector<SampledToken> sampled;
  Duration took;
  friend bool operator==(const StepDone&, const StepDone&) = default;
};
/// The engine could not run step `id`.
struct StepFailed {
  EffectId id;
  std::string message;
  friend bool operator==(const StepFailed&, const StepFailed&) = default;
};
/// A FetchKv has ended: nobody can write into its blocks any more. The KV of tokens [begin, begin +
/// tokens) is in them and proven (identity, generation, checksum); the rest must be computed.
struct FetchDone {
  EffectId id;
  std::uint32_t tokens = 0;
  std::string why;          ///< when it is less than was asked for
  std::uint64_t bytes = 0;  ///< these four: as in FetchStat
  Duration took;
  Duration waited;
  std::vector<Duration> layers;
  friend bool operator==(const FetchDone&, const FetchDone&) = default;
};
/// An ExportKv has ended: nobody reads its blocks any more, or what is read is refused as unproven.
struct ExportDone {
  EffectId id;
  friend bool operator==(const ExportDone&, const ExportDone&) = default;
};
/// `next_deadline()` has passed.
struct Tick {
  friend bool operator==(const Tick&, const Tick&) = default;
};
using WorkerEvent = std::variant<Submit, Cancel, Drain, StepDone, StepFailed, Tick, FetchDone,
                                 ExportDone, KvWithheld>;

// ---- effects ----

/// A sequence's part of a step.
struct StepSequence {
  RequestId request;
  std::vector<TokenId>
      tokens;  ///< the rows to compute, at positions [start, start + tokens.size())
  std::uint32_t start = 0;
  std::vector<BlockId> blocks;  ///< the sequence's whole block table up to its last row
  bool sample = false;          ///< draw the token after the last row
  std::uint32_t index = 0;      ///< which token of the answer the draw is
  friend bool operator==(const StepSequence&, const StepSequence&) = default;
};
/// Sampler state begins to live: before the first RunStep that names the request.
struct OpenSequence {
  RequestId request;
  std::vector<TokenId> tokens;  ///< prompt and what was emitted before
  std::uint32_t prompt_tokens = 0;
  SamplingParams sampling;
  friend bool operator==(const OpenSequence&, const OpenSequence&) = default;
};
/// ... and ends. Never while a step with the request is running.
struct CloseSequence {
  RequestId request;
  friend bool operator==(const CloseSequence&, const CloseSequence&) = default;
};
/// Run one step on the engine; answered by exactly one StepDone or StepFailed. At most one is under
/// way.
struct RunStep {
  EffectId id;
  std::vector<StepSequence> sequences;
  friend bool operator==(const RunStep&, const RunStep&) = default;
};
/// Tell the gateway.
struct Report {
  StepReport report;
  friend bool operator==(const Report&, const Report&) = default;
};
/// Bring the KV of tokens [begin, end) from another worker into `blocks`. Answered by exactly one
/// FetchDone; until then the blocks belong to the transfer, whatever becomes of the request.
struct FetchKv {
  EffectId id;
  RequestId request;
  Attempt attempt;
  WorkerRef source;
  std::uint32_t begin = 0;  ///< a multiple of block_tokens
  std::uint32_t end = 0;
  std::vector<BlockId> blocks;  ///< the sequence's block table from token 0 to `end`
  friend bool operator==(const FetchKv&, const FetchKv&) = default;
};
/// The fetch is wanted no more: its FetchDone should come soon.
struct AbandonFetch {
  EffectId id;
  friend bool operator==(const AbandonFetch&, const AbandonFetch&) = default;
};
/// Another worker may read the KV of this sequence's first `tokens` tokens as they are computed.
/// Stands before the first RunStep that computes any. Answered by exactly one ExportDone; until
/// then the blocks are not reused.
struct ExportKv {
  EffectId id;
  RequestId request;
  Attempt attempt;
  WorkerRef sink;
  std::uint32_t tokens = 0;
  friend bool operator==(const ExportKv&, const ExportKv&) = default;
};
/// The KV of the sequence's first `computed` tokens is in `blocks` (from token 0). Layers of a step
/// that runs are seen by the shell, which knows the step's sequences.
struct AdvanceExport {
  EffectId id;
  std::uint32_t computed = 0;
  std::vector<BlockId> blocks;
  friend bool operator==(const AdvanceExport&, const AdvanceExport&) = default;
};
/// The export ends early (cancelled, preempted): its ExportDone should come soon.
struct EndExport {
  EffectId id;
  friend bool operator==(const EndExport&, const EndExport&) = default;
};
/// A drain is complete: nothing runs or waits.
struct Drained {
  friend bool operator==(const Drained&, const Drained&) = default;
};
using WorkerEffect = std::variant<OpenSequence, CloseSequence, RunStep, Report, Drained, FetchKv,
                                  AbandonFetch, ExportKv, AdvanceExport, EndExport>;
using WorkerEffects = std::vector<WorkerEffect>;

/// What a WorkerCore holds, for invariants in tests and the simulator.
struct WorkerAudit {
  struct Held {
    RequestId request;
    Attempt attempt;
    std::vector<BlockId> blocks;
  };
  struct Transfer {
    EffectId id;
    bool is_fetch = false;
    bool is_orphan = false;       ///< its blocks are its own; else its sequence's
    std::vector<BlockId> blocks;  ///< that it may write (fetch) or read (export)
  };
  std::vector<Held> sequences;            ///< waiting ones too
  std::vector<Transfer> transfers;        ///< not answered yet
  std::vector<std::uint32_t> references;  ///< per block, as the pool counts them
  std::vector<std::uint8_t> published;    ///< per block: content is complete and may be shared
  std::uint32_t free = 0;
  std::uint32_t cached = 0;
  std::string broken;  ///< what the core itself found wrong, empty if nothing
};

/// The order of service is (priority, arrival): the oldest sequence always advances, taking blocks
/// from younger ones if it must. A sequence's tokens never exceed max_context nor what all blocks
/// hold together. A step that fails is tried again sequence by sequence, so that one that cannot be
/// computed does not take others with it.
class WorkerCore {
 public:
  explicit WorkerCore(const WorkerConfig& config);
  ~WorkerCore();
  WorkerCore(WorkerCore&&) noexcept;
  WorkerCore& operator=(WorkerCore&&) noexcept;

  /// Accepts every event in every state; appends its wishes to `out` in the order in which they
  /// must be done.
  void step(Time now, const WorkerEvent& event, WorkerEffects& out);
  /// When a Tick is wanted, kNever if never.
  Time next_deadline() const;
  WorkerLoad load() const;
  /// Copies everything; O(blocks).
  WorkerAudit audit() const;
  /// Hashes of reusable blocks, at most `limit`: for WorkerReady.
  std::vector<BlockHash> prefixes(std::size_t limit) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace infos
