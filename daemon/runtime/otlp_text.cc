// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/otlp_text.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include <utility>

namespace infos {
namespace {

namespace json = boost::json;

constexpr int kServer = 2;    // SPAN_KIND_SERVER
constexpr int kInternal = 1;  // SPAN_KIND_INTERNAL
constexpr int kError = 2;     // STATUS_CODE_ERROR

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

class Writer {
 public:
  Writer(const RequestTrace& trace, const OtlpResource& resource, json::array& out)
      : trace_(trace), resource_(resource), out_(out) {
    // 00-<32 hex>-<16 hex>-<2 hex>; the gateway has checked it.
    const std::string& parent = trace.traceparent;
    if (parent.size() >= 52) {
      trace_id_ = parent.substr(3, 32);
      caller_ = parent.substr(36, 16);
    } else {
      const std::uint64_t seed =
          mixed(trace.request.value ^ mixed(static_cast<std::uint64_t>(unix_ns(trace.begin))));
      trace_id_ = fmt::format("{:016x}{:016x}", mixed(seed + 1), mixed(seed + 2));
    }
  }

  void write() {
    json::object root = span("request", trace_.begin, trace_.end, caller_, kServer);
    const std::string root_id(root["spanId"].as_string());
    json::array attributes;
    attributes.push_back(text("gen_ai.request.model", trace_.model));
    attributes.push_back(text("infos.outcome", trace_.outcome));
    if (!trace_.request_id.empty())
      attributes.push_back(text("http.request.header.x-request-id", trace_.request_id));
    if (!trace_.answer_id.empty())
      attributes.push_back(text("gen_ai.response.id", trace_.answer_id));
    attributes.push_back(number("gen_ai.usage.input_tokens", trace_.prompt_tokens));
    attributes.push_back(number("gen_ai.usage.output_tokens", trace_.tokens));
    attributes.push_back(number("infos.cached_tokens", trace_.cached_tokens));
    attributes.push_back(number("infos.attempts", trace_.attempts));
    root["attributes"] = std::move(attributes);
    if (trace_.outcome == "error" || trace_.outcome.starts_with('5'))
      root["status"] = json::object{{"code", kError}};
    out_.push_back(std::move(root));
    for (const TraceSpan& part : trace_.spans) write_part(part, root_id);
  }

 private:
  std::int64_t unix_ns(Time time) const { return time.ns + resource_.unix_offset_ns; }

  json::object span(std::string name, Time begin, Time end, const std::string& parent, int kind) {
    ++spans_;
    json::object out{
        {"traceId", trace_id_},
        {"spanId", fmt::format("{:016x}", mixed(mixed(trace_.request.value) + spans_))},
        {"name", std::move(name)},
        {"kind", kind},
        {"startTimeUnixNano", std::to_string(unix_ns(begin))},
        {"endTimeUnixNano", std::to_string(unix_ns(std::max(begin, end)))}};
    if (!parent.empty()) out["parentSpanId"] = parent;
    return out;
  }

  void write_part(const TraceSpan& part, const std::string& root_id) {
    json::object child = span(to_string(part.kind), part.begin, part.end, root_id, kInternal);
    const std::string id(child["spanId"].as_string());
    json::array attributes;
    attributes.push_back(number("infos.attempt", part.attempt));
    if (part.worker.worker) attributes.push_back(number("infos.worker", part.worker.worker.value));
    if (part.source.worker)
      attributes.push_back(number("infos.kv.source", part.source.worker.value));
    if (part.bytes > 0) attributes.push_back(number("infos.kv.bytes", part.bytes));
    if (part.tokens > 0) attributes.push_back(number("infos.tokens", part.tokens));
    child["attributes"] = std::move(attributes);
    out_.push_back(std::move(child));
    Time before = part.begin;
    for (std::size_t i = 0; i < part.layers.size(); ++i) {
      const Time landed = part.begin + part.layers[i];
      out_.push_back(span(fmt::format("kv layer {}", i), before, landed, id, kInternal));
      before = std::max(before, landed);
    }
  }

  static json::value text(const char* key, const std::string& value) {
    return json::object{{"key", key}, {"value", json::object{{"stringValue", value}}}};
  }
  static json::value number(const char* key, std::uint64_t value) {
    return json::object{{"key", key}, {"value", json::object{{"intValue", std::to_string(value)}}}};
  }

  const RequestTrace& trace_;
  const OtlpResource& resource_;
  json::array& out_;
  std::string trace_id_, caller_;
  std::uint64_t spans_ = 0;
};

}  // namespace

std::string otlp_json(std::span<const RequestTrace> traces, const OtlpResource& resource) {
  json::array spans;
  for (const RequestTrace& trace : traces) Writer(trace, resource, spans).write();
  const auto text = [](const char* key, const std::string& value) {
    return json::object{{"key", key}, {"value", json::object{{"stringValue", value}}}};
  };
  json::array attributes{text("service.name", "infos"), text("service.version", resource.version)};
  if (!resource.node.empty()) attributes.push_back(text("service.instance.id", resource.node));
  json::object scope{{"scope", json::object{{"name", "infos"}}}, {"spans", std::move(spans)}};
  json::object one{{"resource", json::object{{"attributes", std::move(attributes)}}},
                   {"scopeSpans", json::array{std::move(scope)}}};
  return json::serialize(json::object{{"resourceSpans", json::array{std::move(one)}}});
}

}  // namespace infos
