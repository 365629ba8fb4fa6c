// SPDX-License-Identifier: Apache-2.0
// infos-engine-bench: how fast the engine computes one model on this machine, as llama-bench would
// ask it: prefill of N tokens, and decode at several batch sizes. Gives each figure beside what the
// machine can do at most in the same run.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <boost/program_options.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "devices/engine/bench/limits.h"
#include "devices/engine/checkpoint.h"
#include "devices/engine/engine.h"
#include "topology/base/rng.h"
#include "topology/model/cost.h"

namespace infos {
namespace {

struct BenchOptions {
  std::string model;
  EngineOptions engine;
  std::uint32_t prompt = 512;  ///< tokens of the prefill
  std::uint32_t context = 64;  ///< tokens that a sequence holds before its measured decode steps
  std::uint32_t steps = 32;    ///< decode steps measured
  std::uint32_t repetitions = 1;
  std::vector<std::uint32_t> batches = {1, 8, 32};
  bool json = false;
};

struct Measured {
  std::string name;
  std::uint32_t batch = 0;
  std::uint64_t tokens = 0;  ///< of all steps together
  double seconds = 0;
  double bytes = 0;  ///< of weights and KV read
  double flops = 0;
  double best_seconds =
      INFINITY;  ///< of the fastest step, or prefill: what a busy host disturbs least

  void add_seconds(double one) {
    seconds += one;
    best_seconds = std::min(best_seconds, one);
  }
};

/// What one model's steps cost, from its tensors.
struct ModelCost {
  double dense_bytes = 0;
  double expert_bytes = 0;
  DType main_dtype = DType::none;  ///< of most bytes

  bool quantised() const { return main_dtype >= DType::q8_0; }
  std::uint32_t kv_element_bytes() const {
    return main_dtype == DType::f32 ? 4 : 2;
  }  // as the engine chooses

  double weight_bytes(const ModelConfig& config, std::uint64_t tokens) const {
    const double touched =
        config.experts == 0 ? 0 : experts_touched(config, tokens) / config.experts;
    return dense_bytes + expert_bytes * touched;
  }
};

ModelCost model_cost(const Checkpoint& checkpoint) {
  ModelCost cost;
  std::map<DType, double> by_dtype;
  for (const TensorView& tensor : checkpoint.tensors()) {
    const auto bytes = static_cast<double>(tensor.data.size());
    // An embedding table of its own is only looked up.
    if (tensor.name == "token_embd.weight" && !checkpoint.config().tied_embeddings) continue;
    const bool expert =
        tensor.dims.size() == 3 || std::count(tensor.name.begin(), tensor.name.end(), '.') == 4;
    (expert ? cost.expert_bytes : cost.dense_bytes) += bytes;
    by_dtype[tensor.dtype] += bytes;
  }
  double most = 0;
  for (const auto& [dtype, bytes] : by_dtype)
    if (bytes > most) most = bytes, cost.main_dtype = dtype;
  return cost;
}

/// Runs the measured steps of one engine.
class Bench {
 public:
  Bench(Engine& engine, const BenchOptions& options, const ModelCost& cost)
      : engine_(engine), options_(options), cost_(cost) {}

  Result<Measured> prefill() {
    INFOS_TRY(prefill_once(std::min(options_.prompt, 32U)));  // warm
    Measured m{.name = "prefill", .batch = 1};
    for (std::uint32_t r = 0; r < options_.repetitions; ++r) {
      m.add_seconds(INFOS_TRY(prefill_once(options_.prompt)));
      m.tokens += options_.prompt;
      const std::uint32_t step = std::min(options_.prompt, options_.engine.max_step_tokens);
      const double chunks = static_cast<double>((options_.prompt + step - 1) / step);
      m.bytes += chunks * cost_.weight_bytes(engine_.config(), step);
      m.flops += sequence_flops(engine_.config(), {options_.prompt, 0, 1});
    }
    return m;
  }

  Result<Measured> decode(std::uint32_t batch) {
    Measured m{.name = fmt::format("decode-{}", batch), .batch = batch};
    for (std::uint32_t r = 0; r < options_.repetitions; ++r) {
      open(batch);
      INFOS_TRY(fill(batch));
      for (std::uint32_t i = 0; i < options_.steps + 1; ++i) {  // the first is to warm
        const double seconds = INFOS_TRY(decode_step(batch, i));
        if (i == 0) continue;
        m.add_seconds(seconds);
        m.tokens += batch;
        m.bytes +=
            cost_.weight_bytes(engine_.config(), batch) + kv_bytes(batch, options_.context + i);
        m.flops += batch * sequence_flops(engine_.config(), {1, options_.context + i, 1});
      }
      close(batch);
    }
    return m;
  }

 private:
  using Clock = std::chrono::steady_clock;

  double kv_bytes(std::uint32_t batch, std::uint32_t context) const {
    return static_cast<double>(
               kv_bytes_per_token(engine_.config(), cost_.kv_element_bytes()).value) *
           batch * context;
  }
  TokenId random_token() { return static_cast<TokenId>(rng_.below(engine_.config().vocab)); }
  std::vector<BlockId> blocks_of(std::uint32_t sequence, std::uint32_t tokens) const {
    const std::uint32_t each = (tokens + engine_.block_tokens() - 1) / engine_.block_tokens();
    std::vector<BlockId> blocks;
    for (std::uint32_t i = 0; i < each; ++i) blocks.push_back({sequence * each + i});
    return blocks;
  }
  void open(std::uint32_t batch) {
    SamplingParams greedy;
    greedy.temperature = 0;
    for (std::uint32_t s = 0; s < batch; ++s) engine_.open_sequence({s + 1}, {}, 0, greedy);
  }
  void close(std::uint32_t batch) {
    for (std::uint32_t s = 0; s < batch; ++s) engine_.close_sequence({s + 1});
  }
  Result<double> timed(const std::vector<EngineSequence>& sequences) {
    const auto begin = Clock::now();
    INFOS_TRY(engine_.step(sequences));
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  Result<double> prefill_once(std::uint32_t n) {
    std::vector<TokenId> tokens(n);
    for (TokenId& token : tokens) token = random_token();
    const auto blocks = blocks_of(0, n);
    open(1);
    double seconds = 0;
    for (std::uint32_t at = 0; at < n; at += options_.engine.max_step_tokens) {
      const std::uint32_t rows = std::min(options_.engine.max_step_tokens, n - at);
      seconds += INFOS_TRY(
          timed({{{1}, std::span(tokens).subspan(at, rows), at, blocks, at + rows == n, 0}}));
    }
    close(1);
    return seconds;
  }

  /// Gives each sequence its context, as many sequences to a step as fit.
  Status fill(std::uint32_t batch) {
    std::vector<TokenId> tokens(options_.context);
    for (TokenId& token : tokens) token = random_token();
    for (std::uint32_t s = 0; s < batch; ++s) {
      const auto blocks = blocks_of(s, options_.context + options_.steps + 1);
      for (std::uint32_t at = 0; at < options_.context; at += options_.engine.max_step_tokens) {
        const std::uint32_t rows = std::min(options_.engine.max_step_tokens, options_.context - at);
        INFOS_TRY(timed({{{s + 1}, std::span(tokens).subspan(at, rows), at, blocks, false, 0}}));
      }
    }
    return {};
  }

  Result<double> decode_step(std::uint32_t batch, std::uint32_t i) {
    std::vector<TokenId> tokens(batch);
    std::vector<std::vector<BlockId>> blocks;
    std::vector<EngineSequence> sequences;
    for (std::uint32_t s = 0; s < batch; ++s) {
      tokens[s] = random_token();
      blocks.push_back(blocks_of(s, options_.context + options_.steps + 1));
    }
    for (std::uint32_t s = 0; s < batch; ++s)
      sequences.push_back(
          {{s + 1}, std::span(tokens).subspan(s, 1), options_.context + i, blocks[s], true, i});
    return timed(sequences);
  }

  Engine& engine_;
  const BenchOptions& options_;
  const ModelCost& cost_;
  Rng rng_{1};
};

struct Report {
  std::string model, device;
  std::uint32_t threads = 0;
  ModelCost cost;
  double weight_bytes = 0;
  MachineLimits limits;
  std::vector<Measured> results;

  double bandwidth_fraction(const Measured& m) const {
    return m.bytes / m.seconds / limits.read_bytes_per_second;
  }
  double peak() const { return cost.quantised() ? limits.int8_ops : limits.f32_flops; }
  double arithmetic_fraction(const Measured& m) const { return m.flops / m.seconds / peak(); }
};

void print_json(const Report& r) {
  boost::json::array results;
  for (const Measured& m : r.results)
    results.push_back({{"name", m.name},
                       {"batch", m.batch},
                       {"tokens", m.tokens},
                       {"seconds", m.seconds},
                       {"tokens_per_second", static_cast<double>(m.tokens) / m.seconds},
                       {"best_seconds", m.best_seconds},
                       {"bytes_per_second", m.bytes / m.seconds},
                       {"bandwidth_fraction", r.bandwidth_fraction(m)},
                       {"flops", m.flops / m.seconds},
                       {"arithmetic_fraction", r.arithmetic_fraction(m)}});
  const boost::json::object report = {
      {"model", r.model},
      {"device", r.device},
      {"threads", r.threads},
      {"weight_bytes", r.weight_bytes},
      {"limits",
       {{"read_bytes_per_second", r.limits.read_bytes_per_second},
        {"f32_flops", r.limits.f32_flops},
        {"int8_ops", r.limits.int8_ops},
        {"arithmetic", r.cost.quantised() ? "int8_ops" : "f32_flops"}}},
      {"results", results}};
  std::cout << boost::json::serialize(report) << "\n";
}

void print_table(const Report& r) {
  fmt::print("{} on {}, {} threads; weights {}\n", r.model, r.device, r.threads,
             to_human(Bytes{static_cast<std::uint64_t>(r.weight_bytes)}));
  fmt::print(
      "limits measured in this run: read {:.1f} GB/s, f32 {:.0f} Gflop/s, int8 {:.0f} Gop/s "
      "(fractions of {})\n",
      r.limits.read_bytes_per_second * 1e-9, r.limits.f32_flops * 1e-9, r.limits.int8_ops * 1e-9,
      r.cost.quantised() ? "int8" : "f32");
  fmt::print("{:<12} {:>10} {:>12} {:>10} {:>10} {:>10}\n", "what", "tokens/s", "GB/s", "of read",
             "Gflop/s", "of peak");
  for (const Measured& m : r.results)
    fmt::print("{:<12} {:>10.1f} {:>12.2f} {:>9.1f}% {:>10.1f} {:>9.1f}%\n", m.name,
               static_cast<double>(m.tokens) / m.seconds, m.bytes / m.seconds * 1e-9,
               100 * r.bandwidth_fraction(m), m.flops / m.seconds * 1e-9,
               100 * r.arithmetic_fraction(m));
}

Result<Report> run(BenchOptions options) {
  const auto checkpoint = INFOS_TRY(open_checkpoint(options.model));
  const auto batch_max = *std::max_element(options.batches.begin(), options.batches.end());
  const std::uint32_t decode_tokens = options.context + options.steps + 1;
  options.engine.max_sequences = batch_max;
  options.engine.max_context = std::max(options.prompt, decode_tokens);
  const std::uint64_t each =
      (decode_tokens + options.engine.block_tokens - 1) / options.engine.block_tokens;
  const std::uint64_t blocks =
      std::max<std::uint64_t>(each * batch_max, options.prompt / options.engine.block_tokens + 1);
  const ModelConfig& c = checkpoint->config();
  options.engine.kv_memory =
      Bytes{kv_bytes_per_token(c, 4).value * options.engine.block_tokens * blocks};
  Report report;
  report.model = options.model;
  report.threads = options.engine.threads;
  report.cost = model_cost(*checkpoint);
  report.weight_bytes = report.cost.dense_bytes + report.cost.expert_bytes;
  const bool progress = isatty(STDERR_FILENO) != 0;
  const auto tell = [&](const std::string& what) {
    if (progress) fmt::print(stderr, "{}...\n", what);
  };
  tell("limits of the machine");
  report.limits = measure_limits(options.engine.threads);
  tell("loading the model");
  const auto engine = INFOS_TRY(Engine::open(*checkpoint, options.engine));
  report.device = engine->device_name();
  Bench bench(*engine, options, report.cost);
  if (options.prompt > 0) {
    tell(fmt::format("prefill of {} tokens", options.prompt));
    report.results.push_back(INFOS_TRY(bench.prefill()));
  }
  for (const std::uint32_t batch : options.batches) {
    tell(fmt::format("decode at batch {}", batch));
    report.results.push_back(INFOS_TRY(bench.decode(batch)));
  }
  return report;
}

std::uint32_t available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<std::uint32_t>(CPU_COUNT(&set))
                                                     : 1;
}

/// Errors: invalid_argument with the text seen.
Result<std::vector<std::uint32_t>> parse_batches(const std::string& text) {
  std::vector<std::uint32_t> out;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const unsigned long value = part.find_first_not_of("0123456789") == std::string::npos &&
                                        part.size() < 5 && !part.empty()
                                    ? std::stoul(part)
                                    : 0;
    if (value < 1 || value > 1024)
      return Error{
          ErrorCode::invalid_argument,
          fmt::format("--batches {}: want numbers from 1 to 1024 with commas between", text)};
    out.push_back(static_cast<std::uint32_t>(value));
  }
  if (out.empty()) return Error{ErrorCode::invalid_argument, "--batches: want at least one number"};
  return out;
}

/// Exit code to leave with, or options to run with.
std::variant<int, BenchOptions> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  BenchOptions o;
  std::string batches = "1,8,32", output = "table";
  po::options_description flags(
      "infos-engine-bench MODEL: measures prefill and decode of a checkpoint\noptions");
  flags.add_options()("help,h", "this text")("model", po::value(&o.model),
                                             "directory or .gguf file")(
      "threads,t", po::value(&o.engine.threads)->default_value(available_cores()),
      "threads that compute")("prompt,p", po::value(&o.prompt)->default_value(512),
                              "tokens of the prefill; 0: none")(
      "steps,n", po::value(&o.steps)->default_value(32), "decode steps measured")(
      "context", po::value(&o.context)->default_value(64), "tokens in each sequence before")(
      "batches,b", po::value(&batches)->default_value("1,8,32"), "batch sizes of decode")(
      "tensor-parallel", po::value(&o.engine.tensor_parallel)->default_value(1),
      "ranks that share the threads")("repetitions,r", po::value(&o.repetitions)->default_value(1),
                                      "times each test runs")(
      "backend", po::value(&o.engine.backend)->default_value("cpu"), "plugin name or .so file")(
      "device-options", po::value(&o.engine.device_options), "for the backend, e.g. isa=avx2")(
      "output,o", po::value(&output)->default_value("table"), "table or json");
  po::positional_options_description positional;
  positional.add("model", 1);
  try {
    po::variables_map values;
    po::store(po::command_line_parser(argc, argv).options(flags).positional(positional).run(),
              values);
    po::notify(values);
    if (values.count("help") != 0) {
      std::cout << flags;
      return 0;
    }
  } catch (const po::error& error) {
    fmt::print(stderr, "infos-engine-bench: {}\n", error.what());
    return 2;
  }
  auto parsed = parse_batches(batches);
  std::string problem = parsed.ok() ? "" : parsed.error().message;
  if (o.model.empty()) problem = "a model is wanted: a directory or a .gguf file";
  if (output != "table" && output != "json")
    problem = fmt::format("-o {}: want table or json", output);
  if (o.steps < 1 || o.context < 1 || o.repetitions < 1 || o.engine.threads < 1)
    problem = "--steps, --context, --repetitions and --threads: want at least 1";
  if (!problem.empty()) {
    fmt::print(stderr, "infos-engine-bench: {}\n", problem);
    return 2;
  }
  o.batches = *parsed;
  o.json = output == "json";
  return o;
}

}  // namespace
}  // namespace infos

int main(int argc, char** argv) {
  const auto parsed = infos::parse(argc, argv);
  if (const int* code = std::get_if<int>(&parsed)) return *code;
  const auto& options = std::get<infos::BenchOptions>(parsed);
  const auto report = infos::run(options);
  if (!report.ok()) {
    fmt::print(stderr, "infos-engine-bench: {}\n", report.error().message);
    return 1;
  }
  if (options.json)
    infos::print_json(*report);
  else
    infos::print_table(*report);
  return 0;
}
