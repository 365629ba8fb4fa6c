// SPDX-License-Identifier: Apache-2.0
// Goal: GatewayCore admits within its bounds, answers every admitted request exactly once and in
// order whatever workers do, and never believes the dead. Method: scenarios told event by event.
#include "daemon/control/gateway_core.h"

#include <gtest/gtest.h>

#include <optional>

namespace infos {
namespace {

struct Gateway {
  explicit Gateway(const GatewayConfig& config = {}) : core(config) { tell(ModelListed{"m"}); }

  void tell(const GatewayEvent& event) {
    GatewayEffects out;
    core.step(now, event, out);
    for (GatewayEffect& e : out) {
      if (auto* deliver = std::get_if<Deliver>(&e)) {
        for (const SampledToken& t : deliver->tokens)
          delivered[deliver->request].push_back(t.token);
      }
      if (auto* finish = std::get_if<Finish>(&e)) finished.push_back(*finish);
      if (auto* reject = std::get_if<Reject>(&e)) rejected.push_back(*reject);
      if (auto* send = std::get_if<SendWorker>(&e)) sent.push_back(std::move(*send));
    }
  }
  void up(std::uint64_t worker, std::uint32_t generation = 1, std::uint32_t context = 100) {
    tell(WorkerUp{{worker}, {generation}, {"m", "cpu", context, 16, {}}});
  }
  void down(std::uint64_t worker, std::uint32_t generation = 1) {
    tell(WorkerDown{{worker}, {generation}});
  }
  void ask(std::uint64_t request, std::uint32_t max_new = 3, std::size_t prompt = 4) {
    Arrive a;
    a.request = {request}, a.model = "m", a.prompt.assign(prompt, static_cast<TokenId>(request)),
    a.max_new_tokens = max_new;
    tell(a);
  }
  /// The last submission sent, of a request.
  std::optional<SendWorker> submission(std::uint64_t request) const {
    for (auto s = sent.rbegin(); s != sent.rend(); ++s) {
      const auto* submit = std::get_if<Submit>(&s->message);
      if (submit && submit->request.value == request) return *s;
    }
    return std::nullopt;
  }
  std::size_t cancels(std::uint64_t request) const {
    std::size_t n = 0;
    for (const SendWorker& s : sent) {
      const auto* cancel = std::get_if<Cancel>(&s.message);
      n += cancel && cancel->request.value == request ? 1 : 0;
    }
    return n;
  }
  /// The worker of the last submission says tokens [index, index + n), each 100 + its index.
  void says(std::uint64_t request, std::uint32_t index, std::uint32_t n = 1,
            std::optional<FinishReason> reason = std::nullopt, bool retryable = false) {
    const SendWorker to = *submission(request);
    const Submit& submit = std::get<Submit>(to.message);
    WorkerSaid said{to.worker, to.generation, {}};
    for (std::uint32_t i = 0; i < n; ++i) {
      said.report.tokens.push_back(
          {{request}, submit.attempt, index + i, {static_cast<TokenId>(100 + index + i)}});
    }
    if (reason)
      said.report.ended.push_back(
          {{request}, submit.attempt, *reason, 0, "why", retryable, index + n});
    tell(said);
  }

  Time now;
  GatewayCore core;
  std::map<RequestId, std::vector<TokenId>> delivered;
  std::vector<Finish> finished;
  std::vector<Reject> rejected;
  std::vector<SendWorker> sent;
};

TEST(GatewayCore, Request_GoesToAWorkerAndItsTokensToTheClient) {
  Gateway g;
  g.up(1);
  g.ask(1);
  ASSERT_TRUE(g.submission(1));
  g.says(1, 0), g.says(1, 1);
  g.says(1, 2, 1, FinishReason::length);
  EXPECT_EQ(g.delivered[{1}], (std::vector<TokenId>{100, 101, 102}));
  ASSERT_EQ(g.finished.size(), 1U);
  EXPECT_EQ(g.finished[0].completion_tokens, 3U);
  EXPECT_EQ(g.finished[0].prompt_tokens, 4U);
  EXPECT_EQ(g.core.live_requests(), 0U);
  EXPECT_EQ(g.core.next_deadline(), kNever);
}

TEST(GatewayCore, Refusals_SayWhy) {
  GatewayConfig config;
  config.max_requests = 2, config.max_tokens_total = 50, config.max_per_tenant = 1;
  struct Case {
    const char* name;
    std::uint16_t status;
    const char* code;
    void (*act)(Gateway&);
  };
  const Case cases[] = {
      {"unknown model", 404, "model_not_found",
       [](Gateway& g) {
         Arrive a;
         a.request = {9}, a.model = "x", a.prompt = {1};
         g.tell(a);
       }},
      {"no prompt", 400, "invalid_prompt", [](Gateway& g) { g.ask(9, 3, 0); }},
      {"too long", 400, "context_length_exceeded",
       [](Gateway& g) {
         g.up(1, 1, 20);
         g.ask(9, 3, 20);
       }},
      {"too many", 429, "rate_limit_exceeded",
       [](Gateway& g) {
         g.ask(1);
         g.ask(2);
         g.ask(9);
       }},
      {"too many tokens", 429, "rate_limit_exceeded",
       [](Gateway& g) {
         g.ask(1, 3, 40);
         g.ask(9, 3, 11);
       }},
      {"deadline passed", 503, "deadline_exceeded",
       [](Gateway& g) {
         Arrive a;
         a.request = {9}, a.model = "m", a.prompt = {1}, a.deadline = g.now;
         g.tell(a);
       }},
      {"tenant", 429, "rate_limit_exceeded",
       [](Gateway& g) {
         for (const std::uint64_t r : {1U, 9U}) {
           Arrive a;
           a.request = {r}, a.model = "m", a.tenant = "t", a.prompt = {1};
           g.tell(a);
         }
       }},
  };
  for (const Case& c : cases) {
    Gateway g(config);
    c.act(g);
    ASSERT_EQ(g.rejected.size(), 1U) << c.name;
    EXPECT_EQ(g.rejected[0].request.value, 9U) << c.name;
    EXPECT_EQ(g.rejected[0].http_status, c.status) << c.name;
    EXPECT_EQ(g.rejected[0].code, c.code) << c.name;
    EXPECT_EQ(g.rejected[0].retry_after.ns > 0, c.status == 429) << c.name;
    EXPECT_FALSE(g.rejected[0].message.empty()) << c.name;
  }
}

TEST(GatewayCore, NoWorker_WaitsThenServesOrGivesUp) {
  GatewayConfig config;
  config.queue_timeout = seconds(10), config.max_queued_per_model = 2;
  Gateway g(config);
  g.ask(1), g.ask(2), g.ask(3);
  ASSERT_EQ(g.rejected.size(), 1U) << "the queue holds two";
  EXPECT_EQ(g.rejected[0].http_status, 429);
  EXPECT_FALSE(g.core.routable("m"));
  EXPECT_EQ(g.core.next_deadline(), g.now + seconds(10));
  g.now = g.now + seconds(10);
  g.tell(GatewayTick{});
  EXPECT_EQ(g.rejected.size(), 3U);
  EXPECT_EQ(g.rejected[1].http_status, 503);
  g.ask(4);
  g.up(1);
  EXPECT_TRUE(g.core.routable("m"));
  EXPECT_TRUE(g.submission(4));
}

TEST(GatewayCore, WorkerDies_GoesOnElsewhereWithWhatWasEmitted) {
  Gateway g;
  g.up(1), g.up(2);
  g.ask(1, 5);
  const WorkerId first = g.submission(1)->worker;
  g.says(1, 0, 2);
  g.down(first.value);
  const SendWorker second = *g.submission(1);
  EXPECT_NE(second.worker, first);
  const Submit& submit = std::get<Submit>(second.message);
  EXPECT_EQ(submit.tokens, (std::vector<TokenId>{1, 1, 1, 1, 100, 101}));
  EXPECT_EQ(submit.prompt_tokens, 4U);
  EXPECT_EQ(submit.attempt, Attempt{2});
  g.says(1, 2, 3, FinishReason::length);
  EXPECT_EQ(g.delivered[{1}], (std::vector<TokenId>{100, 101, 102, 103, 104}));
  EXPECT_EQ(g.finished.at(0).attempts, 2U);
}

TEST(GatewayCore, WorkerDiesAfterTheLastToken_TheAnswerIsComplete) {
  Gateway g;
  g.up(1);
  g.ask(1, 2);
  g.says(1, 0, 2);
  g.down(1);
  ASSERT_EQ(g.finished.size(), 1U);
  EXPECT_EQ(g.finished[0].reason, FinishReason::length);
}

TEST(GatewayCore, Repeats_AreDroppedAndGapsStartANewAttempt) {
  Gateway g;
  g.up(1);
  g.ask(1, 5);
  g.says(1, 0, 2), g.says(1, 0, 2), g.says(1, 1);
  EXPECT_EQ(g.delivered[{1}], (std::vector<TokenId>{100, 101}));
  g.says(1, 3);
  EXPECT_EQ(g.cancels(1), 1U);
  EXPECT_EQ(std::get<Submit>(g.submission(1)->message).attempt, Attempt{2});
  g.says(1, 2, 3, FinishReason::length);
  EXPECT_EQ(g.delivered[{1}], (std::vector<TokenId>{100, 101, 102, 103, 104}));
}

TEST(GatewayCore, EndBeforeItsTokens_IsNotBelieved) {
  Gateway g;
  g.up(1);
  g.ask(1, 5);
  const Submit submit = std::get<Submit>(g.submission(1)->message);
  WorkerSaid said{{1}, {1}, {}};
  said.report.ended.push_back({{1}, submit.attempt, FinishReason::stop, 0, "", false, 3});
  g.tell(said);
  EXPECT_TRUE(g.finished.empty());
  EXPECT_EQ(std::get<Submit>(g.submission(1)->message).attempt, Attempt{2});
}

TEST(GatewayCore, StaleWords_AreIgnoredAndTheirWorkIsStopped) {
  Gateway g;
  g.up(1);
  g.ask(1, 5);
  const SendWorker old = *g.submission(1);
  g.says(1, 0);
  g.down(1);
  g.up(1, 2);
  WorkerSaid late{{1}, {1}, {}};
  late.report.tokens.push_back({{1}, {1}, 1, {555}});
  g.tell(late);  // of the dead process
  EXPECT_EQ(g.delivered[{1}], (std::vector<TokenId>{100}));
  late.generation = {2};
  g.tell(late);  // of the old attempt
  EXPECT_EQ(g.delivered[{1}], (std::vector<TokenId>{100}));
  EXPECT_EQ(g.cancels(1), 1U);
  g.up(1, 1);
  EXPECT_TRUE(g.core.routable("m")) << "an old generation coming up late changes nothing";
  g.down(1, 1);
  EXPECT_TRUE(g.core.routable("m")) << "nor does its end";
  g.down(1, 2);
  g.up(1, 2);
  EXPECT_FALSE(g.core.routable("m")) << "a process that ended does not come back";
}

TEST(GatewayCore, ProcessFoundAgainOverANewLink_Serves) {
  Gateway g;
  WorkerUp up{{1}, {3}, {}, 1};
  up.ready.model = "m";
  up.ready.max_context = 100;
  g.tell(up);
  EXPECT_TRUE(g.core.routable("m"));
  g.tell(WorkerDown{{1}, {3}, 1});
  g.tell(up);  // late
  EXPECT_FALSE(g.core.routable("m"));
  up.link = 2;
  g.tell(up);
  g.tell(WorkerDown{{1}, {3}, 1});  // late
  EXPECT_TRUE(g.core.routable("m"));
}

TEST(GatewayCore, ClientGone_CancelsOnceAndIsForgotten) {
  Gateway g;
  g.up(1);
  g.ask(1);
  g.says(1, 0);
  g.tell(ClientGone{{1}}), g.tell(ClientGone{{1}}), g.tell(StopHit{{1}});
  EXPECT_EQ(g.cancels(1), 1U);
  ASSERT_EQ(g.finished.size(), 1U);
  EXPECT_EQ(g.finished[0].reason, FinishReason::cancelled);
  g.says(1, 1, 2, FinishReason::length);
  EXPECT_EQ(g.delivered[{1}].size(), 1U);
  EXPECT_EQ(g.finished.size(), 1U);
}

TEST(GatewayCore, StopHit_EndsWithStop) {
  Gateway g;
  g.up(1);
  g.ask(1);
  g.says(1, 0);
  g.tell(StopHit{{1}});
  EXPECT_EQ(g.cancels(1), 1U);
  EXPECT_EQ(g.finished.at(0).reason, FinishReason::stop);
}

TEST(GatewayCore, RetryableErrors_AreTriedElsewhereUntilTheBound) {
  GatewayConfig config;
  config.max_attempts = 3;
  Gateway g(config);
  g.up(1), g.up(2);
  g.ask(1);
  const WorkerId first = g.submission(1)->worker;
  g.says(1, 0, 0, FinishReason::error, true);
  EXPECT_NE(g.submission(1)->worker, first);
  g.says(1, 0, 0, FinishReason::error, true);
  g.says(1, 0, 0, FinishReason::error, true);
  ASSERT_EQ(g.rejected.size(), 1U) << "nothing was delivered: a refusal";
  EXPECT_EQ(g.rejected[0].http_status, 503);
  g.ask(2);
  g.says(2, 0, 1, FinishReason::error, false);
  ASSERT_EQ(g.finished.size(), 1U) << "an error of the request itself is final";
  EXPECT_EQ(g.finished[0].reason, FinishReason::error);
  EXPECT_EQ(g.finished[0].message, "why");
}

TEST(GatewayCore, Deadline_EndsWhatRuns) {
  Gateway g;
  g.up(1);
  for (const std::uint64_t r : {1U, 2U}) {
    Arrive a;
    a.request = {r}, a.model = "m", a.prompt = {1}, a.max_new_tokens = 9,
    a.deadline = seconds(5).ns ? Time{seconds(5).ns} : kNever;
    g.tell(a);
  }
  g.says(1, 0);
  EXPECT_EQ(g.core.next_deadline(), Time{seconds(5).ns});
  g.now = Time{seconds(5).ns};
  g.tell(GatewayTick{});
  EXPECT_EQ(g.finished.at(0).reason, FinishReason::error);
  EXPECT_EQ(g.rejected.at(0).code, "deadline_exceeded");
  EXPECT_EQ(g.cancels(1) + g.cancels(2), 2U);
}

TEST(GatewayCore, Routing_PrefersTheWorkerThatCompletesFirst) {
  Gateway g;
  WorkerLoad fast, slow;
  fast.prefill_tokens_per_second = 10000, fast.decode_step_seconds = 0.01;
  slow.prefill_tokens_per_second = 1000, slow.decode_step_seconds = 0.01;
  g.tell(WorkerUp{{1}, {1}, {"m", "cpu", 10000, 16, slow}});
  g.tell(WorkerUp{{2}, {1}, {"m", "cpu", 10000, 16, fast}});
  g.ask(1, 10, 2000);
  EXPECT_EQ(g.submission(1)->worker, WorkerId{2});
  // Its prefill is ahead of the next one now: 16 x 2000 rows on the fast one outweigh 2000 on the
  // slow one.
  for (std::uint64_t r = 2; r < 12; ++r) g.ask(r, 10, 2000);
  std::size_t on_slow = 0;
  for (std::uint64_t r = 1; r < 12; ++r) on_slow += g.submission(r)->worker == WorkerId{1} ? 1 : 0;
  EXPECT_GE(on_slow, 1U);
  EXPECT_LE(on_slow, 3U);
}

TEST(GatewayCore, DrainingWorker_GetsNothingNew) {
  Gateway g;
  g.up(1);
  WorkerSaid said{{1}, {1}, {}};
  said.report.load.draining = true;
  g.tell(said);
  g.ask(1);
  EXPECT_FALSE(g.submission(1));
  g.up(2);
  EXPECT_EQ(g.submission(1)->worker, WorkerId{2});
}

TEST(GatewayCore, WithdrawnModel_EndsWhatWaitsAndRefusesTheNext) {
  Gateway g;
  g.ask(1);
  g.tell(ModelListed{"m", false});
  EXPECT_EQ(g.rejected.at(0).http_status, 404);
  g.ask(2);
  EXPECT_EQ(g.rejected.at(1).http_status, 404);
  g.tell(ModelListed{"m", true});
  g.ask(3);
  EXPECT_EQ(g.rejected.size(), 2U);
}

TEST(GatewayCore, ModelWhoseWorkersGaveUp_IsRefusedAtOnceUntilOneServes) {
  Gateway g;
  g.ask(1);
  g.tell(ModelListed{"m", true, true});
  ASSERT_EQ(g.rejected.size(), 1U) << "what waits must not wait for its time-out";
  EXPECT_EQ(g.rejected[0].http_status, 503);
  EXPECT_EQ(g.rejected[0].code, "model_failed");
  EXPECT_GT(g.rejected[0].retry_after.ns, 0);
  g.ask(2);
  ASSERT_EQ(g.rejected.size(), 2U);
  EXPECT_EQ(g.rejected[1].code, "model_failed");
  g.tell(ModelListed{"m"});  // applied again
  g.ask(3);
  EXPECT_EQ(g.rejected.size(), 2U) << "waits: a worker is being started";
  g.tell(ModelListed{"m", true, true});
  EXPECT_EQ(g.rejected.size(), 3U);
  g.up(1);
  g.ask(4);
  EXPECT_TRUE(g.submission(4));
  g.tell(ModelListed{"m", true, true});
  EXPECT_EQ(g.rejected.size(), 3U) << "a worker serves, whatever is said";
}

TEST(GatewayCore, SpuriousEvents_ChangeNothing) {
  Gateway g;
  g.down(9), g.down(9, 4);
  g.tell(WorkerSaid{{5}, {1}, {}});
  g.tell(ClientGone{{77}}), g.tell(StopHit{{77}}), g.tell(GatewayTick{}),
      g.tell(ModelListed{"never", false});
  g.ask(1), g.ask(1);
  EXPECT_EQ(g.core.live_requests(), 1U);
  EXPECT_TRUE(g.finished.empty() && g.rejected.empty() && g.sent.empty());
}

}  // namespace
}  // namespace infos
