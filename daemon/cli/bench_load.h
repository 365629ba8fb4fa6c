// SPDX-License-Identifier: Apache-2.0
// The load of `infos bench`: sends planned requests as a closed or an open loop and measures each
// answer. One thread, many connections; cheap enough to leave the server the machine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/cli/bench_report.h"
#include "daemon/cli/http_client.h"
#include "topology/base/result.h"
#include "topology/base/units.h"

namespace infos::cli {

struct LoadOptions {
  Endpoint endpoint;
  std::string target = "/v1/completions";
  std::string api_key;
  std::uint32_t concurrency = 0;       ///< closed loop: requests in flight; 0: open loop
  std::uint32_t in_flight_max = 4096;  ///< open loop: more are not sent, and count as failed
  std::uint64_t warm_up = 0;           ///< the first so many are not counted
  Duration time_limit{0};              ///< sends none after it; 0: none
  Duration request_timeout = seconds(600);
};

/// One request: when (open loop) and what.
struct LoadRequest {
  Duration at;
  std::string body;
};

struct LoadProgress {
  std::uint64_t sent = 0, ended = 0, planned = 0, chunks = 0;
  Duration elapsed;
};

struct LoadResult {
  std::vector<Sample> samples;
  /// Between chunks, of counted requests; those that came in one read share the time since the one
  /// before.
  std::vector<double> gaps_ms;
};

/// Sends all of `count` requests, made by `make(i)` when their turn comes. `progress` is called
/// about each half second. Errors: unavailable when the server's address cannot be found.
Result<LoadResult> run_load(const LoadOptions& options, std::uint64_t count,
                            const std::function<LoadRequest(std::uint64_t)>& make,
                            const std::function<void(const LoadProgress&)>& progress);

/// Whether an event of a stream brings text: looks for "text" or "content" with a value that is not
/// empty, without reading the JSON. Pure.
bool event_has_text(std::string_view data);

}  // namespace infos::cli
