// SPDX-License-Identifier: Apache-2.0
// `infos bench`: options to a plan and a load, figures to a table or JSON.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "daemon/cli/admin.h"
#include "daemon/cli/bench_load.h"
#include "daemon/cli/bench_plan.h"
#include "daemon/cli/bench_report.h"
#include "daemon/cli/commands.h"
#include "daemon/cli/openai.h"
#include "daemon/cli/table.h"

namespace infos::cli {
namespace {

namespace json = boost::json;

constexpr std::size_t kTraceBytesMax = 1u << 30;

struct Bench {
  LoadOptions load;
  Slo slo;
  std::vector<PlannedRequest> plan;
  PromptShape prompt;
  std::uint64_t seed = 1;
  std::string model;
  json::object parameters;  ///< of every request
  enum class Api { completions, chat } api = Api::completions;
};

Result<std::optional<Duration>> duration_option(const Invocation& given, const char* name) {
  if (!given.has(name)) return std::optional<Duration>();
  const Result<Duration> value = parse_duration(given.text(name));
  if (!value.ok())
    return Error{ErrorCode::invalid_argument, fmt::format("--{}: {}", name, value.error().message)};
  return std::optional<Duration>(*value);
}

Result<LengthRange> lengths_option(const Invocation& given, const char* name) {
  const Result<LengthRange> value = parse_lengths(given.text(name));
  if (!value.ok())
    return Error{ErrorCode::invalid_argument, fmt::format("--{} {}", name, value.error().message)};
  return *value;
}

Result<std::vector<PlannedRequest>> plan_of(const Invocation& given) {
  const std::uint64_t requests = INFOS_TRY(count_option(given, "requests", 1, 10'000'000));
  if (given.has("trace")) {
    const std::string path = given.text("trace");
    std::ifstream in(path, std::ios::binary | std::ios::ate);
    if (!in || in.tellg() < 0) return Error{ErrorCode::io, fmt::format("cannot open {}", path)};
    if (static_cast<std::size_t>(in.tellg()) > kTraceBytesMax)
      return Error{ErrorCode::resource_exhausted, fmt::format("{} is larger than 1 GiB", path)};
    in.seekg(0);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    TraceOptions options;
    options.speed = INFOS_TRY(real_option(given, "speed", 0.001, 1000));
    if (!given.options["requests"].defaulted()) options.requests = requests;
    auto plan = read_trace(text, options);
    if (!plan.ok())
      return Error{plan.error().code, fmt::format("{}: {}", path, plan.error().message)};
    return plan;
  }
  PlanOptions options;
  options.requests = requests;
  options.seed = INFOS_TRY(count_option(given, "seed", 0, INT64_MAX));
  if (given.has("rate")) options.rate = INFOS_TRY(real_option(given, "rate", 0.0001, 1e6));
  options.prompt = INFOS_TRY(lengths_option(given, "prompt-tokens"));
  options.output = INFOS_TRY(lengths_option(given, "output-tokens"));
  // With a duration the count is whatever fits, unless it was said.
  const auto duration = INFOS_TRY(duration_option(given, "duration"));
  if (duration && given.options["requests"].defaulted())
    options.requests =
        options.rate > 0 ? static_cast<std::uint64_t>(options.rate * duration->seconds() * 2 + 1000)
                         : 10'000'000;
  if (duration && options.rate == 0)
    options.requests = std::min<std::uint64_t>(options.requests, 2'000'000);
  return generate_plan(options);
}

Result<Bench> bench_of(const Invocation& given) {
  Bench bench;
  bench.load.endpoint = INFOS_TRY(parse_endpoint(given.text("url")));
  const bool open = given.has("rate") || given.has("trace");
  if (open && !given.options["concurrency"].defaulted())
    return Error{
        ErrorCode::invalid_argument,
        "--concurrency is of a closed loop, --rate and --trace of an open one: want one of them"};
  if (given.has("rate") && given.has("trace"))
    return Error{ErrorCode::invalid_argument, "--rate and --trace: want one of them"};
  if (!open)
    bench.load.concurrency =
        static_cast<std::uint32_t>(INFOS_TRY(count_option(given, "concurrency", 1, 65536)));
  bench.load.warm_up = INFOS_TRY(count_option(given, "warm-up", 0, 1'000'000));
  bench.load.time_limit = INFOS_TRY(duration_option(given, "duration")).value_or(Duration{0});
  bench.load.request_timeout = INFOS_TRY(duration_option(given, "timeout")).value_or(seconds(600));
  const char* key = std::getenv("INFOS_API_KEY");
  bench.load.api_key = given.has("api-key") ? given.text("api-key") : key ? key : "";
  bench.slo = {INFOS_TRY(duration_option(given, "slo-ttft")),
               INFOS_TRY(duration_option(given, "slo-tpot"))};
  bench.seed = INFOS_TRY(count_option(given, "seed", 0, INT64_MAX));
  bench.prompt.shared_tokens =
      static_cast<std::uint32_t>(INFOS_TRY(count_option(given, "shared-prefix", 0, 1u << 24)));
  if (given.has("chat")) bench.api = Bench::Api::chat, bench.load.target = "/v1/chat/completions";
  bench.parameters = {{"stream", true},
                      {"stream_options", {{"include_usage", true}}},
                      {"temperature", INFOS_TRY(real_option(given, "temperature", 0, 2))}};
  if (!given.has("natural-end")) bench.parameters["ignore_eos"] = true;
  bench.plan = INFOS_TRY(plan_of(given));
  return bench;
}

/// The model to ask for, and how many tokens one of our words is for it.
Status meet_server(const Invocation& given, Bench& bench) {
  const auto models = INFOS_TRY(list_models(bench.load.endpoint, bench.load.api_key));
  if (given.has("model"))
    bench.model = given.text("model");
  else if (!models.empty())
    bench.model = models.front();
  else
    return Error{ErrorCode::not_found, "the server lists no model"};
  Rng rng(bench.seed);
  HttpCall call;
  call.method = "POST";
  call.target = "/tokenize";
  call.api_key = bench.load.api_key;
  call.body =
      json::serialize(json::object{{"model", bench.model}, {"prompt", make_prompt(rng, 512, {})}});
  const auto answer = http_call(bench.load.endpoint, call);
  json::error_code failed;
  const json::value value =
      answer.ok() && answer->status == 200 ? json::parse(answer->body, failed) : json::value();
  const double tokens = failed ? 0 : std::atof(word_of(value, "count").c_str());
  const double counted = tokens > 0 ? tokens : static_cast<double>(list_of(value, "tokens").size());
  if (counted > 0) bench.prompt.tokens_per_word = counted / 512;
  return {};
}

std::string body_of(const Bench& bench, std::uint64_t index) {
  const PlannedRequest& planned = bench.plan[index];
  Rng rng(bench.seed * 0x9E3779B97F4A7C15ULL + index + 1);
  json::object body = bench.parameters;
  body["model"] = bench.model;
  body["max_tokens"] = planned.output_tokens;
  body["seed"] = static_cast<std::int64_t>(index);
  std::string prompt = make_prompt(rng, planned.prompt_tokens, bench.prompt);
  if (bench.api == Bench::Api::chat)
    body["messages"] = json::array{{{"role", "user"}, {"content", std::move(prompt)}}};
  else
    body["prompt"] = std::move(prompt);
  return json::serialize(body);
}

void draw_progress(const LoadProgress& now) {
  if (!stderr_is_terminal()) return;
  const double part =
      now.planned == 0 ? 1 : static_cast<double>(now.ended) / static_cast<double>(now.planned);
  const auto filled = static_cast<std::size_t>(part * 30);
  std::fprintf(stderr, "\r\033[K[%s%s] %llu of %llu answered, %llu in flight, %.0f chunks/s",
               std::string(filled, '#').c_str(), std::string(30 - filled, '.').c_str(),
               static_cast<unsigned long long>(now.ended),
               static_cast<unsigned long long>(now.planned),
               static_cast<unsigned long long>(now.sent - now.ended),
               static_cast<double>(now.chunks) / std::max(now.elapsed.seconds(), 1e-3));
}

}  // namespace

void describe_bench(boost::program_options::options_description_easy_init add) {
  namespace po = boost::program_options;
  const auto text = [](const char* word) { return po::value<std::string>()->value_name(word); };
  add("url", text("URL")->default_value("http://127.0.0.1:8080"),
      "server to measure; unix:PATH works too");
  add("model", text("NAME"), "default: the first that the server lists");
  add("chat", "use /v1/chat/completions; default: /v1/completions");
  add("concurrency,c", text("N")->default_value("16"), "closed loop: requests in flight");
  add("rate,r", text("R"), "open loop: requests per second, Poisson arrivals");
  add("trace", text("FILE"), "open loop: arrivals and lengths from a CSV or JSON lines file");
  add("speed", text("X")->default_value("1"), "of the trace; 2: twice as fast");
  add("requests,n", text("N")->default_value("100"),
      "how many, warm-up included; of a trace: default all");
  add("duration", text("TIME"), "send none after so long");
  add("warm-up", text("N")->default_value("0"), "the first so many are not counted");
  add("prompt-tokens", text("N[:M]")->default_value("128"), "length of prompts, or a range");
  add("output-tokens", text("N[:M]")->default_value("64"), "length of answers, or a range");
  add("shared-prefix", text("N")->default_value("0"), "tokens with which all prompts begin");
  add("natural-end", "let the model end its answers; default: always the full length");
  add("temperature", text("T")->default_value("0"), "of the sampling");
  add("slo-ttft", text("TIME"), "an answer is good when its first token comes within this");
  add("slo-tpot", text("TIME"), "... and each further token, on average, within this");
  add("timeout", text("TIME")->default_value("600s"), "a request that takes longer has failed");
  add("seed", text("N")->default_value("1"), "of lengths, arrivals and prompts");
  add("api-key", text("KEY"), "default: $INFOS_API_KEY");
  describe_output(add);
}

int run_bench(const Invocation& given) {
  const Output output = INFOS_CLI_TRY(output_option(given));
  Bench bench = INFOS_CLI_TRY(bench_of(given));
  const Status met = meet_server(given, bench);
  if (!met.ok()) return complain(kFailed, met.error());
  const auto make = [&](std::uint64_t i) {
    return LoadRequest{bench.plan[i].at, body_of(bench, i)};
  };
  const auto result = run_load(bench.load, bench.plan.size(), make, draw_progress);
  if (stderr_is_terminal()) std::fputs("\r\033[K", stderr);
  if (!result.ok()) return complain(kFailed, result.error());
  const Report report = make_report(result->samples, result->gaps_ms, bench.slo);
  if (output == Output::json) {
    json::object out{{"url", bench.load.endpoint.name()},
                     {"model", bench.model},
                     {"loop", bench.load.concurrency > 0 ? "closed" : "open"}};
    if (bench.load.concurrency > 0) out["concurrency"] = bench.load.concurrency;
    if (given.has("rate")) out["rate"] = std::atof(given.text("rate").c_str());
    out["seed"] = bench.seed;
    for (const auto& [key, value] : report_json(report)) out[key] = value;
    std::fputs(pretty(out).c_str(), stdout);
  } else {
    std::fputs(report_table(report).c_str(), stdout);
  }
  return report.answered > 0 && report.failed == 0 ? kDone : kFailed;
}

}  // namespace infos::cli
