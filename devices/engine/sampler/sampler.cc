// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/sampler/sampler.h"

#include <fmt/format.h>

#include <cmath>

namespace infos {

SequenceSampler::SequenceSampler(const SamplingParams& params, std::span<const TokenId>,
                                 std::uint32_t, std::uint32_t)
    : params_(params) {}

Result<SampledToken> SequenceSampler::sample(std::span<const float> logits, std::uint32_t,
                                             SamplerScratch&) {
  SamplingParams greedy;
  greedy.temperature = 0;
  greedy.seed = params_.seed;
  if (!(params_ == greedy)) return Error{ErrorCode::unsupported, "sampling other than greedy"};
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i]))
      return Error{ErrorCode::corrupt, fmt::format("the logit of token {} is {}", i, logits[i])};
    if (logits[i] > logits[best]) best = i;
  }
  return SampledToken{static_cast<TokenId>(best), 0, {}};
}

}  // namespace infos
