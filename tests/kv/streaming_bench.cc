// SPDX-License-Identifier: Apache-2.0
// How much of a KV transfer hides behind the prefill that makes the KV. Two worker processes of one
// host, driven through their sockets; for each transport two runs with prompts of one length: the
// fetch begins with the prefill (streamed), and the fetch begins when the prefill is over (after).
//   kv_streaming_bench MODEL [prompt tokens] [transports ...]
// A MODEL that does not exist is made: random weights in the shape of a 0.5 B model, q8_0. Prints
// times and the hidden share: 1 - (what the streamed fetch takes beyond the end of the prefill) /
// (what the whole fetch takes after it).
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "daemon/infosd/worker_main.h"
#include "daemon/runtime/clock.h"
#include "devices/engine/checkpoint/synth.h"
#include "tests/kv/worker_pair.h"

namespace infos {
namespace {

using test::PairedWorker;
using test::Workers;

struct Run {
  Duration prefill;  ///< from the submission to the end of the prompt's computation
  Duration fetch;    ///< as the destination counts it, from its wish
  Duration beyond;   ///< from the end of the prefill to the end of the fetch; may be negative
  std::uint64_t bytes = 0;
  std::uint32_t tokens = 0;
};

Submit submit(std::uint64_t request, std::uint32_t tokens) {
  Submit s;
  s.request = {request};
  s.attempt = {1};
  for (std::uint32_t i = 0; i < tokens; ++i)
    s.tokens.push_back(static_cast<TokenId>(1000 + (i * 37 + request * 7919) % 50'000));
  s.prompt_tokens = tokens;
  s.max_new_tokens = 1;
  s.sampling.temperature = 0;
  return s;
}

/// Both submissions of a split request; the decoder's at once, or once the prefill is over.
Run run(Workers& workers, PairedWorker& p, PairedWorker& d, const Submit& prompt, bool streamed) {
  Submit prefill = prompt, decode = prompt;
  prefill.kv_for = {d.ref(), prompt.prompt_tokens - 1};
  decode.kv_from = {p.ref(), prompt.prompt_tokens - 1};
  const std::size_t fetches = d.fetches.size();
  const Time begun = monotonic_now();
  p.send(prefill);
  Time asked = monotonic_now();
  if (streamed) d.send(decode);
  workers.run_until([&] { return p.served[prompt.request].end.has_value(); });
  const Time computed = monotonic_now();
  if (!streamed) {
    asked = computed;
    d.send(decode);
  }
  workers.run_until([&] { return d.served[prompt.request].end.has_value(); });
  Run out;
  out.prefill = computed - begun;
  if (d.fetches.size() == fetches) return out;
  const FetchStat& stat = d.fetches.back();
  out.fetch = stat.took;
  out.beyond = asked + stat.took - computed;
  out.bytes = stat.bytes;
  out.tokens = stat.tokens;
  return out;
}

double ms(Duration d) { return static_cast<double>(d.ns) * 1e-6; }

int bench(const std::string& model, std::uint32_t tokens, const std::string& transport) {
  const std::map<std::string, std::string> options{{"threads", "1"},
                                                   {"kv_memory", "128MiB"},
                                                   {"kv_transports", transport},
                                                   {"max_running", "4"}};
  auto prefill = options, decode = options;
  prefill["role"] = "prefill";
  decode["role"] = "decode";
  Workers workers;
  PairedWorker& p = workers.add(1, model, prefill);
  PairedWorker& d = workers.add(2, model, decode);
  if (!workers.run_until_ready()) return std::fprintf(stderr, "the workers do not start\n"), 1;
  run(workers, p, d, submit(1, 64), true);  // warm
  std::uint64_t request = 1;
  double hidden_least = 1;
  for (int i = 0; i < 3; ++i) {
    const Run after = run(workers, p, d, submit(++request, tokens), false);
    const Run streamed = run(workers, p, d, submit(++request, tokens), true);
    if (after.tokens + 1 != tokens || streamed.tokens + 1 != tokens)
      return std::fprintf(stderr, "%s: only %u and %u of %u tokens were fetched\n",
                          transport.c_str(), after.tokens, streamed.tokens, tokens - 1),
             1;
    const double hidden = 1 - std::max(ms(streamed.beyond), 0.0) / ms(after.fetch);
    hidden_least = std::min(hidden_least, hidden);
    fmt::print(
        "{:4} {} tokens {:.1f} MB: prefill {:.0f} ms; fetch after it {:.2f} ms; streamed "
        "ends {:+.2f} ms from its end: {:.0f} % hidden\n",
        transport, tokens, static_cast<double>(after.bytes) * 1e-6, ms(streamed.prefill),
        ms(after.fetch), ms(streamed.beyond), hidden * 100);
    std::fflush(stdout);
  }
  fmt::print("{:4} hidden at least {:.0f} %\n", transport, hidden_least * 100);
  return 0;
}

}  // namespace
}  // namespace infos

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "worker")
    return infos::worker_main({argv + 1, argv + argc});
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s MODEL [prompt tokens] [transports ...]\n", argv[0]);
    return 2;
  }
  const std::string model = argv[1];
  if (!std::filesystem::exists(model)) {
    infos::SynthOptions synth;
    synth.shape = "qwen2.5-0.5b";
    synth.dtype = infos::DType::q8_0;
    synth.path = model;
    const infos::Status made = infos::synth_model(synth);
    if (!made.ok()) return std::fprintf(stderr, "%s\n", made.error().message.c_str()), 1;
  }
  const auto tokens = static_cast<std::uint32_t>(argc > 2 ? std::atoi(argv[2]) : 1024);
  int failed = 0;
  for (int i = 3; i < argc; ++i) failed |= infos::bench(model, tokens, argv[i]);
  if (argc <= 3)
    for (const char* transport : {"shm", "tcp"}) failed |= infos::bench(model, tokens, transport);
  return failed;
}
