// SPDX-License-Identifier: Apache-2.0
// From measured requests to figures: percentiles, throughput, goodput; as JSON and as a table.
// Pure.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "topology/base/units.h"

namespace infos::cli {

/// One request as the client saw it.
struct Sample {
  std::string error;     ///< empty: answered whole
  bool warm_up = false;  ///< not counted
  Duration start;        ///< when it should have been sent, after the bench's start
  Duration ttft;         ///< from `start` to the first text
  Duration last;         ///< from `start` to the last text
  Duration total;        ///< from `start` to the end of the answer
  std::uint64_t prompt_tokens = 0, cached_tokens = 0;
  std::uint64_t output_tokens = 0;  ///< as the server counted, else chunks
  std::uint64_t chunks = 0;         ///< events with text
  /// Time per token after the first; 0 for answers of one token.
  Duration tpot() const;
};

/// Of a set of values, in their unit. Percentiles by nearest rank: the smallest value that p % of
/// all do not exceed.
struct Spread {
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};
Spread spread_of(std::vector<double> values);

struct Slo {
  std::optional<Duration> ttft, tpot;
};

struct Report {
  std::uint64_t requests = 0, answered = 0, failed = 0, warm_up = 0;
  std::map<std::string, std::uint64_t> errors;  ///< message, how often
  double seconds = 0;  ///< from the first counted start to the last counted end
  double requests_per_second = 0, output_tokens_per_second = 0, prompt_tokens_per_second = 0;
  std::uint64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0, chunks = 0;
  Spread ttft_ms, tpot_ms, gap_ms, total_ms;
  bool has_slo = false;
  double goodput = 0;  ///< requests/s that met the SLO
  double met_slo = 0;  ///< part of the counted requests, failures included
};
/// `gaps`: times between consecutive chunks of an answer, of counted requests.
Report make_report(const std::vector<Sample>& samples, std::vector<double> gaps_ms, const Slo& slo);

boost::json::object report_json(const Report& report);
std::string report_table(const Report& report);

}  // namespace infos::cli
