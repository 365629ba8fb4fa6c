// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/worker_core.h"

#include <algorithm>

#include "daemon/control/mutant.h"
#include "daemon/control/worker_state.h"
#include "topology/base/check.h"

namespace infos {
namespace {

constexpr std::uint32_t kFailuresAlone =
    2;  // failed steps of one sequence by itself before it is given up
// Of reports about reusable blocks: a pool of 4096 is told anew in 7 s at a cost of 5 kB/s.
constexpr std::size_t kChangesPerReport = 256;
constexpr std::size_t kAnnounceBlocks = 32;
constexpr Duration kAnnounceInterval = milliseconds(50);

WorkerConfig sane(WorkerConfig config) {
  INFOS_CHECK(config.block_tokens > 0);
  config.max_step_tokens = std::max(config.max_step_tokens, 1U);
  config.max_running = std::clamp(config.max_running, 1U, config.max_step_tokens);
  const std::uint64_t capacity = std::uint64_t{config.kv_blocks} * config.block_tokens;
  config.max_context =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(config.max_context, capacity));
  return config;
}

}  // namespace

WorkerCore::State::State(const WorkerConfig& wanted)
    : config(sane(wanted)),
      pool(config.kv_blocks, config.block_tokens, config.seed),
      pace(config.prefill_share, config.block_tokens, config.max_step_tokens) {}

/// The live sequence of a request with the newest attempt.
WorkerSequence* WorkerCore::State::find(RequestId request) {
  auto at = live.upper_bound({request, Attempt{UINT32_MAX}});
  if (at == live.begin()) return nullptr;
  --at;
  return at->first.first == request ? at->second.get() : nullptr;
}

/// Why a submission cannot be taken.
std::optional<SequenceEnd> WorkerCore::State::refuse(const Submit& submit) const {
  SequenceEnd end{submit.request, submit.attempt, FinishReason::error};
  const std::size_t length = submit.tokens.size();
  end.answer_tokens =
      static_cast<std::uint32_t>(length - std::min<std::size_t>(length, submit.prompt_tokens));
  if (length == 0 || submit.prompt_tokens > length) {
    end.message = "a sequence of " + std::to_string(length) + " tokens of which " +
                  std::to_string(submit.prompt_tokens) +
                  " are prompt: at least one token is needed, and the prompt is part of it";
  } else if (length >= config.max_context && length > submit.prompt_tokens) {
    end.reason = FinishReason::length;
  } else if (length >= config.max_context) {
    end.message = "the prompt has " + std::to_string(length) +
                  " tokens, this worker has room for " + std::to_string(config.max_context) +
                  " with the answer (" + std::to_string(config.kv_blocks) + " KV blocks of " +
                  std::to_string(config.block_tokens) + " tokens)";
  } else if (length - submit.prompt_tokens >= submit.max_new_tokens) {
    end.reason = FinishReason::length;
  } else if (draining) {
    end.message = "the worker is draining";
    end.retryable = true;
  } else if (waiting.size() >= config.max_waiting) {
    end.message = std::to_string(waiting.size()) + " sequences wait already, at most " +
                  std::to_string(config.max_waiting) + " may";
    end.retryable = true;
  } else {
    return std::nullopt;
  }
  return end;
}

void WorkerCore::State::on(const Submit& event, WorkerEffects& out) {
  if (event.attempt.value > 0) cancel_export(event.request, Attempt{event.attempt.value - 1});
  if (WorkerSequence* known = find(event.request)) {
    if (known->submit.attempt >= event.attempt) return;  // said twice, or late
    on(Cancel{event.request, known->submit.attempt}, out);
  }
  if (std::optional<SequenceEnd> refusal = refuse(event)) {
    report.ended.push_back(std::move(*refusal));
    return;
  }
  auto sequence = std::make_unique<WorkerSequence>();
  sequence->submit = event;
  sequence->order = {event.priority, ++arrivals};
  to_waiting(*sequence);
  live.emplace(Key{event.request, event.attempt}, std::move(sequence));
}

void WorkerCore::State::to_waiting(WorkerSequence& sequence) {
  waiting.emplace(sequence.order, &sequence);
  waiting_rows += sequence.length();
}

void WorkerCore::State::from_waiting(WorkerSequence& sequence) {
  waiting.erase(sequence.order);
  waiting_rows -= sequence.length();
}

void WorkerCore::State::on(const Cancel& event, WorkerEffects& out) {
  cancel_export(event.request, event.attempt);
  WorkerSequence* sequence = find(event.request);
  if (!sequence || sequence->submit.attempt > event.attempt) return;
  if (sequence->in_step)
    sequence->cancelled = true;  // the engine still writes into its blocks
  else
    end(*sequence, FinishReason::cancelled, "", out);
}

void WorkerCore::State::on(const Drain&, WorkerEffects& out) {
  draining = report_due = true;
  drain_said = false;
  scratch.clear();
  for (const auto& [order, sequence] : waiting) {
    if (!sequence->admitted_before) scratch.push_back(sequence);
  }
  for (WorkerSequence* sequence : scratch) {
    end(*sequence, FinishReason::error, "the worker is draining", out);
    report.ended.back().retryable = true;
  }
}

/// The last word about a sequence: its blocks are free, its sampler is closed.
void WorkerCore::State::end(WorkerSequence& sequence, FinishReason reason, std::string message,
                            WorkerEffects& out) {
  const Key key{sequence.submit.request, sequence.submit.attempt};
  report.ended.push_back({key.first, key.second, reason,
                          std::min(sequence.cached_tokens, sequence.submit.prompt_tokens),
                          std::move(message), false, sequence.emitted()});
  if (reason == FinishReason::prefilled) keep_for_export(sequence);
  release_blocks(sequence);
  if (sequence.suspect) --suspects;
  if (sequence.admitted_before) out.push_back(CloseSequence{key.first});
  if (running.erase(sequence.order) == 0) from_waiting(sequence);
  blocked_available = 0;
  live.erase(key);
}

/// A part of the step has been computed: its blocks become findable, its token is appended and
/// reported.
void WorkerCore::State::take_results(const Part& part, const SampledToken* sampled) {
  WorkerSequence& s = *part.sequence;
  s.computed += part.rows;
  publish_blocks(s);
  advance_export(s);
  if (!sampled) return;
  const std::vector<TokenId>& stops = s.submit.stop_tokens;
  if (std::ranges::find(stops, sampled->token) != stops.end() &&
      !planted(Mutant::stop_token_delivered))
    return;
  report.tokens.push_back({s.submit.request, s.submit.attempt, s.emitted(), *sampled});
  s.submit.tokens.push_back(sampled->token);
  ++counters.generated_tokens;
}

void WorkerCore::State::on(const StepDone& event, WorkerEffects& out) {
  if (!step || step->id != event.id) return;
  std::size_t wanted = 0;
  for (const Part& part : step->parts) wanted += part.rows == part.sequence->rows_left() ? 1 : 0;
  if (event.sampled.size() != wanted) {
    step_failed("the engine drew " + std::to_string(event.sampled.size()) + " tokens where " +
                    std::to_string(wanted) + " were asked for",
                out);
    return;
  }
  const Step done = std::move(*step);
  step.reset();
  pace.finished(done.decode_rows, done.prefill_rows, event.took);
  std::size_t next = 0;
  for (const Part& part : done.parts) {
    WorkerSequence& s = *part.sequence;
    const bool draws = part.rows == s.rows_left();
    const SampledToken* sampled = draws ? &event.sampled[next++] : nullptr;
    s.in_step = false;
    s.failures = 0;
    if (s.suspect) s.suspect = false, --suspects;
    const std::uint32_t before = s.length();
    if (s.cancelled) {
      s.computed += part.rows;
      publish_blocks(s);
      end(s, FinishReason::cancelled, "", out);
      continue;
    }
    take_results(part, sampled);
    if (draws && s.length() == before)
      end(s, FinishReason::stop, "", out);
    else if ((s.emitted() >= s.submit.max_new_tokens && draws) || s.length() >= config.max_context)
      end(s, s.submit.kv_for.worker.worker ? FinishReason::prefilled : FinishReason::length, "",
          out);
  }
}

void WorkerCore::State::on(const StepFailed& event, WorkerEffects& out) {
  if (!step || step->id != event.id) return;
  step_failed(event.message, out);
}

/// The rows of the step do not count; every sequence of it must show by itself that it can be
/// computed.
void WorkerCore::State::step_failed(const std::string& message, WorkerEffects& out) {
  const Step failed = std::move(*step);
  step.reset();
  const bool alone = failed.parts.size() == 1;
  for (const Part& part : failed.parts) {
    WorkerSequence& s = *part.sequence;
    s.in_step = false;
    if (s.cancelled) {
      end(s, FinishReason::cancelled, "", out);
      continue;
    }
    if (alone && ++s.failures >= kFailuresAlone) {
      end(s, FinishReason::error, message, out);
      report.ended.back().retryable = true;
      continue;
    }
    if (!s.suspect) s.suspect = true, ++suspects;
  }
}

WorkerLoad WorkerCore::State::load() const {
  WorkerLoad load = counters;
  load.running = static_cast<std::uint32_t>(running.size());
  load.waiting = static_cast<std::uint32_t>(waiting.size());
  load.kv_blocks_total = pool.total();
  load.kv_blocks_used = pool.used();
  load.kv_blocks_cached = pool.cached();
  load.prefill_tokens_per_second = pace.prefill_rows_per_second();
  load.decode_step_seconds = pace.decode_step_seconds();
  load.draining = draining;
  return load;
}

WorkerCore::WorkerCore(const WorkerConfig& config) : state_(std::make_unique<State>(config)) {}
WorkerCore::~WorkerCore() = default;
WorkerCore::WorkerCore(WorkerCore&&) noexcept = default;
WorkerCore& WorkerCore::operator=(WorkerCore&&) noexcept = default;

/// What has gathered, and by and by everything that is reusable.
void WorkerCore::State::say_report(WorkerEffects& out) {
  report_due = false;
  report.load = load();
  BlockPool::Changes changes = pool.take_changes(kChangesPerReport);
  report.held = std::move(changes.held), report.dropped = std::move(changes.dropped);
  if (now >= announce_at) {
    announce_at = now + kAnnounceInterval;
    pool.announce(kAnnounceBlocks, report.held);
  }
  out.push_back(Report{std::move(report)});
  report = StepReport{};
}

void WorkerCore::step(Time now, const WorkerEvent& event, WorkerEffects& out) {
  State& s = *state_;
  s.now = std::max(s.now, now);
  s.wishes = &out;
  s.expire_transfers();
  const bool was_running = s.step.has_value();
  std::visit([&](const auto& e) { s.on(e, out); }, event);
  if (was_running && !s.step) s.report_due = true;
  if (!s.step) s.schedule(out);
  if (s.report_due || !s.report.ended.empty()) s.say_report(out);
  if (s.draining && !s.drain_said && s.live.empty() && s.fetches.empty() && s.exports.empty()) {
    s.drain_said = true;
    out.emplace_back(std::in_place_type<Drained>);
  }
}

Time WorkerCore::next_deadline() const { return state_->next_transfer_deadline(); }
std::vector<BlockHash> WorkerCore::prefixes(std::size_t limit) const {
  std::vector<BlockHash> hashes;
  const BlockPool& pool = state_->pool;
  for (std::uint32_t i = 0; i < pool.total() && hashes.size() < limit; ++i)
    if (pool.is_published(BlockId{i})) hashes.push_back(pool.hash_of(BlockId{i}));
  return hashes;
}
WorkerLoad WorkerCore::load() const { return state_->load(); }

WorkerAudit WorkerCore::audit() const {
  const State& s = *state_;
  WorkerAudit audit;
  for (const auto& [key, sequence] : s.live)
    audit.sequences.push_back({key.first, key.second, sequence->blocks});
  s.audit_transfers(audit);
  for (std::uint32_t i = 0; i < s.pool.total(); ++i) {
    audit.references.push_back(s.pool.references(BlockId{i}));
    audit.published.push_back(s.pool.is_published(BlockId{i}) ? 1 : 0);
  }
  audit.cached = s.pool.cached();
  audit.free = s.pool.total() - s.pool.used() - s.pool.cached();
  audit.broken = s.pool.audit();
  std::uint64_t waiting_rows = 0;
  for (const auto& [order, sequence] : s.waiting) waiting_rows += sequence->length();
  if (waiting_rows != s.waiting_rows)
    audit.broken += " the rows of waiting sequences are not what was kept";
  if (s.running.size() + s.waiting.size() != s.live.size())
    audit.broken += " live sequences are not exactly running or waiting";
  if (s.running.size() > s.config.max_running) audit.broken += " too many run";
  if (s.waiting.size() > std::size_t{s.config.max_waiting} + s.config.max_running)
    audit.broken += " too many wait";
  return audit;
}

}  // namespace infos
