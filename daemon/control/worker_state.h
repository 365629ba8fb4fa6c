// SPDX-License-Identifier: Apache-2.0
// The inside of WorkerCore, shared by its parts: worker_core.cc takes events, worker_schedule.cc
// composes steps, worker_transfer.cc lets KV come and go.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/block_hash.h"
#include "daemon/control/block_pool.h"
#include "daemon/control/step_pace.h"
#include "daemon/control/worker_core.h"

namespace infos {

/// Order of service: priority, then arrival.
using ServiceOrder = std::pair<std::int32_t, std::uint64_t>;

struct WorkerSequence {
  Submit submit;  ///< `tokens` grows as tokens are drawn
  ServiceOrder order;
  std::vector<BlockId> blocks;
  std::uint32_t computed = 0;   ///< leading tokens whose KV is in `blocks`
  std::uint32_t published = 0;  ///< leading blocks that are findable
  ChainId chain;                ///< of the last published block
  BlockHash hash;               ///< of the same, none: of no block
  std::uint32_t reused =
      0;  ///< leading tokens that were found, not computed, since it last had no blocks
  std::uint32_t cached_tokens = 0;  ///< the same before any preemption
  std::uint32_t failures = 0;       ///< of steps with this sequence alone
  bool admitted_before = false;     ///< the engine knows it (OpenSequence was said)
  bool preempted = false;
  bool in_step = false;
  bool suspect = false;    ///< was in a failed step: must pass one alone
  bool cancelled = false;  ///< ends when its step does
  EffectId fetch;          ///< under way: the sequence waits for it
  EffectId exporting;      ///< under way
  bool fetched = false;    ///< a fetch was begun once: there is no second
  bool exported = false;   ///< likewise

  std::uint32_t length() const { return static_cast<std::uint32_t>(submit.tokens.size()); }
  std::uint32_t rows_left() const { return length() - computed; }
  std::uint32_t emitted() const { return length() - submit.prompt_tokens; }
};

struct WorkerCore::State {
  using Key = std::pair<RequestId, Attempt>;
  struct Part {
    WorkerSequence* sequence = nullptr;
    std::uint32_t rows = 0;
  };
  struct Step {
    EffectId id;
    std::vector<Part> parts;
    std::uint32_t decode_rows = 0;
    std::uint32_t prefill_rows = 0;
  };

  /// KV that comes. Its blocks belong to its sequence until that lets go of them; then they are an
  /// orphan's, and free when nobody can write into them any more.
  struct Fetch {
    WorkerSequence* sequence = nullptr;  ///< none: orphan
    RequestId request;
    Attempt attempt;
    WorkerRef source;
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    bool abandoned = false;
    Time deadline;                ///< then it is abandoned, and at last goes on as an orphan
    std::vector<BlockId> blocks;  ///< an orphan's
  };
  /// KV that goes, likewise.
  struct Export {
    WorkerSequence* sequence = nullptr;  ///< none: orphan
    RequestId request;
    Attempt attempt;
    std::uint32_t tokens = 0;  ///< that are meant
    std::uint32_t told = 0;    ///< that are computed, as was said
    bool ended = false;        ///< EndExport was said
    Time deadline = kNever;
    std::vector<BlockId> blocks;  ///< an orphan's
  };

  explicit State(const WorkerConfig& wanted);

  // worker_core.cc
  void on(const Submit& event, WorkerEffects& out);
  void on(const Cancel& event, WorkerEffects& out);
  void on(const Drain& event, WorkerEffects& out);
  void on(const StepDone& event, WorkerEffects& out);
  void on(const StepFailed& event, WorkerEffects& out);
  void on(const Tick&, WorkerEffects&) {}
  void on(const FetchDone& event, WorkerEffects& out);
  void on(const ExportDone& event, WorkerEffects& out);
  void on(const KvWithheld& event, WorkerEffects& out);
  std::optional<SequenceEnd> refuse(const Submit& submit) const;
  void take_results(const Part& part, const SampledToken* sampled);
  void step_failed(const std::string& message, WorkerEffects& out);
  void end(WorkerSequence& sequence, FinishReason reason, std::string message, WorkerEffects& out);
  WorkerSequence* find(RequestId request);
  void to_waiting(WorkerSequence& sequence);
  void from_waiting(WorkerSequence& sequence);
  WorkerLoad load() const;
  void say_report(WorkerEffects& out);

  // worker_schedule.cc
  void schedule(WorkerEffects& out);
  void add_suspect(Step& next);
  void add_decodes(Step& next);
  void add_prefills(Step& next, std::uint32_t budget);
  std::uint64_t backlog() const;
  bool may_admit(WorkerSequence& head);
  std::uint32_t add_chunk(Step& next, WorkerSequence& sequence, std::uint32_t budget);
  void reuse_prefix(WorkerSequence& sequence);
  bool grow(Step& next, WorkerSequence& sequence, std::uint32_t rows_end);
  WorkerSequence* victim_for(const WorkerSequence& sequence);
  void preempt(Step& next, WorkerSequence& victim);
  void release_blocks(WorkerSequence& sequence);
  void publish_blocks(WorkerSequence& sequence);
  std::uint32_t blocks_for(std::uint32_t tokens) const {
    return (tokens + config.block_tokens - 1) / config.block_tokens;
  }
  RunStep to_effect(const Step& next) const;

  // worker_transfer.cc
  bool begin_fetch(WorkerSequence& sequence);
  void begin_export(WorkerSequence& sequence);
  void advance_export(WorkerSequence& sequence);
  void let_go(WorkerSequence& sequence);
  void keep_for_export(WorkerSequence& sequence);
  void end_export(EffectId id, Export& of);
  void cancel_export(RequestId request, Attempt attempt);
  bool end_oldest_export();
  void abandon(EffectId id, Fetch& fetch);
  void expire_transfers();
  Time next_transfer_deadline() const;
  void audit_transfers(WorkerAudit& audit) const;
  void free_blocks(std::vector<BlockId>& blocks);
  bool may_export(const WorkerSequence& head) const;
  /// Blocks that come back soon without anybody's doing.
  std::uint32_t awaited() const { return fetch_orphans + ended_orphans; }

  WorkerConfig config;
  BlockPool pool;
  StepPace pace;
  std::map<Key, std::unique_ptr<WorkerSequence>> live;
  std::map<ServiceOrder, WorkerSequence*> waiting;
  std::map<ServiceOrder, WorkerSequence*> running;
  std::optional<Step> step;  ///< the one under way
  StepReport report;         ///< gathered for the next Report
  std::vector<WorkerSequence*> scratch;
  std::uint64_t arrivals = 0;
  std::uint64_t last_effect = 0;
  std::map<EffectId, Fetch> fetches;
  std::map<EffectId, Export> exports;
  std::uint32_t fetch_orphans = 0;   ///< blocks
  std::uint32_t export_orphans = 0;  ///< blocks
  std::uint32_t ended_orphans = 0;   ///< blocks of export orphans that are to end
  WorkerEffects* wishes = nullptr;   ///< of the step() under way
  Time now{INT64_MIN};
  Time announce_at{INT64_MIN};  ///< the next report says some of the blocks it holds
  std::uint32_t suspects = 0;
  std::uint64_t waiting_rows = 0;       ///< tokens of waiting sequences
  ServiceOrder blocked_head;            ///< the head of the queue that did not fit when
  std::uint32_t blocked_available = 0;  ///< ... this many blocks were available
  bool report_due = false;
  bool draining = false;
  bool drain_said = false;
  WorkerLoad counters;  ///< the fields that count since start
};

}  // namespace infos
