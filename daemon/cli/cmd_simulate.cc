// SPDX-License-Identifier: Apache-2.0
// `infos simulate`: the production cores in a modelled world: one run, a swarm of faulty ones, or a
// recording again.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iterator>

#include "daemon/cli/commands.h"
#include "daemon/cli/table.h"
#include "simulator/world/run.h"

namespace infos::cli {
namespace {

constexpr std::uint64_t kRecordingMax = 4ULL << 30;

std::string map_text(const std::map<std::string, std::uint64_t>& counts) {
  std::string out;
  for (const auto& [name, n] : counts)
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", n, name);
  return out.empty() ? "none" : out;
}

int run_replay(const std::string& path, Output output) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in || in.tellg() < 0) return complain(kFailed, fmt::format("cannot open {}", path));
  if (static_cast<std::uint64_t>(in.tellg()) > kRecordingMax)
    return complain(kFailed, path + " is larger than 4 GiB");
  in.seekg(0);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const auto report = replay(bytes);
  if (!report.ok()) return complain(kFailed, fmt::format("{}: {}", path, report.error().message));
  if (output == Output::json) {
    std::printf("%s\n", to_json(*report).c_str());
  } else {
    std::printf("%llu events, %zu cores, effect hash %016llx: %s%s\n",
                static_cast<unsigned long long>(report->events), report->cores.size(),
                static_cast<unsigned long long>(report->hash),
                report->matches ? "every recorded hash is met" : "a recorded hash DIFFERS",
                report->torn ? " (the recording ends inside a record)" : "");
  }
  return report->matches ? kDone : kFailed;
}

int run_fuzz(const Invocation& given, Output output) {
  FuzzOptions options;
  options.first_seed = INFOS_CLI_TRY(count_option(given, "seed", 0, UINT64_MAX));
  options.seeds = INFOS_CLI_TRY(count_option(given, "seeds", 1, 1ULL << 40));
  if (!given.options["requests"].defaulted())
    options.requests = INFOS_CLI_TRY(count_option(given, "requests", 1, 1ULL << 32));
  options.progress = [&](std::uint64_t seed) {
    if (stderr_is_terminal() && seed % 16 == 0)
      std::fprintf(stderr, "\r\033[Kseed %llu", static_cast<unsigned long long>(seed));
  };
  const FuzzReport report = fuzz(options);
  if (stderr_is_terminal()) std::fputs("\r\033[K", stderr);
  if (output == Output::json) {
    std::printf("%s\n", to_json(report).c_str());
    return report.failures.empty() ? kDone : kFailed;
  }
  std::printf("%llu seeds, %llu requests, %llu events\nfaults    %s\noutcomes  %s\n",
              static_cast<unsigned long long>(report.seeds),
              static_cast<unsigned long long>(report.requests),
              static_cast<unsigned long long>(report.events), map_text(report.faults).c_str(),
              map_text(report.outcomes).c_str());
  for (const FuzzFailure& failure : report.failures)
    std::printf("BROKEN    %s\n          again with: infos simulate --fuzz --seed %llu --seeds 1\n",
                failure.violation.c_str(), static_cast<unsigned long long>(failure.seed));
  std::printf("%zu invariants broken\n", report.failures.size());
  return report.failures.empty() ? kDone : kFailed;
}

std::string report_text(const SimulateReport& r) {
  const auto row = [](const char* name, const Percentiles& p) {
    std::vector<std::string> out{name};
    for (const double value : {p.mean_ms, p.p50_ms, p.p90_ms, p.p99_ms, p.max_ms})
      out.push_back(fmt::format("{:.1f}", value));
    return out;
  };
  return fmt::format(
             "{} requests ({}) in {:.1f} virtual s\n{:.1f} tokens/s, {} of {} prompt tokens "
             "cached, {} "
             "preemptions\n"
             "{} events, effect hash {:016x}\n\n",
             r.requests, map_text(r.outcomes), r.virtual_seconds, r.tokens_per_second,
             r.cached_tokens, r.prompt_tokens, r.preemptions, r.events, r.hash) +
         print_table({"ms", "MEAN", "P50", "P90", "P99", "MAX"},
                     {row("first token", r.first_token), row("between tokens", r.inter_token),
                      row("whole answer", r.whole_answer)});
}

int run_once(const Invocation& given, Output output) {
  SimulateOptions options;
  options.seed = INFOS_CLI_TRY(count_option(given, "seed", 0, UINT64_MAX));
  options.workers =
      static_cast<std::uint32_t>(INFOS_CLI_TRY(count_option(given, "workers", 1, 4096)));
  options.workload.requests = INFOS_CLI_TRY(count_option(given, "requests", 1, 1ULL << 32));
  options.workload.requests_per_second = INFOS_CLI_TRY(real_option(given, "rate", 0.0001, 1e9));
  const std::string record = given.text("record");
  if (!record.empty()) options.record = SimulateOptions::Record::on;
  const SimulateReport report = simulate(options);
  if (!record.empty()) {
    std::ofstream out(record, std::ios::binary);
    out << report.recording;
    if (!out.flush()) return complain(kFailed, "cannot write " + record);
  }
  const std::string text = output == Output::json ? to_json(report) + "\n" : report_text(report);
  std::fputs(text.c_str(), stdout);
  return report.violation.empty() ? kDone : complain(kFailed, report.violation);
}

}  // namespace

void describe_simulate(boost::program_options::options_description_easy_init add) {
  namespace po = boost::program_options;
  const auto text = [](const char* word) { return po::value<std::string>()->value_name(word); };
  add("fuzz", "run --seeds faulty worlds and check the invariants after every event");
  add("replay", text("FILE"),
      "tell the cores what infosd --record wrote, and compare what they do");
  add("seed", text("N")->default_value("1"), "the first seed");
  add("seeds", text("N")->default_value("100"), "with --fuzz: how many");
  add("requests", text("N")->default_value("1000"),
      "of one run; with --fuzz: of each seed (default 60)");
  add("rate", text("R")->default_value("20"), "requests per second, in virtual time");
  add("workers", text("N")->default_value("1"), "of the modelled node");
  add("record", text("FILE"), "write what the cores were told, for --replay; not with --fuzz");
  describe_output(add);
}

int run_simulate(const Invocation& given) {
  const Output output = INFOS_CLI_TRY(output_option(given));
  if (given.has("replay") && given.has("fuzz"))
    return complain(kUsage, "simulate: want one of --fuzz and --replay");
  if (given.has("record") && (given.has("replay") || given.has("fuzz")))
    return complain(kUsage, "simulate: --record is of one healthy run: not with --fuzz, --replay");
  if (given.has("replay")) return run_replay(given.text("replay"), output);
  return given.has("fuzz") ? run_fuzz(given, output) : run_once(given, output);
}

}  // namespace infos::cli
