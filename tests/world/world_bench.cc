// SPDX-License-Identifier: Apache-2.0
// Measures the simulator in capacity mode and the cost of WorkerCore::step at batch 32. Not a test:
// prints figures.
//   ninja world_bench && tests/world_bench
#include <time.h>

#include <cstdio>
#include <vector>

#include "simulator/world/run.h"

namespace {

/// Seconds of this process on a core: what others do on the machine does not count.
struct Clock {
  static double now() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  }
};
double since(double start) { return Clock::now() - start; }

void capacity(const char* name, std::uint32_t workers, std::uint32_t prompt, std::uint32_t answer,
              infos::SimulateOptions::Hash hash) {
  infos::SimulateOptions o;
  o.workers = workers;
  o.hash = hash;
  o.workload.requests = 20'000;
  o.workload.prompt_tokens_min = prompt / 2, o.workload.prompt_tokens_max = prompt;
  o.workload.answer_tokens_min = answer / 2, o.workload.answer_tokens_max = answer;
  // A load of about two thirds of what the devices can do.
  const double step = 0.002 + 0.0002 * 16;
  o.workload.requests_per_second =
      workers * 0.66 * 16 / (answer * 0.75 * step + 16 * prompt * 0.75 * 0.0001);
  o.worker.kv_blocks = 8192;
  const auto start = Clock::now();
  const infos::SimulateReport r = infos::simulate(o);
  const double s = since(start);
  std::printf(
      "%-28s %5.2f s: %.2f M core events/s, %.2f M tokens/s, %.0f requests/s, %.2f M steps/s, "
      "batch %.1f, %s\n",
      name, s, r.events / s * 1e-6, r.tokens / s * 1e-6, r.requests / s, r.steps / s * 1e-6,
      double(r.tokens) / r.steps, r.violation.empty() ? "sound" : r.violation.c_str());
}

void step_cost(std::uint32_t sequences, std::uint32_t context) {
  infos::WorkerConfig config;
  config.kv_blocks = sequences * (context + 4096) / 16;
  config.max_context = context + 4096;
  config.max_step_tokens = 512;
  infos::WorkerCore core(config);
  infos::WorkerEffects out;
  infos::EffectId running;
  std::size_t samples = 0;
  const auto look = [&] {
    for (const infos::WorkerEffect& e : out) {
      const auto* run = std::get_if<infos::RunStep>(&e);
      if (!run) continue;
      running = run->id;
      samples = 0;
      for (const infos::StepSequence& s : run->sequences) samples += s.sample ? 1 : 0;
    }
    out.clear();
  };
  for (std::uint32_t i = 0; i < sequences; ++i) {
    infos::Submit s;
    s.request = {i + 1}, s.attempt = {1}, s.max_new_tokens = 100'000;
    for (std::uint32_t t = 0; t < context; ++t)
      s.tokens.push_back(static_cast<infos::TokenId>(i * 7919 + t));
    s.prompt_tokens = context;
    core.step({}, s, out), look();
  }
  const auto done = [&] {
    infos::StepDone d{running, std::vector<infos::SampledToken>(samples), infos::milliseconds(10)};
    core.step({}, d, out), look();
  };
  while (samples < sequences) done();
  const int rounds = 500;
  const auto start = Clock::now();
  for (int i = 0; i < rounds; ++i) done();
  std::printf("WorkerCore::step, %u sequences, context %u: %.1f us\n", sequences, context,
              since(start) / rounds * 1e6);
}

}  // namespace

int main() {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  step_cost(32, 256), step_cost(32, 4096), step_cost(32, 32768);
  capacity("1 worker, 64+32", 1, 64, 32, infos::SimulateOptions::Hash::off);
  capacity("8 workers, 64+32", 8, 64, 32, infos::SimulateOptions::Hash::off);
  capacity("8 workers, 64+32, hashed", 8, 64, 32, infos::SimulateOptions::Hash::effects);
  capacity("8 workers, 512+128", 8, 512, 128, infos::SimulateOptions::Hash::off);
  capacity("64 workers, 8+8", 64, 8, 8, infos::SimulateOptions::Hash::off);
}
