// SPDX-License-Identifier: Apache-2.0
#include "simulator/world/workload.h"

#include <algorithm>

#include "simulator/world/answer.h"

namespace infos {

Workload::Workload(const WorkloadFigures& figures, std::uint32_t max_context, std::uint64_t seed)
    : figures_(figures), max_context_(max_context), rng_(seed) {
  for (std::uint32_t i = 0; i < figures.shared_prefixes; ++i) {
    std::vector<TokenId>& prefix = prefixes_.emplace_back(figures.prompt_tokens_max);
    for (TokenId& token : prefix) token = static_cast<TokenId>(rng_.below(kVocabulary));
  }
}

std::optional<Duration> Workload::gap() {
  if (asked_ >= figures_.requests) return std::nullopt;
  return Duration{static_cast<std::int64_t>(rng_.exponential(1e9 / figures_.requests_per_second))};
}

Arrive Workload::next(Time now) {
  Arrive arrive;
  arrive.request = RequestId{++asked_};
  arrive.model = "model";
  arrive.prompt.resize(between(figures_.prompt_tokens_min, figures_.prompt_tokens_max));
  std::size_t shared = 0;
  if (!prefixes_.empty() && rng_.chance(figures_.shared_prefix)) {
    const std::vector<TokenId>& prefix = prefixes_[rng_.below(prefixes_.size())];
    shared = rng_.below(arrive.prompt.size() + 1);
    std::copy_n(prefix.begin(), shared, arrive.prompt.begin());
  }
  for (std::size_t i = shared; i < arrive.prompt.size(); ++i)
    arrive.prompt[i] = static_cast<TokenId>(rng_.below(kVocabulary));
  arrive.max_new_tokens =
      std::max(1U, between(figures_.answer_tokens_min, figures_.answer_tokens_max));
  arrive.sampling.seed = rng_.next();
  if (rng_.chance(figures_.stop_tokens)) {
    for (int i = 0; i < 4; ++i)
      arrive.stop_tokens.push_back(static_cast<TokenId>(rng_.below(kVocabulary)));
  }
  if (rng_.chance(figures_.deadline))
    arrive.deadline = now + Duration{static_cast<std::int64_t>(rng_.exponential(10e9))};
  if (rng_.chance(figures_.nonsense)) {
    switch (rng_.below(3)) {
      case 0:
        arrive.model = "unknown";
        break;
      case 1:
        arrive.prompt.clear();
        break;
      default:
        arrive.prompt.resize(max_context_ + rng_.below(10));
        break;
    }
  }
  return arrive;
}

}  // namespace infos
