// SPDX-License-Identifier: Apache-2.0
// The field list of every message: number, name, member, the same numbers as messages.proto. A
// field whose default is not zero goes through `always` (`optional` in the schema). Internal to the
// codec.
#pragma once

#include "daemon/control/codec.h"
#include "daemon/control/wire.h"

namespace infos {

// Found by argument-dependent lookup from wire.h. `A` is a WireWriter or a WireReader.
using wire::Like;

template <typename A>
void fields(A& a, Like<TokenLogprob> auto& m) {
  a(1, "token", m.token), a(2, "logprob", m.logprob);
}
template <typename A>
void fields(A& a, Like<SampledToken> auto& m) {
  a(1, "token", m.token), a(2, "logprob", m.logprob), a(3, "top", m.top);
}
template <typename A>
void fields(A& a, Like<SamplingParams> auto& m) {
  a.always(1, "temperature", m.temperature), a(2, "top_k", m.top_k), a.always(3, "top_p", m.top_p);
  a(4, "min_p", m.min_p), a(5, "presence_penalty", m.presence_penalty),
      a(6, "frequency_penalty", m.frequency_penalty);
  a.always(7, "repetition_penalty", m.repetition_penalty), a(8, "logit_bias", m.logit_bias),
      a(9, "seed", m.seed);
  a.always(10, "top_logprobs", m.top_logprobs);
}

// ---- gateway -> worker
template <typename A>
void fields(A& a, Like<WorkerRef> auto& m) {
  a(1, "worker", m.worker), a(2, "generation", m.generation);
}
template <typename A>
void fields(A& a, Like<KvPeer> auto& m) {
  a(1, "worker", m.worker), a(2, "tokens", m.tokens);
}
template <typename A>
void fields(A& a, Like<KvLetter> auto& m) {
  a(1, "from", m.from), a(2, "to", m.to), a(3, "body", m.body);
}
template <typename A>
void fields(A& a, Like<KvWithheld> auto& m) {
  a(1, "request", m.request), a(2, "attempt", m.attempt);
}
template <typename A>
void fields(A& a, Like<PeerGone> auto& m) {
  a(1, "peer", m.peer);
}
template <typename A>
void fields(A& a, Like<Submit> auto& m) {
  a(1, "request", m.request), a(2, "attempt", m.attempt), a(3, "tokens", m.tokens),
      a(4, "prompt_tokens", m.prompt_tokens);
  a(5, "max_new_tokens", m.max_new_tokens), a(6, "stop_tokens", m.stop_tokens),
      a(7, "sampling", m.sampling);
  a(8, "priority", m.priority), a(9, "kv_from", m.kv_from), a(10, "kv_for", m.kv_for);
}
template <typename A>
void fields(A& a, Like<Cancel> auto& m) {
  a(1, "request", m.request), a(2, "attempt", m.attempt);
}
template <typename A>
void fields(A&, Like<Drain> auto&) {}

// ---- worker -> gateway
template <typename A>
void fields(A& a, Like<TokenOut> auto& m) {
  a(1, "request", m.request), a(2, "attempt", m.attempt), a(3, "index", m.index),
      a(4, "sampled", m.sampled);
}
template <typename A>
void fields(A& a, Like<SequenceEnd> auto& m) {
  a(1, "request", m.request), a(2, "attempt", m.attempt), a(3, "reason", m.reason),
      a(4, "cached_tokens", m.cached_tokens);
  a(5, "message", m.message), a(6, "retryable", m.retryable),
      a(7, "answer_tokens", m.answer_tokens);
}
template <typename A>
void fields(A& a, Like<WorkerLoad> auto& m) {
  a(1, "running", m.running), a(2, "waiting", m.waiting),
      a(3, "kv_blocks_total", m.kv_blocks_total);
  a(4, "kv_blocks_used", m.kv_blocks_used), a(5, "kv_blocks_cached", m.kv_blocks_cached);
  a(6, "prompt_tokens", m.prompt_tokens), a(7, "cached_tokens", m.cached_tokens),
      a(8, "generated_tokens", m.generated_tokens);
  a(9, "preemptions", m.preemptions),
      a(10, "prefill_tokens_per_second", m.prefill_tokens_per_second);
  a(11, "decode_step_seconds", m.decode_step_seconds), a(12, "draining", m.draining);
}
template <typename A>
void fields(A& a, Like<WorkerReady> auto& m) {
  a(1, "model", m.model), a(2, "device", m.device), a(3, "max_context", m.max_context),
      a(4, "block_tokens", m.block_tokens);
  a(5, "load", m.load), a(6, "role", m.role), a(7, "kv_bytes_per_token", m.kv_bytes_per_token);
  a(8, "prefixes", m.prefixes);
}
template <typename A>
void fields(A& a, Like<FetchStat> auto& m) {
  a(1, "request", m.request), a(2, "attempt", m.attempt), a(3, "source", m.source),
      a(4, "tokens", m.tokens), a(5, "bytes", m.bytes);
  a(6, "took", m.took), a(7, "waited", m.waited), a(8, "layers", m.layers);
}
template <typename A>
void fields(A& a, Like<StepReport> auto& m) {
  a(1, "tokens", m.tokens), a(2, "ended", m.ended), a(3, "load", m.load),
      a(4, "fetches", m.fetches), a(5, "held", m.held), a(6, "dropped", m.dropped);
}

// ---- WorkerCore
template <typename A>
void fields(A& a, Like<WorkerConfig> auto& m) {
  a(1, "kv_blocks", m.kv_blocks), a.always(2, "block_tokens", m.block_tokens),
      a(3, "max_context", m.max_context);
  a.always(4, "max_running", m.max_running), a.always(5, "max_waiting", m.max_waiting);
  a.always(6, "max_step_tokens", m.max_step_tokens), a.always(7, "prefill_share", m.prefill_share),
      a.always(8, "seed", m.seed), a.always(9, "fetch_limit", m.fetch_limit);
  a.always(10, "export_limit", m.export_limit), a.always(11, "export_share", m.export_share);
}
template <typename A>
void fields(A& a, Like<StepDone> auto& m) {
  a(1, "id", m.id), a(2, "sampled", m.sampled), a(3, "took", m.took);
}
template <typename A>
void fields(A& a, Like<StepFailed> auto& m) {
  a(1, "id", m.id), a(2, "message", m.message);
}
template <typename A>
void fields(A&, Like<Tick> auto&) {}
template <typename A>
void fields(A& a, Like<StepSequence> auto& m) {
  a(1, "request", m.request), a(2, "tokens", m.tokens), a(3, "start", m.start),
      a(4, "blocks", m.blocks);
  a(5, "sample", m.sample), a(6, "index", m.index);
}
template <typename A>
void fields(A& a, Like<OpenSequence> auto& m) {
  a(1, "request", m.request), a(2, "tokens", m.tokens), a(3, "prompt_tokens", m.prompt_tokens),
      a(4, "sampling", m.sampling);
}
template <typename A>
void fields(A& a, Like<CloseSequence> auto& m) {
  a(1, "request", m.request);
}
template <typename A>
void fields(A& a, Like<RunStep> auto& m) {
  a(1, "id", m.id), a(2, "sequences", m.sequences);
}
template <typename A>
void fields(A& a, Like<Report> auto& m) {
  a(1, "report", m.report);
}
template <typename A>
void fields(A&, Like<Drained> auto&) {}
template <typename A>
void fields(A& a, Like<FetchDone> auto& m) {
  a(1, "id", m.id), a(2, "tokens", m.tokens), a(3, "why", m.why), a(4, "bytes", m.bytes);
  a(5, "took", m.took), a(6, "waited", m.waited), a(7, "layers", m.layers);
}
template <typename A>
void fields(A& a, Like<ExportDone> auto& m) {
  a(1, "id", m.id);
}
template <typename A>
void fields(A& a, Like<FetchKv> auto& m) {
  a(1, "id", m.id), a(2, "request", m.request), a(3, "attempt", m.attempt),
      a(4, "source", m.source), a(5, "begin", m.begin), a(6, "end", m.end),
      a(7, "blocks", m.blocks);
}
template <typename A>
void fields(A& a, Like<AbandonFetch> auto& m) {
  a(1, "id", m.id);
}
template <typename A>
void fields(A& a, Like<ExportKv> auto& m) {
  a(1, "id", m.id), a(2, "request", m.request), a(3, "attempt", m.attempt), a(4, "sink", m.sink),
      a(5, "tokens", m.tokens);
}
template <typename A>
void fields(A& a, Like<AdvanceExport> auto& m) {
  a(1, "id", m.id), a(2, "computed", m.computed), a(3, "blocks", m.blocks);
}
template <typename A>
void fields(A& a, Like<EndExport> auto& m) {
  a(1, "id", m.id);
}

// ---- GatewayCore
template <typename A>
void fields(A& a, Like<GatewayConfig> auto& m) {
  a.always(1, "max_requests", m.max_requests),
      a.always(2, "max_queued_per_model", m.max_queued_per_model);
  a.always(3, "max_running_per_worker", m.max_running_per_worker),
      a.always(4, "max_attempts", m.max_attempts);
  a.always(5, "queue_timeout", m.queue_timeout),
      a.always(6, "max_tokens_total", m.max_tokens_total);
  a.always(7, "seed", m.seed), a(8, "max_per_tenant", m.max_per_tenant);
  a.always(9, "prefix_index_bytes", m.prefix_index_bytes),
      a.always(10, "decode_prefill_cost", m.decode_prefill_cost);
}
template <typename A>
void fields(A& a, Like<Arrive> auto& m) {
  a(1, "request", m.request), a(2, "model", m.model), a(3, "tenant", m.tenant),
      a(4, "prompt", m.prompt);
  a(5, "max_new_tokens", m.max_new_tokens), a(6, "stop_tokens", m.stop_tokens),
      a(7, "sampling", m.sampling);
  a.always(8, "deadline", m.deadline);
}
template <typename A>
void fields(A& a, Like<ClientGone> auto& m) {
  a(1, "request", m.request);
}
template <typename A>
void fields(A& a, Like<StopHit> auto& m) {
  a(1, "request", m.request);
}
template <typename A>
void fields(A& a, Like<WorkerUp> auto& m) {
  a(1, "worker", m.worker), a(2, "generation", m.generation), a(3, "ready", m.ready),
      a(4, "link", m.link);
}
template <typename A>
void fields(A& a, Like<WorkerDown> auto& m) {
  a(1, "worker", m.worker), a(2, "generation", m.generation), a(3, "link", m.link);
}
template <typename A>
void fields(A& a, Like<WorkerSaid> auto& m) {
  a(1, "worker", m.worker), a(2, "generation", m.generation), a(3, "report", m.report);
}
template <typename A>
void fields(A& a, Like<ModelListed> auto& m) {
  a(1, "model", m.model), a.always(2, "listed", m.listed), a(3, "failed", m.failed);
}
template <typename A>
void fields(A&, Like<GatewayTick> auto&) {}
template <typename A>
void fields(A& a, Like<Reject> auto& m) {
  a(1, "request", m.request), a.always(2, "http_status", m.http_status), a(3, "code", m.code),
      a(4, "message", m.message);
  a(5, "retry_after", m.retry_after);
}
template <typename A>
void fields(A& a, Like<Deliver> auto& m) {
  a(1, "request", m.request), a(2, "tokens", m.tokens);
}
template <typename A>
void fields(A& a, Like<Finish> auto& m) {
  a(1, "request", m.request), a.always(2, "reason", m.reason),
      a(3, "prompt_tokens", m.prompt_tokens);
  a(4, "cached_tokens", m.cached_tokens), a(5, "completion_tokens", m.completion_tokens),
      a.always(6, "attempts", m.attempts);
  a(7, "message", m.message);
}
template <typename A>
void fields(A& a, Like<SendWorker> auto& m) {
  a(1, "worker", m.worker), a(2, "generation", m.generation), a(3, "message", m.message);
}

// ---- AgentCore
template <typename A>
void fields(A& a, Like<AgentConfig> auto& m) {
  a.always(1, "start_timeout", m.start_timeout), a.always(2, "silence_limit", m.silence_limit);
  a.always(3, "stop_timeout", m.stop_timeout), a.always(4, "backoff_first", m.backoff_first);
  a.always(5, "backoff_max", m.backoff_max), a.always(6, "healthy_after", m.healthy_after),
      a.always(7, "seed", m.seed), a(8, "generation_base", m.generation_base);
}
template <typename A>
void fields(A& a, Like<WorkerSpec> auto& m) {
  a(1, "worker", m.worker), a(2, "model", m.model), a(3, "source", m.source),
      a(4, "device", m.device), a(5, "options", m.options);
}
template <typename A>
void fields(A& a, Like<Desired> auto& m) {
  a(1, "workers", m.workers);
}
template <typename A>
void fields(A& a, Like<WorkerSpawned> auto& m) {
  a(1, "worker", m.worker), a(2, "generation", m.generation);
}
template <typename A>
void fields(A& a, Like<SpawnFailed> auto& m) {
  a(1, "worker", m.worker), a(2, "generation", m.generation), a(3, "message", m.message);
}
template <typename A>
void fields(A& a, Like<WorkerServing> auto& m) {
  a(1, "worker", m.worker), a(2, "generation", m.generation), a(3, "ready", m.ready);
}
template <typename A>
void fields(A& a, Like<WorkerAlive> auto& m) {
  a(1, "worker", m.worker), a(2, "generation", m.generation);
}
template <typename A>
void fields(A& a, Like<WorkerExited> auto& m) {
  a(1, "worker", m.worker), a(2, "generation", m.generation), a(3, "how", m.how),
      a(4, "permanent", m.permanent);
}
template <typename A>
void fields(A&, Like<AgentTick> auto&) {}
template <typename A>
void fields(A& a, Like<Spawn> auto& m) {
  a(1, "generation", m.generation), a(2, "spec", m.spec);
}
template <typename A>
void fields(A& a, Like<AskStop> auto& m) {
  a(1, "worker", m.worker), a(2, "generation", m.generation);
}
template <typename A>
void fields(A& a, Like<Kill> auto& m) {
  a(1, "worker", m.worker), a(2, "generation", m.generation);
}
template <typename A>
void fields(A& a, Like<AnnounceUp> auto& m) {
  a(1, "worker", m.worker), a(2, "generation", m.generation), a(3, "ready", m.ready);
}
template <typename A>
void fields(A& a, Like<AnnounceDown> auto& m) {
  a(1, "worker", m.worker), a(2, "generation", m.generation), a(3, "why", m.why);
}

// ---- recordings
template <typename A>
void fields(A& a, Like<RecordedStart> auto& m) {
  a(1, "instance", m.instance), a(2, "config", m.config);
}
template <typename A>
void fields(A& a, Like<RecordedEvent> auto& m) {
  a(1, "instance", m.instance), a(2, "now", m.now), a(3, "event", m.event);
}
template <typename A>
void fields(A& a, Like<RecordedHash> auto& m) {
  a(1, "core", m.core), a(2, "instance", m.instance), a(3, "events", m.events),
      a.fixed(4, "hash", m.hash);
}

namespace wire {
template <>
inline constexpr std::uint64_t kEnumMax<FinishReason> = 5;
template <>
inline constexpr std::uint64_t kEnumMax<WorkerRole> = 2;
template <>
inline constexpr std::uint64_t kEnumMax<CoreKind> = 2;
template <>
inline constexpr const char* kName<Submit> = "submit";
template <>
inline constexpr const char* kName<Cancel> = "cancel";
template <>
inline constexpr const char* kName<Drain> = "drain";
template <>
inline constexpr const char* kName<KvLetter> = "kv_letter";
template <>
inline constexpr const char* kName<PeerGone> = "peer_gone";
template <>
inline constexpr const char* kName<KvWithheld> = "kv_withheld";
template <>
inline constexpr const char* kName<FetchDone> = "fetch_done";
template <>
inline constexpr const char* kName<ExportDone> = "export_done";
template <>
inline constexpr const char* kName<WorkerReady> = "worker_ready";
template <>
inline constexpr const char* kName<StepReport> = "step_report";
template <>
inline constexpr const char* kName<StepDone> = "step_done";
template <>
inline constexpr const char* kName<StepFailed> = "step_failed";
template <>
inline constexpr const char* kName<Arrive> = "arrive";
template <>
inline constexpr const char* kName<ClientGone> = "client_gone";
template <>
inline constexpr const char* kName<StopHit> = "stop_hit";
template <>
inline constexpr const char* kName<WorkerUp> = "worker_up";
template <>
inline constexpr const char* kName<WorkerDown> = "worker_down";
template <>
inline constexpr const char* kName<WorkerSaid> = "worker_said";
template <>
inline constexpr const char* kName<ModelListed> = "model_listed";
template <>
inline constexpr const char* kName<Desired> = "desired";
template <>
inline constexpr const char* kName<WorkerSpawned> = "worker_spawned";
template <>
inline constexpr const char* kName<SpawnFailed> = "spawn_failed";
template <>
inline constexpr const char* kName<WorkerServing> = "worker_serving";
template <>
inline constexpr const char* kName<WorkerAlive> = "worker_alive";
template <>
inline constexpr const char* kName<WorkerExited> = "worker_exited";
template <>
inline constexpr const char* kName<GatewayConfig> = "gateway_config";
template <>
inline constexpr const char* kName<WorkerConfig> = "worker_config";
template <>
inline constexpr const char* kName<AgentConfig> = "agent_config";
template <>
inline constexpr const char* kName<GatewayEvent> = "gateway_event";
template <>
inline constexpr const char* kName<WorkerEvent> = "worker_event";
template <>
inline constexpr const char* kName<AgentEvent> = "agent_event";
template <>
inline constexpr const char* kName<RecordedStart> = "recorded_start";
template <>
inline constexpr const char* kName<RecordedEvent> = "recorded_event";
template <>
inline constexpr const char* kName<RecordedHash> = "recorded_hash";
}  // namespace wire

}  // namespace infos
