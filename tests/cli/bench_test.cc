// SPDX-License-Identifier: Apache-2.0
// Goal: bench sends what was planned and its figures are right. Method: plans against their seed
// and real traces; figures of samples worked out by hand; loads against a server in this process
// that answers, refuses or breaks off.
#include <gtest/gtest.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "daemon/cli/bench_load.h"
#include "daemon/cli/bench_plan.h"
#include "tests/support/data.h"

namespace infos::cli {
namespace {

TEST(BenchPlan, SameSeedSamePlan_AndRatesAndRangesHold) {
  PlanOptions options{20'000, 50, {10, 20}, {1, 3}, 7};
  const auto plan = generate_plan(options);
  EXPECT_EQ(generate_plan(options), plan);
  options.seed = 8;
  EXPECT_NE(generate_plan(options), plan);
  EXPECT_NEAR(plan.back().at.seconds(), 400,
              12);  // 20,000 gaps of mean 20 ms: standard deviation 2.8 s
  std::set<std::uint32_t> prompts, outputs;
  for (const auto& request : plan)
    prompts.insert(request.prompt_tokens), outputs.insert(request.output_tokens);
  EXPECT_EQ(prompts.size(), 11U);
  EXPECT_EQ(*prompts.begin(), 10U);
  EXPECT_EQ(*outputs.rbegin(), 3U);
}

TEST(BenchPlan, ClosedLoop_HasNoArrivals) {
  for (const auto& request : generate_plan({10, 0, {5, 5}, {6, 6}, 1}))
    EXPECT_EQ(request, (PlannedRequest{Duration{0}, 5, 6}));
}

TEST(BenchPlan, Traces_OfEveryForm) {
  const std::string csv =
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.5,4808,10\r\n2023-11-16 "
      "18:17:04.0,3180,8\r\n";
  const auto azure = read_trace(csv, {}).value();
  ASSERT_EQ(azure.size(), 2U);
  EXPECT_EQ(azure[0], (PlannedRequest{Duration{0}, 4808, 10}));
  EXPECT_NEAR(azure[1].at.seconds(), 0.5, 1e-6);
  const auto mooncake =
      read_trace(
          "{\"timestamp\": 1000, \"input_length\": 5, \"output_length\": 6, \"hash_ids\": [1]}\n"
          "{\"timestamp\": 3000, \"input_length\": 7, \"output_length\": 0}\n",
          {0, 2})
          .value();
  EXPECT_EQ(mooncake[1], (PlannedRequest{seconds(1), 7, 1}));
  const auto ns =
      read_trace("{\"input_toks\": 1, \"output_toks\": 2, \"arrival_time_ns\": 5}\n", {}).value();
  EXPECT_EQ(ns[0].output_tokens, 2U);
  // Midnight and leap days.
  const auto days = read_trace(
                        "timestamp,input_length,output_length\n2024-02-28 23:59:59,1,1\n2024-03-01 "
                        "00:00:00,1,1\n",
                        {})
                        .value();
  EXPECT_NEAR(days[1].at.seconds(), 86401, 1e-6);
}

TEST(BenchPlan, BadTraces_NameTheLine) {
  for (const char* text : {"", "a,b\n1,2\n", "timestamp,input_length,output_length\n1,2\n",
                           "timestamp,input_length,output_length\nx,2,3\n", "{\"timestamp\": 1}\n",
                           "{\"timestamp\": 1, \"input_length\": -1, \"output_length\": 1}\n",
                           "{\n", "timestamp,input_length,output_length\n1,99999999999,3\n"})
    EXPECT_FALSE(read_trace(text, {}).ok()) << text;
  EXPECT_NE(read_trace("timestamp,input_length,output_length\n1,2,3\nx,2,3\n", {})
                .error()
                .message.find("line 3"),
            std::string::npos);
}

TEST(BenchPlan, RealTraces) {
  for (const auto& [path, rows] :
       {std::pair{"traces/azure2023/AzureLLMInferenceTrace_code.csv", 8819U},
        std::pair{"traces/mooncake/conversation_trace.jsonl", 12031U},
        std::pair{"traces/llmservingsim/workload_me2_01_mixed.jsonl", 608U}}) {
    INFOS_NEEDS_DATA(path);
    std::ifstream in(test::data_path(path), std::ios::binary);
    const auto plan = read_trace(std::string(std::istreambuf_iterator<char>(in), {}), {});
    ASSERT_TRUE(plan.ok()) << path << ": " << plan.error().message;
    EXPECT_EQ(plan->size(), rows) << path;
  }
}

TEST(BenchPlan, Prompts_HaveTheirLengthAndShareTheirBeginning) {
  Rng a(1), b(2);
  const std::string first = make_prompt(a, 100, {2.0, 40});
  const std::string second = make_prompt(b, 100, {2.0, 40});
  EXPECT_EQ(std::count(first.begin(), first.end(), ' ') + 1, 50);
  std::size_t words = 0, same = 0;
  while (same < first.size() && first[same] == second[same]) words += first[same++] == ' ';
  EXPECT_GE(words, 20U);
  EXPECT_NE(first, second);
  EXPECT_FALSE(parse_lengths("0").ok());
  EXPECT_FALSE(parse_lengths("8:4").ok());
  EXPECT_FALSE(parse_lengths("8:").ok());
  EXPECT_EQ(parse_lengths("4:8")->high, 8U);
}

TEST(BenchReport, Percentiles_ByNearestRank) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Spread s = spread_of(values);
  EXPECT_DOUBLE_EQ(s.p50, 50);
  EXPECT_DOUBLE_EQ(s.p90, 90);
  EXPECT_DOUBLE_EQ(s.p95, 95);
  EXPECT_DOUBLE_EQ(s.p99, 99);
  EXPECT_DOUBLE_EQ(s.max, 100);
  EXPECT_DOUBLE_EQ(s.mean, 50.5);
  EXPECT_DOUBLE_EQ(spread_of({7}).p99, 7);
  EXPECT_DOUBLE_EQ(spread_of({}).max, 0);
}

Sample answered(int start_ms, int ttft_ms, int last_ms, std::uint64_t tokens) {
  Sample sample;
  sample.start = milliseconds(start_ms);
  sample.ttft = milliseconds(ttft_ms);
  sample.last = sample.total = milliseconds(last_ms);
  sample.output_tokens = sample.chunks = tokens;
  sample.prompt_tokens = 10;
  return sample;
}

TEST(BenchReport, Figures_WorkedOutByHand) {
  std::vector<Sample> samples{answered(0, 100, 300, 11), answered(500, 50, 1500, 30),
                              answered(1000, 400, 1000, 1)};
  samples.push_back(answered(0, 9999, 9999, 5));
  samples.back().warm_up = true;
  Sample failed;
  failed.error = "503: busy";
  failed.start = milliseconds(900);
  samples.push_back(failed);
  const Report report = make_report(samples, {}, {milliseconds(200), milliseconds(30)});
  EXPECT_EQ(report.answered, 3U);
  EXPECT_EQ(report.failed, 1U);
  EXPECT_EQ(report.warm_up, 1U);
  EXPECT_DOUBLE_EQ(report.seconds, 2.0);
  EXPECT_DOUBLE_EQ(report.output_tokens_per_second, 21);
  EXPECT_DOUBLE_EQ(report.requests_per_second, 1.5);
  EXPECT_DOUBLE_EQ(report.tpot_ms.max, 50);  // 1450 ms for 29 tokens
  EXPECT_DOUBLE_EQ(report.tpot_ms.p50, 20);
  EXPECT_DOUBLE_EQ(report.goodput, 0.5);  // only the first: 100 ms, 20 ms
  EXPECT_DOUBLE_EQ(report.met_slo, 0.25);
  EXPECT_EQ(report.errors.at("503: busy"), 1U);
  EXPECT_EQ(report_json(report).at("goodput_requests_per_second"), 0.5);
  EXPECT_NE(report_table(report).find("1 x 503: busy"), std::string::npos);
}

TEST(BenchLoad, EventsWithText) {
  EXPECT_TRUE(event_has_text(R"({"choices":[{"delta":{"content":"a"}}]})"));
  EXPECT_TRUE(event_has_text(R"({"choices":[{"text": "a"}]})"));
  EXPECT_FALSE(event_has_text(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})"));
  EXPECT_FALSE(event_has_text(R"({"choices":[{"delta":{"content":null}}]})"));
  EXPECT_FALSE(event_has_text("[DONE]"));
}

/// Answers on a loopback port, a thread a connection, until it goes out of scope.
class Server {
 public:
  enum class Manner { stream, refuse, break_off, one_answer_then_close };
  explicit Server(Manner manner) : manner_(manner), fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    ::listen(fd_, 64);
    socklen_t size = sizeof address;
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept(); });
  }
  ~Server() {
    ::shutdown(fd_, SHUT_RDWR);
    acceptor_.join();
    for (std::thread& one : clients_) one.join();
    ::close(fd_);
  }
  Endpoint endpoint() const { return {"127.0.0.1", port_, "", ""}; }
  std::uint64_t requests() const { return requests_; }
  std::uint64_t most_at_once() const { return most_; }

 private:
  void accept() {
    for (int client = 0; (client = ::accept(fd_, nullptr, nullptr)) >= 0;)
      clients_.emplace_back([this, client] { serve(client); });
  }
  void serve(int client) {
    std::string got;
    std::array<char, 4096> bytes;
    for (ssize_t n = 0; (n = ::recv(client, bytes.data(), bytes.size(), 0)) > 0;) {
      got.append(bytes.data(), static_cast<std::size_t>(n));
      if (!got.ends_with("}")) continue;  // bodies are one JSON object
      got.clear();
      ++requests_;
      const std::uint64_t now = ++running_;
      for (std::uint64_t most = most_; now > most && !most_.compare_exchange_weak(most, now);) {
      }
      const std::string answer = text();
      --running_;
      if (::send(client, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) break;
      if (manner_ == Manner::break_off || manner_ == Manner::one_answer_then_close) break;
    }
    ::close(client);
  }
  std::string text() const {
    if (manner_ == Manner::refuse)
      return "HTTP/1.1 429 Too Many\r\nContent-Length: "
             "29\r\n\r\n{\"error\":{\"message\":\"later\"}} ";
    const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    const std::string one = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n";
    if (manner_ == Manner::break_off) return head + "22\r\n" + one;
    const std::string usage =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\ndata: "
        "[DONE]\n\n";
    const auto chunk = [](const std::string& body) {
      std::array<char, 16> size{};
      std::snprintf(size.data(), size.size(), "%zx\r\n", body.size());
      return size.data() + body + "\r\n";
    };
    return head + chunk(one) + chunk(one + one) + chunk(usage) + "0\r\n\r\n";
  }

  const Manner manner_;
  int fd_;
  std::uint16_t port_ = 0;
  std::atomic<std::uint64_t> requests_{0}, running_{0}, most_{0};
  std::thread acceptor_;
  std::vector<std::thread> clients_;
};

LoadResult load(const Server& server, LoadOptions options, std::uint64_t count, Duration gap = {}) {
  options.endpoint = server.endpoint();
  const auto make = [&](std::uint64_t i) {
    return LoadRequest{gap * static_cast<std::int64_t>(i), "{\"n\":1}"};
  };
  auto result = run_load(options, count, make, nullptr);
  EXPECT_TRUE(result.ok());
  return std::move(result).value();
}

TEST(BenchLoad, ClosedLoop_AnswersAllOnKeptConnections) {
  Server server(Server::Manner::stream);
  LoadOptions options;
  options.concurrency = 4;
  options.warm_up = 5;
  const LoadResult result = load(server, options, 200);
  ASSERT_EQ(result.samples.size(), 200U);
  std::uint64_t warm = 0;
  for (const Sample& sample : result.samples) {
    EXPECT_EQ(sample.error, "");
    EXPECT_EQ(sample.chunks, 3U);
    EXPECT_EQ(sample.output_tokens, 4U);
    EXPECT_EQ(sample.prompt_tokens, 9U);
    EXPECT_LE(sample.ttft, sample.last);
    EXPECT_LE(sample.last, sample.total);
    warm += sample.warm_up ? 1 : 0;
  }
  EXPECT_EQ(warm, 5U);
  EXPECT_EQ(result.gaps_ms.size(), 195U * 2);
  EXPECT_EQ(server.requests(), 200U);
  EXPECT_LE(server.most_at_once(), 4U);
}

TEST(BenchLoad, OpenLoop_SendsAll) {
  Server server(Server::Manner::stream);
  const LoadResult result = load(server, {}, 50, microseconds(200));
  ASSERT_EQ(result.samples.size(), 50U);
  for (const Sample& sample : result.samples) EXPECT_EQ(sample.error, "");
}

TEST(BenchLoad, ConnectionsThatTheServerCloses_AreOpenedAnew) {
  Server server(Server::Manner::one_answer_then_close);
  LoadOptions options;
  options.concurrency = 2;
  for (const Sample& sample : load(server, options, 20).samples) EXPECT_EQ(sample.error, "");
}

TEST(BenchLoad, RefusedAndBrokenAnswers_AreCounted) {
  LoadOptions options;
  options.concurrency = 2;
  Server refusing(Server::Manner::refuse);
  const LoadResult refused = load(refusing, options, 10);
  ASSERT_EQ(refused.samples.size(), 10U);
  for (const Sample& sample : refused.samples) EXPECT_EQ(sample.error, "429: later");
  Server breaking(Server::Manner::break_off);
  const LoadResult broken = load(breaking, options, 10);
  ASSERT_EQ(broken.samples.size(), 10U);
  for (const Sample& sample : broken.samples) EXPECT_NE(sample.error, "");
}

TEST(BenchLoad, NobodyListening_FailsEachRequestAndEnds) {
  LoadOptions options;
  {
    Server server(Server::Manner::stream);
    options.endpoint = server.endpoint();
  }
  options.concurrency = 2;
  const auto result = run_load(
      options, 10,
      [](std::uint64_t) {
        return LoadRequest{{}, "{}"};
      },
      nullptr);
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->samples.size(), 10U);
  for (const Sample& sample : result->samples)
    EXPECT_NE(sample.error.find("cannot connect"), std::string::npos);
}

}  // namespace
}  // namespace infos::cli
