// SPDX-License-Identifier: Apache-2.0
// Request traces as OpenTelemetry's OTLP/HTTP JSON (ExportTraceServiceRequest): one root span per
// request, one child per span of it, one grandchild per KV layer. Pure.
// Source: opentelemetry-proto 1.x, "JSON Protobuf Encoding": ids in hex, 64-bit numbers as text.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "daemon/control/trace_log.h"

namespace infos {

struct OtlpResource {
  std::string node;  ///< service.instance.id
  std::string version;
  std::int64_t unix_offset_ns = 0;  ///< what turns the traces' clock into Unix time
};

/// A request whose client sent a traceparent joins that trace; others get one of their own, the
/// same every time it is written.
std::string otlp_json(std::span<const RequestTrace> traces, const OtlpResource& resource);

}  // namespace infos
