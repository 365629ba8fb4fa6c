// SPDX-License-Identifier: Apache-2.0
#include "daemon/infosd/trace_service.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include <chrono>
#include <utility>
#include <vector>

#include "daemon/runtime/clock.h"
#include "daemon/runtime/otlp_text.h"

namespace infos {
namespace {

namespace json = boost::json;

constexpr std::size_t kLatestMax = 100;
constexpr std::string_view kTraces = "/admin/v1/traces/";
constexpr const char* kEachTrace = "/admin/v1/traces/*";

json::object span_json(const TraceSpan& span, Time zero) {
  json::object out{{"kind", to_string(span.kind)},
                   {"attempt", span.attempt},
                   {"begin_seconds", (span.begin - zero).seconds()}};
  if (span.over()) out["seconds"] = (span.end - span.begin).seconds();
  if (span.worker.worker) out["worker"] = span.worker.worker.value;
  if (span.source.worker) out["source"] = span.source.worker.value;
  if (span.bytes > 0) out["bytes"] = span.bytes;
  if (span.tokens > 0) out["tokens"] = span.tokens;
  if (span.waited.ns > 0) out["waited_seconds"] = span.waited.seconds();
  if (span.layers.empty()) return out;
  json::array layers;
  for (const Duration landed : span.layers) layers.push_back(landed.seconds());
  out["layers_landed_seconds"] = std::move(layers);
  return out;
}

json::object trace_json(const RequestTrace& trace) {
  json::object out{{"request", trace.request.value},
                   {"request_id", trace.request_id},
                   {"answer_id", trace.answer_id},
                   {"traceparent", trace.traceparent},
                   {"model", trace.model},
                   {"outcome", trace.outcome.empty() ? "running" : trace.outcome},
                   {"prompt_tokens", trace.prompt_tokens},
                   {"cached_tokens", trace.cached_tokens},
                   {"tokens", trace.tokens},
                   {"attempts", trace.attempts},
                   {"age_seconds", (monotonic_now() - trace.begin).seconds()}};
  if (!trace.outcome.empty()) out["seconds"] = (trace.end - trace.begin).seconds();
  json::array spans;
  for (const TraceSpan& span : trace.spans) spans.push_back(span_json(span, trace.begin));
  out["spans"] = std::move(spans);
  return out;
}

HttpReply traces_reply(const std::vector<const RequestTrace*>& traces) {
  json::array rows;
  for (const RequestTrace* trace : traces) rows.push_back(trace_json(*trace));
  return {200, "application/json",
          json::serialize(json::object{{"traces", std::move(rows)}}) + "\n"};
}

std::int64_t unix_offset_ns() {
  const auto unix_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  return unix_ns.count() - monotonic_now().ns;
}

}  // namespace

TraceService::TraceService(boost::asio::io_context& io, Gateway& gateway, std::string node)
    : gateway_(gateway), node_(std::move(node)), timer_(io) {
  gateway.handle("GET", "/admin/v1/traces", Exposure::unix_only,
                 [&gateway](const HttpRequest&, HttpRespond respond) {
                   respond(traces_reply(gateway.traces().latest(kLatestMax)));
                 });
  gateway.handle(
      "GET", kEachTrace, Exposure::unix_only,
      [&gateway](const HttpRequest& request, HttpRespond respond) {
        const std::string name(request.path.substr(kTraces.size()));
        const auto found = gateway.traces().find(name);
        if (!found.empty()) return respond(traces_reply(found));
        respond(error_reply(404, "trace_not_found",
                            fmt::format("no request '{}' among those that run or ended lately",
                                        name.substr(0, 128))));
      });
}

Result<std::unique_ptr<TraceService>> TraceService::create(boost::asio::io_context& io,
                                                           Gateway& gateway,
                                                           const std::string& otlp_url,
                                                           std::string node) {
  std::unique_ptr<TraceService> service(new TraceService(io, gateway, std::move(node)));
  if (otlp_url.empty()) return service;
  auto exporter = OtlpExporter::create(otlp_url);
  if (!exporter.ok())
    return Error{exporter.error().code, fmt::format("--otlp {}", exporter.error().message)};
  service->exporter_ = *std::move(exporter);
  service->tick();
  return service;
}

void TraceService::tick() {
  const std::vector<RequestTrace> traces = gateway_.take_ended_traces();
  if (!traces.empty()) exporter_->send(otlp_json(traces, {node_, INFOS_VERSION, unix_offset_ns()}));
  timer_.expires_after(std::chrono::seconds(1));
  timer_.async_wait([this](boost::system::error_code error) {
    if (!error) tick();
  });
}

}  // namespace infos
