// SPDX-License-Identifier: Apache-2.0
#include "simulator/world/run.h"

#include <fmt/format.h>

#include <algorithm>

#include "topology/base/rng.h"

namespace infos {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += '\\', out += c;
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      out += c;
  }
  return out + '"';
}

std::string counts(const std::map<std::string, std::uint64_t>& of) {
  std::string out = "{";
  for (const auto& [name, count] : of)
    out += fmt::format("{}{}:{}", out.size() > 1 ? "," : "", quoted(name), count);
  return out + "}";
}

std::string percentiles(const Percentiles& p) {
  return fmt::format(
      R"({{"count":{},"mean_ms":{:.3f},"p50_ms":{:.3f},"p90_ms":{:.3f},"p99_ms":{:.3f},"max_ms":{:.3f}}})",
      p.count, p.mean_ms, p.p50_ms, p.p90_ms, p.p99_ms, p.max_ms);
}

/// Several nodes, prefill and decode workers, KV that moves between them.
void add_cluster(SimulateOptions& o, Rng& rng) {
  ClusterFigures& c = o.cluster;
  c.nodes = 1 + static_cast<std::uint32_t>(rng.below(4));
  o.workers = 2 + static_cast<std::uint32_t>(rng.below(4));
  c.prefill_workers = 1 + static_cast<std::uint32_t>(rng.below(o.workers - 1));
  c.latency = microseconds(static_cast<std::int64_t>(1 + rng.below(5000)));
  c.link.bytes_per_second = 1e6 + rng.uniform() * 1e9;
  c.kv_bytes_per_token = 1 + rng.below(100'000);
  if (rng.chance(0.5)) c.prefill_block_tokens = 1 + static_cast<std::uint32_t>(rng.below(8));
  o.worker.fetch_limit = milliseconds(static_cast<std::int64_t>(500 + rng.below(20'000)));
  o.worker.export_limit = milliseconds(static_cast<std::int64_t>(500 + rng.below(20'000)));
  o.worker.export_share = 0.2 + rng.uniform() * 0.8;
  // A prefill worker that is worth the way.
  o.latency = microseconds(1 + static_cast<std::int64_t>(rng.below(500)));
  o.workload.prompt_tokens_min = std::max(o.workload.prompt_tokens_max / 2, 1U);
  const auto gap = [&](std::int64_t low_ms) {
    return rng.chance(0.4) ? milliseconds(low_ms * static_cast<std::int64_t>(1 + rng.below(20)))
                           : Duration{};
  };
  const auto chance = [&](double most) { return rng.chance(0.4) ? rng.uniform() * most : 0.0; };
  FaultFigures& f = o.faults;
  f.node_death_gap = gap(1000), f.link_cut_gap = gap(300);
  f.letter_lost = chance(0.3), f.letter_late = chance(0.3), f.letter_twice = chance(0.3);
  f.move_corrupt = chance(0.3), f.move_torn = chance(0.3), f.move_held = chance(0.3);
  f.move_failed = chance(0.3), f.move_slow = chance(0.3);
}

}  // namespace

SimulateOptions fuzz_options(std::uint64_t seed, std::uint64_t requests) {
  Rng rng(seed * 0x9e3779b97f4a7c15ULL + 1);
  const auto between = [&](std::uint64_t low, std::uint64_t high) {
    return low + rng.below(high - low + 1);
  };
  const auto small = [&](std::uint64_t low, std::uint64_t high) {
    return static_cast<std::uint32_t>(between(low, high));
  };
  SimulateOptions o;
  o.seed = seed;
  o.checks = SimulateOptions::Checks::every_event;
  o.workers = small(1, 4);
  o.worker.block_tokens = small(1, 8);
  o.worker.kv_blocks = small(6, 60);
  o.worker.max_context = small(12, 200);
  o.worker.max_running = small(1, 8);
  o.worker.max_waiting = small(1, 12);
  o.worker.max_step_tokens = small(4, 64);
  o.worker.prefill_share = rng.uniform() * 2;
  o.gateway.max_requests = small(4, 200);
  o.gateway.max_queued_per_model = small(1, 60);
  o.gateway.max_running_per_worker = small(1, 16);
  o.gateway.max_attempts = small(4, 40);
  o.gateway.queue_timeout = seconds(static_cast<std::int64_t>(between(20, 120)));
  o.agent.silence_limit = seconds(static_cast<std::int64_t>(between(2, 20)));
  o.agent.start_timeout = seconds(static_cast<std::int64_t>(between(5, 60)));
  o.agent.stop_timeout = seconds(static_cast<std::int64_t>(between(1, 10)));
  o.agent.backoff_max = seconds(static_cast<std::int64_t>(between(1, 10)));
  o.agent.seed = rng.next();
  o.device.load = milliseconds(static_cast<std::int64_t>(between(10, 3000)));
  o.latency = microseconds(static_cast<std::int64_t>(between(1, 20000)));
  o.workload.requests = requests;
  o.workload.requests_per_second = 1 + rng.uniform() * 40;
  o.workload.prompt_tokens_min = 1;
  o.workload.prompt_tokens_max = small(2, o.worker.max_context);
  o.workload.answer_tokens_min = 1;
  o.workload.answer_tokens_max = small(1, 80);
  o.workload.shared_prefix = rng.uniform();
  o.workload.stop_tokens = rng.uniform() * 0.5;
  o.workload.deadline = rng.chance(0.3) ? 0.3 : 0;
  o.workload.nonsense = 0.05;
  o.heal_after = seconds(60);
  // The swarm: each fault kind takes part in half of the runs, with a strength of its own.
  const auto gap = [&](std::int64_t low_ms) {
    return rng.chance(0.5) ? milliseconds(low_ms * static_cast<std::int64_t>(between(1, 20)))
                           : Duration{};
  };
  const auto chance = [&](double most) { return rng.chance(0.5) ? rng.uniform() * most : 0.0; };
  FaultFigures& f = o.faults;
  f.worker_death_gap = gap(500), f.worker_hang_gap = gap(1000), f.worker_slow_gap = gap(500),
  f.worker_roll_gap = gap(1000);
  f.spawn_failure = chance(0.5), f.slow_start = chance(0.3), f.step_failure = chance(0.1);
  f.client_gone = chance(0.4), f.client_stop = chance(0.2);
  f.message_late = chance(0.1), f.message_twice = chance(0.1), f.message_lost = chance(0.01);
  if (rng.chance(0.6)) add_cluster(o, rng);
  return o;
}

FuzzReport fuzz(const FuzzOptions& options) {
  FuzzReport total;
  for (std::uint64_t i = 0; i < options.seeds && total.failures.size() < options.failures_max;
       ++i) {
    const std::uint64_t seed = options.first_seed + i;
    const SimulateReport report = simulate(fuzz_options(seed, options.requests));
    ++total.seeds;
    total.requests += report.requests, total.events += report.events, total.tokens += report.tokens;
    total.split += report.split, total.fetched_tokens += report.fetched_tokens;
    for (const auto& [name, count] : report.faults) total.faults[name] += count;
    for (const auto& [name, count] : report.outcomes) total.outcomes[name] += count;
    if (!report.violation.empty()) total.failures.push_back({seed, report.violation});
    if (options.progress) options.progress(seed);
  }
  return total;
}

std::string to_json(const SimulateReport& r) {
  return fmt::format(
      R"({{"seed":{},"violation":{},"requests":{},"outcomes":{},"prompt_tokens":{},"cached_tokens":{},"tokens":{},"retries":{},)"
      R"("split":{},"fetched_tokens":{},"bytes_sent":{},"bytes_received":{},"bytes_dropped":{},)"
      R"("preemptions":{},"events":{},"steps":{},"faults":{},"virtual_seconds":{:.6f},"tokens_per_second":{:.3f},)"
      R"("first_token":{},"inter_token":{},"whole_answer":{},"hash":"{:016x}"}})",
      r.seed, r.violation.empty() ? "null" : quoted(r.violation), r.requests, counts(r.outcomes),
      r.prompt_tokens, r.cached_tokens, r.tokens, r.retries, r.split, r.fetched_tokens,
      r.bytes_sent, r.bytes_received, counts(r.bytes_dropped), r.preemptions, r.events, r.steps,
      counts(r.faults), r.virtual_seconds, r.tokens_per_second, percentiles(r.first_token),
      percentiles(r.inter_token), percentiles(r.whole_answer), r.hash);
}

std::string to_json(const FuzzReport& r) {
  std::string failures;
  for (const FuzzFailure& f : r.failures) {
    failures += fmt::format(R"({}{{"seed":{},"violation":{}}})", failures.empty() ? "" : ",",
                            f.seed, quoted(f.violation));
  }
  return fmt::format(
      R"({{"seeds":{},"requests":{},"events":{},"tokens":{},"split":{},"fetched_tokens":{},"faults":{},"outcomes":{},"failures":[{}]}})",
      r.seeds, r.requests, r.events, r.tokens, r.split, r.fetched_tokens, counts(r.faults),
      counts(r.outcomes), failures);
}

std::string to_json(const ReplayReport& r) {
  std::string cores;
  for (const ReplayedCore& c : r.cores) {
    cores += fmt::format(
        R"({}{{"core":"{}","instance":{},"events":{},"hash":"{:016x}","compared":{},"differing_after":{}}})",
        cores.empty() ? "" : ",", to_string(c.core), c.instance, c.events, c.hash, c.compared,
        c.differing_after);
  }
  return fmt::format(R"({{"events":{},"hash":"{:016x}","torn":{},"matches":{},"cores":[{}]}})",
                     r.events, r.hash, r.torn, r.matches, cores);
}

}  // namespace infos
