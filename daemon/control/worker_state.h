// SPDX-License-Identifier: Apache-2.0
// The inside of WorkerCore, shared by its two halves: worker_core.cc takes events,
// worker_schedule.cc composes steps.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
  std::uint32_t reused =
      0;  ///< leading tokens that were found, not computed, since it last had no blocks
  std::uint32_t cached_tokens = 0;  ///< the same before any preemption
  std::uint32_t failures = 0;       ///< of steps with this sequence alone
  bool admitted_before = false;     ///< the engine knows it (OpenSequence was said)
  bool preempted = false;
  bool in_step = false;
  bool suspect = false;    ///< was in a failed step: must pass one alone
  bool cancelled = false;  ///< ends when its step does

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

  explicit State(const WorkerConfig& wanted);

  // worker_core.cc
  void on(const Submit& event, WorkerEffects& out);
  void on(const Cancel& event, WorkerEffects& out);
  void on(const Drain& event, WorkerEffects& out);
  void on(const StepDone& event, WorkerEffects& out);
  void on(const StepFailed& event, WorkerEffects& out);
  void on(const Tick&, WorkerEffects&) {}
  void on(const FetchDone&, WorkerEffects&) {}
  void on(const ExportDone&, WorkerEffects&) {}
  std::optional<SequenceEnd> refuse(const Submit& submit) const;
  void take_results(const Part& part, const SampledToken* sampled);
  void step_failed(const std::string& message, WorkerEffects& out);
  void end(WorkerSequence& sequence, FinishReason reason, std::string message, WorkerEffects& out);
  WorkerSequence* find(RequestId request);
  void to_waiting(WorkerSequence& sequence);
  void from_waiting(WorkerSequence& sequence);
  WorkerLoad load() const;

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
  std::uint64_t last_step = 0;
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
