// SPDX-License-Identifier: Apache-2.0
// Measures what the gateway itself costs: CPU time of its thread per streamed token and per
// request, with a worker that costs next to nothing and clients on other threads. CPU time, so that
// a busy machine does not distort it.
//   gateway_load [streams [tokens [requests]]]
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <future>
#include <thread>

#include <boost/asio.hpp>

#include "daemon/gateway/gateway.h"
#include "tests/gateway/byte_tokenizer.h"
#include "tests/gateway/gateway_harness.h"
#include "topology/base/log.h"

namespace infos {
namespace {

// Gives every running sequence one token per step, all in one report, as a real worker does.
class StepWorker {
 public:
  StepWorker(boost::asio::io_context& io, Gateway& gateway) : io_(io), gateway_(gateway) {
    gateway_.on_send_worker([this](const SendWorker& send) {
      if (const auto* submit = std::get_if<Submit>(&send.message)) {
        running_.push_back({submit->request, submit->attempt, 0, submit->max_new_tokens});
        wake();
      }
    });
  }

 private:
  struct Sequence {
    RequestId request;
    Attempt attempt;
    std::uint32_t emitted, limit;
  };
  void wake() {
    if (stepping_) return;
    stepping_ = true;
    boost::asio::post(io_, [this] { step(); });
  }
  void step() {
    stepping_ = false;
    StepReport report;
    std::vector<Sequence> left;
    for (Sequence& s : running_) {
      report.tokens.push_back(
          {s.request, s.attempt, s.emitted++, {test::ByteTokenizer::kWords, -1.0F, {}}});
      if (s.emitted < s.limit) {
        left.push_back(s);
      } else {
        SequenceEnd end;
        end.request = s.request;
        end.attempt = s.attempt;
        end.reason = FinishReason::length;
        end.answer_tokens = s.emitted;
        report.ended.push_back(end);
      }
    }
    running_.swap(left);
    gateway_.worker_said(WorkerId{1}, Generation{1}, std::move(report));
    if (!running_.empty()) wake();
  }

  boost::asio::io_context& io_;
  Gateway& gateway_;
  std::vector<Sequence> running_;
  bool stepping_ = false;
};

double cpu_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

std::string chat(std::uint32_t tokens, bool stream) {
  return test::post(
      "/v1/chat/completions",
      R"({"model":"m","messages":[{"role":"system","content":"You are helpful."},{"role":"user","content":"Tell me a story."}],"max_tokens":)" +
          std::to_string(tokens) + (stream ? R"(,"stream":true})" : "}"));
}

int run(std::size_t streams, std::uint32_t tokens, std::size_t requests) {
  log_configure(LogLevel::warn, LogFormat::text);
  boost::asio::io_context io(1);
  GatewayOptions options;
  options.http.connections_per_address = 4096;
  auto gateway = std::move(*Gateway::create(io, options));
  StepWorker worker(io, *gateway);
  ServedModel model;
  model.name = "m";
  model.tokenizer = std::make_shared<test::ByteTokenizer>(std::vector<std::string>{" word"});
  model.chat_template = std::make_shared<test::PlainTemplate>();
  model.config.max_context = 1u << 20;
  model.config.vocab = 400;
  (void)gateway->add_model(model);
  WorkerReady ready;
  ready.model = "m";
  ready.max_context = 1u << 20;
  gateway->worker_up(WorkerId{1}, Generation{1}, ready);
  const std::uint16_t port = *gateway->listen("127.0.0.1", 0);

  auto guard = boost::asio::make_work_guard(io);
  std::thread thread([&] { io.run(); });
  const auto sample = [&] {
    std::promise<double> p;
    boost::asio::post(io, [&] { p.set_value(cpu_seconds()); });
    return p.get_future().get();
  };

  const double before = sample();
  const auto wall = std::chrono::steady_clock::now();
  std::vector<std::thread> clients;
  for (std::size_t i = 0; i < streams; ++i) {
    clients.emplace_back([&] {
      test::Client c(port);
      c.send(chat(tokens, true));
      if (c.read().body.find("[DONE]") == std::string::npos) std::abort();
    });
  }
  for (auto& c : clients) c.join();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - wall).count();
  const double streamed = sample() - before;
  const double n = static_cast<double>(streams) * tokens;
  std::printf(
      "%zu streams of %u tokens: %.2f us of the gateway's thread per token, %.0f tokens/s in all\n",
      streams, tokens, streamed / n * 1e6, n / seconds);

  const double start = sample();
  test::Client c(port);
  for (std::size_t i = 0; i < requests; ++i) {
    c.send(chat(1, false));
    if (c.read().status != 200) std::abort();
  }
  std::printf("%zu requests of 1 token: %.2f us of the gateway's thread per request\n", requests,
              (sample() - start) / static_cast<double>(requests) * 1e6);
  boost::asio::post(io, [&] {
    gateway.reset();
    guard.reset();
  });
  thread.join();
  return 0;
}

}  // namespace
}  // namespace infos

int main(int argc, char** argv) {
  const auto arg = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  return infos::run(static_cast<std::size_t>(arg(1, 32)), static_cast<std::uint32_t>(arg(2, 500)),
                    static_cast<std::size_t>(arg(3, 2000)));
}
