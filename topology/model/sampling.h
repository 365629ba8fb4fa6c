// SPDX-License-Identifier: Apache-2.0
// How the next token is chosen: the parameters that travel from a client's request to the engine's
// sampler.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "topology/base/ids.h"

namespace infos {

struct SamplingParams {
  float temperature = 1.0F;  ///< 0: greedy
  std::int32_t top_k = 0;    ///< 0: off
  float top_p = 1.0F;
  float min_p = 0.0F;
  float presence_penalty = 0.0F;    ///< OpenAI: over emitted tokens
  float frequency_penalty = 0.0F;   ///< OpenAI: over emitted tokens
  float repetition_penalty = 1.0F;  ///< over prompt and emitted tokens; 1: off
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::uint64_t seed = 0;  ///< key of the counter-based generator
  std::int32_t top_logprobs =
      -1;  ///< -1: no logprobs; 0: of the chosen token; n: and of the n most likely
  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

/// One chosen token. `logprob` and `top` are of the model's distribution before penalties,
/// temperature and truncation; `top` is sorted, likeliest first, lower token id first on ties.
struct SampledToken {
  TokenId token = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;
  friend bool operator==(const SampledToken&, const SampledToken&) = default;
};

}  // namespace infos
