// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/trace_log.h"

#include <algorithm>
#include <utility>

#include "daemon/control/finish_word.h"

namespace infos {
namespace {

constexpr std::size_t kNone = SIZE_MAX;
constexpr std::size_t kSpansMax = 64;    // a request that moves more often shows its first ones
constexpr std::size_t kLayersMax = 512;  // of one fetch
constexpr std::size_t kNamesMax = 8192;  // named and not arrived

}  // namespace

const char* to_string(TraceSpan::Kind kind) {
  switch (kind) {
    case TraceSpan::Kind::queue:
      return "queue";
    case TraceSpan::Kind::prefill:
      return "prefill";
    case TraceSpan::Kind::kv:
      return "kv";
    case TraceSpan::Kind::decode:
      return "decode";
  }
  return "unknown";
}

std::size_t TraceLog::open(Time now, Live& live, TraceSpan::Kind kind, WorkerRef worker) {
  if (live.trace.spans.size() >= kSpansMax) return kNone;
  TraceSpan& span = live.trace.spans.emplace_back();
  span.kind = kind;
  span.attempt = live.attempt;
  span.begin = now;
  span.end = now - nanoseconds(1);
  span.worker = worker;
  return live.trace.spans.size() - 1;
}

/// Everything open ends now.
void TraceLog::close(Time now, Live& live) {
  for (std::size_t* index : {&live.queue, &live.prefill, &live.decode}) {
    if (*index != kNone) live.trace.spans[*index].end = now;
    *index = kNone;
  }
}

void TraceLog::name(RequestId request, RequestNames names) {
  if (names_.size() >= kNamesMax) names_.erase(names_.begin());
  names_[request] = std::move(names);
}

void TraceLog::on(Time now, const Arrive& event) {
  if (live_.contains(event.request)) return;
  Live& live = live_[event.request];
  RequestTrace& trace = live.trace;
  trace.request = event.request;
  trace.model = event.model;
  trace.begin = now;
  trace.end = now - nanoseconds(1);
  trace.prompt_tokens = static_cast<std::uint32_t>(event.prompt.size());
  if (const auto found = names_.find(event.request); found != names_.end()) {
    trace.request_id = std::move(found->second.request_id);
    trace.answer_id = std::move(found->second.answer_id);
    trace.traceparent = std::move(found->second.traceparent);
    names_.erase(found);
  }
  live.queue = open(now, live, TraceSpan::Kind::queue, {});
}

void TraceLog::on(Time now, const SendWorker& effect) {
  const auto* submit = std::get_if<Submit>(&effect.message);
  if (!submit) return;
  const auto found = live_.find(submit->request);
  if (found == live_.end()) return;
  Live& live = found->second;
  const WorkerRef worker{effect.worker, effect.generation};
  if (submit->attempt.value > live.attempt) {
    close(now, live);
    live.attempt = live.trace.attempts = submit->attempt.value;
    live.decoder = {};
  }
  const bool half = static_cast<bool>(submit->kv_for.worker.worker);
  if (!half) live.decoder = worker;
  const bool fetches = static_cast<bool>(submit->kv_from.worker.worker);
  if (live.queue != kNone) live.trace.spans[std::exchange(live.queue, kNone)].end = now;
  // Of a split request, the half that computes the prompt is the prefill.
  if (!fetches && live.prefill == kNone)
    live.prefill = open(now, live, TraceSpan::Kind::prefill, worker);
}

void TraceLog::on(Time now, const WorkerSaid& event) {
  for (const FetchStat& stat : event.report.fetches) {
    const auto found = live_.find(stat.request);
    if (found == live_.end() || found->second.attempt != stat.attempt.value) continue;
    const std::size_t index =
        open(now - stat.took, found->second, TraceSpan::Kind::kv, {event.worker, event.generation});
    if (index == kNone) continue;
    TraceSpan& span = found->second.trace.spans[index];
    span.end = now;
    span.source = stat.source;
    span.bytes = stat.bytes;
    span.tokens = stat.tokens;
    span.waited = stat.waited;
    const std::size_t layers = std::min(stat.layers.size(), kLayersMax);
    span.layers.assign(stat.layers.begin(), stat.layers.begin() + static_cast<long>(layers));
  }
  for (const SequenceEnd& end : event.report.ended) {
    const auto found = live_.find(end.request);
    if (end.reason != FinishReason::prefilled || found == live_.end()) continue;
    Live& live = found->second;
    if (live.attempt == end.attempt.value && live.prefill != kNone)
      live.trace.spans[std::exchange(live.prefill, kNone)].end = now;
  }
}

void TraceLog::on(Time now, const Deliver& effect) {
  const auto found = live_.find(effect.request);
  if (found == live_.end()) return;
  Live& live = found->second;
  const auto tokens = static_cast<std::uint32_t>(effect.tokens.size());
  live.trace.tokens += tokens;
  if (live.prefill != kNone) live.trace.spans[std::exchange(live.prefill, kNone)].end = now;
  if (live.decode == kNone) live.decode = open(now, live, TraceSpan::Kind::decode, live.decoder);
  if (live.decode != kNone) live.trace.spans[live.decode].tokens += tokens;
}

void TraceLog::end(Time now, RequestId request, std::string outcome, const Finish* finish) {
  names_.erase(request);
  const auto found = live_.find(request);
  if (found == live_.end()) return;
  close(now, found->second);
  RequestTrace trace = std::move(found->second.trace);
  live_.erase(found);
  trace.end = now;
  trace.outcome = std::move(outcome);
  if (finish) {
    trace.cached_tokens = finish->cached_tokens;
    trace.attempts = finish->attempts;
  }
  std::ranges::stable_sort(trace.spans, {}, [](const TraceSpan& s) { return s.begin; });
  ended_.push_back(std::move(trace));
  ++untaken_;
  if (ended_.size() > ended_max_) ended_.pop_front();
  untaken_ = std::min(untaken_, ended_.size());
}

void TraceLog::observe(Time now, const GatewayEvent& event, const GatewayEffects& effects) {
  if (const auto* arrive = std::get_if<Arrive>(&event)) on(now, *arrive);
  if (const auto* said = std::get_if<WorkerSaid>(&event)) on(now, *said);
  for (const GatewayEffect& effect : effects) {
    if (const auto* deliver = std::get_if<Deliver>(&effect)) {
      on(now, *deliver);
    } else if (const auto* send = std::get_if<SendWorker>(&effect)) {
      on(now, *send);
    } else if (const auto* finish = std::get_if<Finish>(&effect)) {
      end(now, finish->request, to_string(finish->reason), finish);
    } else if (const auto* reject = std::get_if<Reject>(&effect)) {
      end(now, reject->request, std::to_string(reject->http_status), nullptr);
    }
  }
}

std::vector<const RequestTrace*> TraceLog::latest(std::size_t limit) const {
  std::vector<const RequestTrace*> out;
  for (auto at = live_.rbegin(); at != live_.rend() && out.size() < limit; ++at)
    out.push_back(&at->second.trace);
  for (auto at = ended_.rbegin(); at != ended_.rend() && out.size() < limit; ++at)
    out.push_back(&*at);
  return out;
}

std::vector<const RequestTrace*> TraceLog::find(std::string_view name) const {
  const auto is = [&](const RequestTrace& trace) {
    return !name.empty() && (trace.request_id == name || trace.answer_id == name ||
                             std::to_string(trace.request.value) == name);
  };
  std::vector<const RequestTrace*> out;
  for (const RequestTrace& trace : ended_)
    if (is(trace)) out.push_back(&trace);
  for (const auto& [id, live] : live_)
    if (is(live.trace)) out.push_back(&live.trace);
  return out;
}

std::vector<RequestTrace> TraceLog::take_ended() {
  std::vector<RequestTrace> out(ended_.end() - static_cast<long>(untaken_), ended_.end());
  untaken_ = 0;
  return out;
}

}  // namespace infos
