// SPDX-License-Identifier: Apache-2.0
// How long one draw takes over a vocabulary of 150,000, by what the request asks for. Run by hand;
// asserts nothing.
#include <benchmark/benchmark.h>

#include "devices/engine/sampler/sampler.h"
#include "topology/base/rng.h"

namespace infos {
namespace {

constexpr std::uint32_t kVocab = 151936;

std::vector<float> random_logits() {
  Rng rng(1);
  std::vector<float> logits(kVocab);
  for (float& x : logits)
    x = static_cast<float>(4 * (rng.uniform() + rng.uniform() + rng.uniform()) - 6);
  return logits;
}

void draw(benchmark::State& state, const SamplingParams& params) {
  const auto logits = random_logits();
  SamplerScratch scratch;
  SequenceSampler sampler(params, {}, 0, kVocab);
  std::uint32_t index = 0;
  for (auto _ : state) benchmark::DoNotOptimize(sampler.sample(logits, index++, scratch));
}

SamplingParams with(void (*change)(SamplingParams&)) {
  SamplingParams params;
  change(params);
  return params;
}

BENCHMARK_CAPTURE(draw, greedy, with([](SamplingParams& p) { p.temperature = 0; }));
BENCHMARK_CAPTURE(draw, temperature, with([](SamplingParams&) {}));
BENCHMARK_CAPTURE(draw, top_k_40, with([](SamplingParams& p) { p.top_k = 40; }));
BENCHMARK_CAPTURE(draw, top_p_0_9, with([](SamplingParams& p) { p.top_p = 0.9F; }));
BENCHMARK_CAPTURE(draw, top_k_40_top_p_0_9_repetition, with([](SamplingParams& p) {
                    p.top_k = 40;
                    p.top_p = 0.9F;
                    p.repetition_penalty = 1.1F;
                  }));
BENCHMARK_CAPTURE(draw, greedy_logprobs_20, with([](SamplingParams& p) {
                    p.temperature = 0;
                    p.top_logprobs = 20;
                  }));

}  // namespace
}  // namespace infos
BENCHMARK_MAIN();
