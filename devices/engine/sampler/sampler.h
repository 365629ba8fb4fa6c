// SPDX-License-Identifier: Apache-2.0
// Chooses the next token from a row of logits. Decides by the request's parameters and a
// counter-based draw alone, so the same request gives the same tokens whatever else is in the
// batch. Ties go to the lower token id. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "topology/base/result.h"
#include "topology/model/sampling.h"

namespace infos {

/// Work space that all sequences of one engine share; grows to the vocabulary once.
struct SamplerScratch {
  std::vector<float> adjusted, maxima, kept, weights;
  std::vector<std::uint32_t> ids;
  std::vector<double> sums;
};

/// The sampler of one sequence: its parameters and how often each token came before.
///
/// Order: logit bias, penalties, temperature, then the cuts: top-k, top-p over what top-k left,
/// min-p against the likeliest. The draw is the inverse of the cumulative distribution of the
/// tokens left, in order of token id, at counter_uniform(seed, index of the token in the answer,
/// 0). A temperature below 1e-5 is greedy. A step costs passes over the vocabulary and over the
/// distinct tokens seen, never over the history.
class SequenceSampler {
 public:
  /// `tokens`: the prompt and what was emitted before. Ids outside [0, vocab) are ignored.
  SequenceSampler(const SamplingParams& params, std::span<const TokenId> tokens,
                  std::uint32_t prompt_tokens, std::uint32_t vocab);

  /// Draws token `index` of the answer and counts it. Requires: logits.size() == vocab.
  /// Errors: corrupt: a logit is not finite (names the token id). Then nothing is counted.
  Result<SampledToken> sample(std::span<const float> logits, std::uint32_t index,
                              SamplerScratch& scratch);

 private:
  bool adjusts() const;
  /// The logits with bias and penalties, in scratch.adjusted.
  void adjust(std::span<const float> logits, SamplerScratch& scratch) const;
  std::uint32_t draw(std::span<const float> logits, std::uint32_t index,
                     SamplerScratch& scratch) const;
  void add_logprobs(std::span<const float> logits, SamplerScratch& scratch,
                    SampledToken& out) const;
  void count_emitted(TokenId token);

  SamplingParams params_;
  std::uint32_t vocab_ = 0;
  std::unordered_map<TokenId, std::uint32_t>
      emitted_;  ///< how often; 0 for a token of the prompt alone
};

}  // namespace infos
