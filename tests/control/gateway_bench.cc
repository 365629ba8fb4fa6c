// SPDX-License-Identifier: Apache-2.0
// Measures routing: decisions per second of GatewayCore with 64 workers, split or not, with shared
// prefixes. Not a test: prints figures.
//   ninja gateway_bench && tests/gateway_bench
#include <time.h>

#include <cstdio>
#include <vector>

#include "daemon/control/gateway_core.h"
#include "topology/base/rng.h"

namespace {

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

/// Each request arrives, is routed, and goes when 512 have come after it.
void decisions(const char* name, std::uint32_t prefill, std::uint32_t decode,
               std::uint32_t prompt) {
  infos::GatewayConfig config;
  config.max_tokens_total = 1u << 30;
  infos::GatewayCore core(config);
  infos::GatewayEffects out;
  infos::Rng rng(1);
  core.step({}, infos::ModelListed{"m"}, out);
  for (std::uint32_t w = 1; w <= prefill + decode; ++w) {
    infos::WorkerReady ready{"m", "cpu", 100'000, 16, {}};
    ready.role = prefill == 0   ? infos::WorkerRole::aggregated
                 : w <= prefill ? infos::WorkerRole::prefill
                                : infos::WorkerRole::decode;
    ready.load.prefill_tokens_per_second = 5000 + static_cast<double>(rng.below(5000));
    ready.load.decode_step_seconds = 0.01;
    ready.kv_bytes_per_token = 10'000;
    core.step({}, infos::WorkerUp{{w}, {1}, ready}, out);
  }
  std::vector<std::vector<infos::TokenId>> prefixes(64);
  for (auto& p : prefixes)
    for (std::uint32_t i = 0; i < prompt; ++i)
      p.push_back(static_cast<infos::TokenId>(rng.below(50'000)));
  const int rounds = 50'000;
  double spent = 0;
  std::vector<infos::SendWorker> submitted;
  for (int i = 1; i <= rounds; ++i) {
    infos::Arrive a;
    a.request = {static_cast<std::uint64_t>(i)}, a.model = "m", a.max_new_tokens = 100;
    a.prompt = prefixes[rng.below(prefixes.size())];
    for (std::size_t t = rng.below(prompt); t < a.prompt.size(); ++t)
      a.prompt[t] = static_cast<infos::TokenId>(rng.below(50'000));
    const infos::GatewayEvent event(std::move(a));
    out.clear();
    const double start = cpu_seconds();
    core.step({}, event, out);
    spent += cpu_seconds() - start;
    submitted.clear();
    for (auto& e : out)
      if (auto* s = std::get_if<infos::SendWorker>(&e)) submitted.push_back(std::move(*s));
    for (const infos::SendWorker& s : submitted) {
      infos::WorkerSaid said{s.worker, s.generation, {}};
      said.report.load.prefill_tokens_per_second = 7000;
      said.report.load.decode_step_seconds = 0.01;
      out.clear();
      core.step({}, said, out);
    }
    out.clear();
    if (i > 512) core.step({}, infos::ClientGone{{static_cast<std::uint64_t>(i - 512)}}, out);
  }
  std::printf("%-44s %7.0f decisions/s (%llu split, %llu alone)\n", name, rounds / spent,
              static_cast<unsigned long long>(core.counters().split),
              static_cast<unsigned long long>(core.counters().alone));
}

}  // namespace

int main() {
  decisions("64 aggregated, prompts of 256", 0, 64, 256);
  decisions("32 prefill + 32 decode, prompts of 256", 32, 32, 256);
  decisions("32 prefill + 32 decode, prompts of 2048", 32, 32, 2048);
  decisions("500 prefill + 500 decode, prompts of 256", 500, 500, 256);
}
