// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/sampler/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "devices/engine/sampler/row_math.h"
#include "topology/base/check.h"
#include "topology/base/rng.h"

namespace infos {

namespace {
constexpr float kGreedyBelow = 1e-5F;
/// Keeps a hostile bias or penalty from making an infinity out of a finite logit.
constexpr float kLogitMax = 1e30F;
}  // namespace

SequenceSampler::SequenceSampler(const SamplingParams& params, std::span<const TokenId> tokens,
                                 std::uint32_t prompt_tokens, std::uint32_t vocab)
    : params_(params), vocab_(vocab) {
  const bool from_prompt = params.repetition_penalty != 1.0F;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || static_cast<std::uint32_t>(tokens[i]) >= vocab) continue;
    if (i >= prompt_tokens)
      count_emitted(tokens[i]);
    else if (from_prompt)
      emitted_.try_emplace(tokens[i], 0);
  }
}

bool SequenceSampler::adjusts() const {
  return !params_.logit_bias.empty() ||
         (!emitted_.empty() && (params_.presence_penalty != 0 || params_.frequency_penalty != 0 ||
                                params_.repetition_penalty != 1.0F));
}

void SequenceSampler::count_emitted(TokenId token) {
  if (params_.presence_penalty != 0 || params_.frequency_penalty != 0 ||
      params_.repetition_penalty != 1.0F)
    ++emitted_[token];
}

void SequenceSampler::adjust(std::span<const float> logits, SamplerScratch& scratch) const {
  scratch.adjusted.assign(logits.begin(), logits.end());
  float* row = scratch.adjusted.data();
  for (const auto& [token, bias] : params_.logit_bias)
    if (token >= 0 && static_cast<std::uint32_t>(token) < vocab_)
      row[token] = std::clamp(row[token] + bias, -kLogitMax, kLogitMax);
  // Each token is changed by itself, so the order of the map does not matter.
  for (const auto& [token, count] : emitted_) {
    float x = row[token];
    if (params_.repetition_penalty != 1.0F)
      x = x > 0 ? x / params_.repetition_penalty : x * params_.repetition_penalty;
    if (count > 0)
      x -= params_.presence_penalty + params_.frequency_penalty * static_cast<float>(count);
    row[token] = std::clamp(x, -kLogitMax, kLogitMax);
  }
}

namespace {

/// What is left of the vocabulary: values, weights and, when anything was cut, the token ids.
struct Left {
  std::span<const float> values;
  std::span<float> weights;
  bool all = true;
};

/// Keeps of `scratch.kept`, `weights` and `ids` what `keeps(position)` says; makes them on the
/// first cut.
template <typename Keeps>
void keep_only(Left& left, SamplerScratch& s, const Keeps& keeps) {
  const std::size_t n = left.values.size();
  if (left.all) {
    s.kept.resize(n);
    s.ids.resize(n);
  }
  std::size_t to = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const bool kept =
        keeps(i);  // before anything is moved; no branch, since nobody could predict it
    s.ids[to] = left.all ? static_cast<std::uint32_t>(i) : s.ids[i];
    s.kept[to] = left.values[i];
    s.weights[to] = left.weights[i];
    to += kept ? 1 : 0;
  }
  left.values = {s.kept.data(), to};
  left.weights = {s.weights.data(), to};
  left.all = false;
}

/// The first position at which the running sum of weights passes u times their sum.
std::size_t inverse_cumulative(std::span<const float> weights, double u,
                               std::vector<double>& sums) {
  constexpr std::size_t kBlock = 1024;
  const auto block = [&](std::size_t b) {
    return weights.subspan(b * kBlock, std::min(kBlock, weights.size() - b * kBlock));
  };
  sums.clear();
  double total = 0;
  for (std::size_t b = 0; b * kBlock < weights.size(); ++b) {
    sums.push_back(sum_of(block(b)));
    total += sums.back();
  }
  const double goal = u * total;
  double before = 0;
  std::size_t last = 0;  // a position with weight: where rounding at the very end leads
  for (std::size_t b = 0; b < sums.size(); before += sums[b++]) {
    if (sums[b] <= 0) continue;
    const bool ends_here = before + sums[b] > goal;
    if (!ends_here && b + 1 < sums.size()) {
      last = b * kBlock;
      continue;
    }
    double running = before;
    for (std::size_t i = 0; i < block(b).size(); ++i) {
      if (block(b)[i] <= 0) continue;
      running += static_cast<double>(block(b)[i]);
      last = b * kBlock + i;
      if (running > goal) return last;
    }
    if (ends_here) return last;
  }
  while (weights[last] <= 0 && last + 1 < weights.size()) ++last;
  return last;
}

}  // namespace

std::uint32_t SequenceSampler::draw(std::span<const float> logits, std::uint32_t index,
                                    SamplerScratch& s) const {
  const float largest = *std::max_element(s.maxima.begin(), s.maxima.end());
  Left left{logits, {}, true};
  const auto k = static_cast<std::size_t>(std::max(params_.top_k, 0));
  if (k > 0 && k < logits.size()) {
    s.ids = largest_indices(logits, s.maxima, k);
    std::sort(s.ids.begin(), s.ids.end());
    s.kept.resize(k);
    for (std::size_t i = 0; i < k; ++i) s.kept[i] = logits[s.ids[i]];
    left = {s.kept, {}, false};
  }
  s.weights.resize(left.values.size());
  left.weights = s.weights;
  const double total = exponentials(left.values, largest, 1.0F / params_.temperature, left.weights);
  if (params_.top_p < 1.0F) {
    const Cut cut =
        find_cut(left.values, left.weights, largest, static_cast<double>(params_.top_p) * total);
    keep_only(left, s, [&](std::size_t i) { return cut.keeps(left.values[i], i); });
  }
  // The likeliest token's weight is 1.
  if (params_.min_p > 0)
    keep_only(left, s, [&](std::size_t i) {
      return left.weights[i] >= params_.min_p || left.values[i] == largest;
    });
  const std::size_t at =
      inverse_cumulative(left.weights, counter_uniform(params_.seed, index, 0), s.sums);
  return left.all ? static_cast<std::uint32_t>(at) : s.ids[at];
}

void SequenceSampler::add_logprobs(std::span<const float> logits, SamplerScratch& s,
                                   SampledToken& out) const {
  const float largest = *std::max_element(s.maxima.begin(), s.maxima.end());
  s.weights.resize(logits.size());
  const double log_sum = std::log(exponentials(logits, largest, 1.0F, s.weights));
  const auto logprob = [&](std::size_t i) {
    return static_cast<float>(static_cast<double>(logits[i]) - static_cast<double>(largest) -
                              log_sum);
  };
  out.logprob = logprob(static_cast<std::size_t>(out.token));
  const std::size_t n =
      std::min<std::size_t>(static_cast<std::size_t>(params_.top_logprobs), logits.size());
  if (n == 0) return;
  for (const std::uint32_t i : largest_indices(logits, s.maxima, n))
    out.top.push_back({static_cast<TokenId>(i), logprob(i)});
}

Result<SampledToken> SequenceSampler::sample(std::span<const float> logits, std::uint32_t index,
                                             SamplerScratch& scratch) {
  INFOS_CHECK(logits.size() == vocab_);
  if (!chunk_maxima(logits, scratch.maxima)) {
    const std::size_t at = first_not_finite(logits).value_or(0);
    return Error{ErrorCode::corrupt,
                 fmt::format("the logit of token {} is {}: want a finite number", at, logits[at])};
  }
  SampledToken out;
  std::span<const float> row = logits;
  if (adjusts()) {
    adjust(logits, scratch);
    row = scratch.adjusted;
    chunk_maxima(row, scratch.maxima);
  }
  const bool greedy = !(params_.temperature >= kGreedyBelow);
  out.token =
      static_cast<TokenId>(greedy ? argmax(row, scratch.maxima) : draw(row, index, scratch));
  if (params_.top_logprobs >= 0) {
    if (row.data() != logits.data()) chunk_maxima(logits, scratch.maxima);
    add_logprobs(logits, scratch, out);
  }
  count_emitted(out.token);
  return out;
}

}  // namespace infos
