// SPDX-License-Identifier: Apache-2.0
// What a bench sends and when: request lengths and arrival times, drawn from a seed or read from a
// trace. Pure; the same seed gives the same plan everywhere.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/base/result.h"
#include "topology/base/rng.h"
#include "topology/base/units.h"

namespace infos::cli {

/// Token counts: "256", or a range "64:512", drawn uniformly.
struct LengthRange {
  std::uint32_t low = 1, high = 1;
};
/// Errors: invalid_argument.
Result<LengthRange> parse_lengths(const std::string& text);

struct PlannedRequest {
  Duration at;  ///< after the start; 0 in a closed loop
  std::uint32_t prompt_tokens = 1;
  std::uint32_t output_tokens = 1;
  friend bool operator==(const PlannedRequest&, const PlannedRequest&) = default;
};

struct PlanOptions {
  std::uint64_t requests = 100;
  double rate = 0;  ///< requests/s of a Poisson process; 0: all at once (closed loop)
  LengthRange prompt, output;
  std::uint64_t seed = 1;
};
std::vector<PlannedRequest> generate_plan(const PlanOptions& options);

/// Reads CSV (with a head line) or JSON lines. Columns, any case: arrival as TIMESTAMP (date, or
/// milliseconds when a number), arrival_s, arrival_time_ns; prompt as ContextTokens, input_length,
/// input_toks, prompt_tokens; answer as GeneratedTokens, output_length, output_toks, output_tokens.
/// Times are counted from the first row. Errors: invalid_argument, naming line and column. Bounded:
/// 10 million rows, 64 KiB a line.
struct TraceOptions {
  std::uint64_t requests = 0;  ///< at most so many rows; 0: all
  double speed = 1;            ///< 2: twice as fast
};
Result<std::vector<PlannedRequest>> read_trace(std::string_view text, const TraceOptions& options);

/// Words that mean nothing, for prompts of about `tokens` tokens. Two prompts differ from their
/// first word after the first `shared` words.
struct PromptShape {
  double tokens_per_word = 1;
  std::uint32_t shared_tokens = 0;
};
std::string make_prompt(Rng& rng, std::uint32_t tokens, const PromptShape& shape);

}  // namespace infos::cli
