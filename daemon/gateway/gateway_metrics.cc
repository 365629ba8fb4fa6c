// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/gateway_metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <utility>

namespace infos {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

const prometheus::Histogram::BucketBoundaries kTtftSeconds = {
    .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60};
const prometheus::Histogram::BucketBoundaries kInterTokenSeconds = {
    .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5};
const prometheus::Histogram::BucketBoundaries kRequestSeconds = {
    .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600};

// One family of the workers' figures, made when somebody asks.
class Family {
 public:
  Family(std::string name, std::string help, MetricType type) {
    family_.name = std::move(name);
    family_.help = std::move(help);
    family_.type = type;
  }
  void add(double value, std::vector<prometheus::ClientMetric::Label> labels) {
    prometheus::ClientMetric metric;
    metric.label = std::move(labels);
    if (family_.type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    family_.metric.push_back(std::move(metric));
  }
  MetricFamily take() { return std::move(family_); }

 private:
  MetricFamily family_;
};

std::vector<prometheus::ClientMetric::Label> labels_of(const Gateway::WorkerView& w) {
  return {{"worker", std::to_string(w.worker.value)}, {"model", w.ready.model}};
}

void add_workers(std::span<const Gateway::WorkerView> workers, std::vector<MetricFamily>& out) {
  using Get = double (*)(const WorkerLoad&);
  struct Row {
    const char* name;
    const char* help;
    MetricType type;
    Get get;
  };
  static constexpr Row kRows[] = {
      {"infos_worker_running_requests", "Sequences in the worker's batch", MetricType::Gauge,
       [](const WorkerLoad& l) { return double(l.running); }},
      {"infos_worker_waiting_requests", "Sequences queued in the worker", MetricType::Gauge,
       [](const WorkerLoad& l) { return double(l.waiting); }},
      {"infos_kv_blocks_capacity", "KV blocks of the worker's pool", MetricType::Gauge,
       [](const WorkerLoad& l) { return double(l.kv_blocks_total); }},
      {"infos_kv_blocks_used", "KV blocks that sequences refer to", MetricType::Gauge,
       [](const WorkerLoad& l) { return double(l.kv_blocks_used); }},
      {"infos_kv_blocks_cached", "Free KV blocks that hold reusable prefixes", MetricType::Gauge,
       [](const WorkerLoad& l) { return double(l.kv_blocks_cached); }},
      {"infos_worker_preemptions_total", "Sequences put back to be recomputed", MetricType::Counter,
       [](const WorkerLoad& l) { return double(l.preemptions); }},
      {"infos_worker_generated_tokens_total", "Tokens this worker process has generated",
       MetricType::Counter, [](const WorkerLoad& l) { return double(l.generated_tokens); }},
      {"infos_worker_prefill_tokens_per_second", "Prefill rate measured lately", MetricType::Gauge,
       [](const WorkerLoad& l) { return l.prefill_tokens_per_second; }},
      {"infos_worker_decode_step_seconds", "Decode step time measured lately", MetricType::Gauge,
       [](const WorkerLoad& l) { return l.decode_step_seconds; }},
  };
  for (const Row& row : kRows) {
    Family family(row.name, row.help, row.type);
    for (const auto& w : workers) family.add(row.get(w.ready.load), labels_of(w));
    out.push_back(family.take());
  }
}

}  // namespace

GatewayMetrics::GatewayMetrics() : registry_(std::make_shared<prometheus::Registry>()) {
  const auto counter = [&](const char* name, const char* help) {
    return &prometheus::BuildCounter().Name(name).Help(help).Register(*registry_);
  };
  const auto histogram = [&](const char* name, const char* help) {
    return &prometheus::BuildHistogram().Name(name).Help(help).Register(*registry_);
  };
  requests_ = counter("infos_requests_total",
                      "Generation requests by model and outcome: ok, rejected, error, cancelled");
  ttft_ = histogram("infos_time_to_first_token_seconds",
                    "From the request's arrival to its first token");
  inter_token_ = histogram("infos_inter_token_seconds", "Between deliveries of one choice");
  e2e_ = histogram("infos_request_seconds", "From the request's arrival to its last token");
  prompt_tokens_ = counter("infos_prompt_tokens_total", "Prompt tokens of completed requests");
  cached_tokens_ = counter("infos_cached_prompt_tokens_total", "Prompt tokens whose KV was reused");
  generated_tokens_ = counter("infos_generated_tokens_total", "Tokens delivered");
  responses_ = counter("infos_http_responses_total", "HTTP answers by status code");
  connections_ = &prometheus::BuildGauge()
                      .Name("infos_http_connections")
                      .Help("HTTP connections open")
                      .Register(*registry_)
                      .Add({});
}

ModelMetrics& GatewayMetrics::model(const std::string& name) {
  const auto it = models_.find(name);
  if (it != models_.end()) return it->second;
  ModelMetrics m{};
  constexpr const char* kOutcomes[] = {"ok", "rejected", "error", "cancelled"};
  for (std::size_t i = 0; i < m.requests.size(); ++i) {
    m.requests[i] = &requests_->Add({{"model", name}, {"outcome", kOutcomes[i]}});
  }
  m.ttft = &ttft_->Add({{"model", name}}, kTtftSeconds);
  m.inter_token = &inter_token_->Add({{"model", name}}, kInterTokenSeconds);
  m.e2e = &e2e_->Add({{"model", name}}, kRequestSeconds);
  m.prompt_tokens = &prompt_tokens_->Add({{"model", name}});
  m.cached_tokens = &cached_tokens_->Add({{"model", name}});
  m.generated_tokens = &generated_tokens_->Add({{"model", name}});
  return models_.emplace(name, m).first->second;
}

void GatewayMetrics::response(int status) {
  prometheus::Counter*& counter = responses_by_status_[status];
  if (!counter) counter = &responses_->Add({{"code", std::to_string(status)}});
  counter->Increment();
}

// The vllm: names, per model: routers (the Gateway API inference extension among them) read the
// queue, the running ones and kv_cache_usage_perc; dashboards also the tokens.
std::string GatewayMetrics::text(const Snapshot& snapshot) const {
  std::vector<MetricFamily> families = registry_->Collect();
  add_workers(snapshot.workers, families);

  Family live("infos_requests_live", "Sequences admitted and not ended", MetricType::Gauge);
  live.add(static_cast<double>(snapshot.live_requests), {});
  families.push_back(live.take());
  std::uint64_t all_running = 0;
  for (const auto& w : snapshot.workers) all_running += w.ready.load.running;
  const double queued = std::max(0.0, double(snapshot.live_requests) - double(all_running));
  Family depth("infos_queue_depth", "Sequences admitted that no worker's batch holds yet",
               MetricType::Gauge);
  depth.add(queued, {});
  families.push_back(depth.take());

  Family running("vllm:num_requests_running", "Sequences in workers' batches", MetricType::Gauge);
  Family waiting("vllm:num_requests_waiting", "Sequences waiting for a batch", MetricType::Gauge);
  Family usage("vllm:kv_cache_usage_perc", "KV blocks in use, 1 is all", MetricType::Gauge);
  Family generated("vllm:generation_tokens_total", "Tokens generated", MetricType::Counter);
  for (const std::string& name : snapshot.models) {
    std::uint64_t r = 0, w = 0, used = 0, total = 0;
    for (const auto& worker : snapshot.workers) {
      if (worker.ready.model != name) continue;
      r += worker.ready.load.running;
      w += worker.ready.load.waiting;
      used += worker.ready.load.kv_blocks_used;
      total += worker.ready.load.kv_blocks_total;
    }
    const std::vector<prometheus::ClientMetric::Label> labels = {{"model_name", name}};
    running.add(double(r), labels);
    // What waits in the gateway itself is known for all models together; with one model that is all
    // there is.
    waiting.add(snapshot.models.size() == 1 ? std::max(queued, double(w)) : double(w), labels);
    usage.add(total == 0 ? 0.0 : double(used) / double(total), labels);
    const auto it = models_.find(name);
    generated.add(it == models_.end() ? 0.0 : it->second.generated_tokens->Value(), labels);
  }
  for (Family* family : {&running, &waiting, &usage, &generated})
    families.push_back(family->take());
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace infos
