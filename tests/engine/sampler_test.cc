// SPDX-License-Identifier: Apache-2.0
// Goal: the sampler follows its definition for every mix of parameters, and its draws follow the
// distribution. Method: a brute-force sampler in double that sorts everything, random rows with and
// without ties; chi-square on fixed seeds; hand-made rows for what a request can get wrong.
#include "devices/engine/sampler/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "topology/base/rng.h"

namespace infos {
namespace {

std::vector<double> adjusted(const std::vector<float>& logits, const SamplingParams& p,
                             const std::vector<TokenId>& tokens, std::size_t prompt) {
  std::vector<double> x(logits.begin(), logits.end());
  for (const auto& [token, bias] : p.logit_bias)
    x[static_cast<std::size_t>(token)] += static_cast<double>(bias);
  const std::set<TokenId> distinct(tokens.begin(), tokens.end());
  for (const TokenId token : distinct) {
    double& v = x[static_cast<std::size_t>(token)];
    v = v > 0 ? v / static_cast<double>(p.repetition_penalty)
              : v * static_cast<double>(p.repetition_penalty);
    const auto count =
        std::count(tokens.begin() + static_cast<std::ptrdiff_t>(prompt), tokens.end(), token);
    if (count > 0)
      v -= static_cast<double>(p.presence_penalty) +
           static_cast<double>(p.frequency_penalty) * static_cast<double>(count);
  }
  return x;
}

/// The definition in sampler.h, word for word.
TokenId brute_force(const std::vector<double>& x, const SamplingParams& p, double top_p,
                    double min_p, double u) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return x[a] > x[b]; });
  if (p.temperature == 0) return static_cast<TokenId>(order[0]);
  if (p.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(p.top_k)));
  std::vector<double> weight(x.size(), 0);
  double total = 0;
  for (const std::size_t i : order)
    total += weight[i] = std::exp((x[i] - x[order[0]]) / static_cast<double>(p.temperature));
  std::size_t kept = order.size();
  if (top_p < 1) {
    double sum = 0;
    for (kept = 0; kept < order.size() && sum < top_p * total;) sum += weight[order[kept++]];
    kept = std::max<std::size_t>(kept, 1);
  }
  order.resize(kept);
  std::erase_if(order, [&](std::size_t i) { return weight[i] < min_p; });
  std::sort(order.begin(), order.end());
  double left = 0;
  for (const std::size_t i : order) left += weight[i];
  double running = 0;
  for (const std::size_t i : order)
    if ((running += weight[i]) > u * left) return static_cast<TokenId>(i);
  return static_cast<TokenId>(order.back());
}

struct Case {
  std::vector<float> logits;
  SamplingParams params;
  std::vector<TokenId> tokens;
  std::uint32_t prompt = 0;
};

Case random_case(Rng& rng) {
  Case c;
  const std::size_t vocab = 1 + rng.below(rng.chance(0.2) ? 5000 : 200);
  const bool ties = rng.chance(0.5);
  for (std::size_t i = 0; i < vocab; ++i) {
    const double x = 12 * (rng.uniform() + rng.uniform() + rng.uniform()) - 18;
    c.logits.push_back(static_cast<float>(ties ? std::round(x) : x));
  }
  SamplingParams& p = c.params;
  p.seed = rng.next();
  p.temperature = rng.chance(0.2) ? 0.0F : static_cast<float>(0.2 + 2 * rng.uniform());
  if (rng.chance(0.5)) p.top_k = static_cast<std::int32_t>(rng.below(vocab + 3));
  if (rng.chance(0.5)) p.top_p = static_cast<float>(rng.uniform());
  if (rng.chance(0.3)) p.min_p = static_cast<float>(rng.uniform() * 0.3);
  if (rng.chance(0.3)) p.presence_penalty = static_cast<float>(4 * rng.uniform() - 2);
  if (rng.chance(0.3)) p.frequency_penalty = static_cast<float>(4 * rng.uniform() - 2);
  if (rng.chance(0.3)) p.repetition_penalty = static_cast<float>(0.5 + rng.uniform());
  for (std::uint64_t i = rng.below(4); i > 0; --i)
    p.logit_bias.emplace_back(static_cast<TokenId>(rng.below(vocab)),
                              static_cast<float>(rng.chance(0.3) ? -100 : 10 * rng.uniform()));
  for (std::uint64_t i = rng.below(30); i > 0; --i)
    c.tokens.push_back(static_cast<TokenId>(rng.below(vocab)));
  c.prompt = static_cast<std::uint32_t>(rng.below(c.tokens.size() + 1));
  return c;
}

TEST(Sampler, RandomParametersAndRows_AgreeWithBruteForce) {
  Rng rng(20261130);
  int near_boundary = 0;
  SamplerScratch scratch;
  for (int trial = 0; trial < 3000; ++trial) {
    const Case c = random_case(rng);
    SequenceSampler sampler(c.params, c.tokens, c.prompt,
                            static_cast<std::uint32_t>(c.logits.size()));
    std::vector<TokenId> tokens = c.tokens;
    for (std::uint32_t index = 0; index < 4; ++index) {
      const auto got = sampler.sample(c.logits, index, scratch);
      ASSERT_TRUE(got.ok()) << got.error().message;
      const auto x = adjusted(c.logits, c.params, tokens, c.prompt);
      const double u = counter_uniform(c.params.seed, index, 0);
      const auto top_p = static_cast<double>(c.params.top_p),
                 min_p = static_cast<double>(c.params.min_p);
      if (got->token != brute_force(x, c.params, top_p, min_p, u)) {
        // Float against double: a draw or a cut that lies within rounding of a boundary may fall on
        // either side.
        ++near_boundary;
        std::set<TokenId> allowed;
        for (const double du : {-2e-6, 0.0, 2e-6})
          for (const double dp : {-2e-6, 0.0, 2e-6})
            for (const double dm : {-1e-6, 0.0, 1e-6})
              allowed.insert(brute_force(x, c.params, top_p < 1 ? top_p + dp : 1,
                                         min_p > 0 ? min_p + dm : 0, u + du));
        ASSERT_TRUE(allowed.contains(got->token))
            << "trial " << trial << " index " << index << " vocab " << c.logits.size();
      }
      tokens.push_back(got->token);
    }
  }
  EXPECT_LT(near_boundary, 20);  // of 12,000
}

TEST(Sampler, SameSeedAndIndex_SameTokenWhateverCameBetween) {
  Rng rng(3);
  std::vector<float> logits(1000);
  for (float& x : logits) x = static_cast<float>(6 * rng.uniform());
  SamplingParams params;
  params.seed = 77;
  SamplerScratch scratch, other;
  SequenceSampler a(params, {}, 0, 1000), b(params, {}, 0, 1000);
  for (std::uint32_t index = 0; index < 50; ++index) {
    (void)b.sample(logits, index + 100, other);
    EXPECT_EQ(a.sample(logits, index, scratch)->token, b.sample(logits, index, other)->token);
  }
}

/// Chi-square of `draws` tokens against the probabilities; classes below 5 expected are joined.
double chi_square(const std::vector<double>& probability, const std::vector<std::uint64_t>& seen,
                  double draws, int& freedom) {
  double chi = 0, rest_expected = 0, rest_seen = 0;
  freedom = -1;
  for (std::size_t i = 0; i < probability.size(); ++i) {
    const double expected = probability[i] * draws;
    const auto count = static_cast<double>(seen[i]);
    if (expected < 5) {
      rest_expected += expected;
      rest_seen += count;
      continue;
    }
    chi += (count - expected) * (count - expected) / expected;
    ++freedom;
  }
  if (rest_expected > 0) {
    chi += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
    ++freedom;
  }
  return chi;
}

TEST(Sampler, ManyDraws_FollowTheDistribution) {
  Rng rng(5);
  for (const float temperature : {0.5F, 1.0F, 1.7F}) {
    std::vector<float> logits(120);
    for (float& x : logits) x = static_cast<float>(5 * rng.uniform());
    std::vector<double> probability;
    double total = 0;
    for (const float x : logits)
      probability.push_back(std::exp(static_cast<double>(x) / static_cast<double>(temperature)));
    for (const double p : probability) total += p;
    for (double& p : probability) p /= total;
    SamplingParams params;
    params.temperature = temperature;
    params.seed = 99;
    SequenceSampler sampler(params, {}, 0, 120);
    SamplerScratch scratch;
    std::vector<std::uint64_t> seen(120);
    constexpr int kDraws = 40000;
    for (std::uint32_t i = 0; i < kDraws; ++i)
      ++seen[static_cast<std::size_t>(sampler.sample(logits, i, scratch)->token)];
    int freedom = 0;
    const double chi = chi_square(probability, seen, kDraws, freedom);
    // Beyond mean + 4 standard deviations of the chi-square distribution: one in ten thousand, and
    // the seed is fixed.
    EXPECT_LT(chi, freedom + 4 * std::sqrt(2.0 * freedom)) << "temperature " << temperature;
  }
}

TEST(Sampler, Logprobs_AreOfTheRawDistributionSortedWithTiesByTokenId) {
  const std::vector<float> logits = {1, 3, 2, 3, -1, 3};
  SamplingParams params;
  params.temperature = 0;
  params.top_logprobs = 4;
  params.logit_bias = {{4, 50.0F}};
  SequenceSampler sampler(params, {}, 0, 6);
  SamplerScratch scratch;
  const auto got = sampler.sample(logits, 0, scratch);
  ASSERT_TRUE(got.ok());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  EXPECT_EQ(got->token, 4);
  EXPECT_NEAR(got->logprob, -1 - std::log(sum), 1e-6);
  ASSERT_EQ(got->top.size(), 4U);
  const TokenId want[] = {1, 3, 5, 2};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(got->top[i].token, want[i]);
    EXPECT_NEAR(got->top[i].logprob,
                static_cast<double>(logits[static_cast<std::size_t>(want[i])]) - std::log(sum),
                1e-6);
  }
}

TEST(Sampler, TopLogprobsOfALargeRow_AreTheLargestInOrder) {
  Rng rng(8);
  std::vector<float> logits(20000);
  for (float& x : logits) x = static_cast<float>(std::round(4000 * rng.uniform()) / 100);
  SamplingParams params;
  params.temperature = 0;
  params.top_logprobs = 20;
  SequenceSampler sampler(params, {}, 0, 20000);
  SamplerScratch scratch;
  const auto got = sampler.sample(logits, 0, scratch);
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  ASSERT_EQ(got->top.size(), 20U);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(got->top[i].token, order[i]) << i;
}

TEST(Sampler, NotFiniteLogit_IsAnErrorThatNamesTheTokenAndCountsNothing) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const std::size_t at : {std::size_t{0}, std::size_t{70}, std::size_t{199}}) {
      std::vector<float> logits(200, 1.0F);
      logits[at] = bad;
      SamplingParams params;
      params.temperature = 0.8F;
      SequenceSampler sampler(params, {}, 0, 200);
      SamplerScratch scratch;
      const auto got = sampler.sample(logits, 0, scratch);
      ASSERT_FALSE(got.ok());
      EXPECT_EQ(got.error().code, ErrorCode::corrupt);
      EXPECT_NE(got.error().message.find("token " + std::to_string(at)), std::string::npos)
          << got.error().message;
    }
  }
}

TEST(Sampler, HostileParametersAndTokens_GiveATokenOfTheVocabulary) {
  SamplingParams params;
  params.temperature = 1e-30F;
  params.top_p = 0;
  params.min_p = 1;
  params.repetition_penalty = 0;
  params.presence_penalty = 3e38F;
  params.logit_bias = {{-5, 1.0F}, {900, 1.0F}, {2, 3e38F}, {3, -3e38F}};
  const std::vector<TokenId> tokens = {-1, 1000, 0, 1, 2};
  for (const float temperature : {0.0F, 1e-30F, 1e-4F, 1.0F, 1e30F}) {
    params.temperature = temperature;
    SequenceSampler sampler(params, tokens, 2, 5);
    SamplerScratch scratch;
    const std::vector<float> logits = {0, 0, 0, 0, 0};
    for (std::uint32_t i = 0; i < 10; ++i) {
      const auto got = sampler.sample(logits, i, scratch);
      ASSERT_TRUE(got.ok()) << got.error().message;
      EXPECT_GE(got->token, 0);
      EXPECT_LT(got->token, 5);
    }
  }
}

TEST(Sampler, EqualLogits_GreedyTakesTheLowestToken) {
  const std::vector<float> logits(300, 2.5F);
  SamplingParams params;
  params.temperature = 0;
  SequenceSampler sampler(params, {}, 0, 300);
  SamplerScratch scratch;
  EXPECT_EQ(sampler.sample(logits, 0, scratch)->token, 0);
  params.temperature = 1;
  params.top_k = 2;
  SequenceSampler top2(params, {}, 0, 300);
  for (std::uint32_t i = 0; i < 50; ++i) EXPECT_LT(top2.sample(logits, i, scratch)->token, 2);
}

}  // namespace
}  // namespace infos
