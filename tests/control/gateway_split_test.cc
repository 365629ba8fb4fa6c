// SPDX-License-Identifier: Apache-2.0
// Goal: a request split over a prefill and a decode worker is answered once, in order, whatever
// either side does; and it is split exactly when that is predicted faster. Method: scenarios told
// event by event.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/control/block_hash.h"
#include "daemon/control/gateway_core.h"

namespace infos {
namespace {

constexpr std::uint64_t kP = 1, kD = 2;

WorkerReady ready(WorkerRole role, double prefill_rate = 1000, std::uint32_t block_tokens = 16) {
  WorkerReady r{"m", "cpu", 10000, block_tokens, {}};
  r.load.prefill_tokens_per_second = prefill_rate;
  r.load.decode_step_seconds = 0.01;
  r.role = role;
  r.kv_bytes_per_token = 1000;
  return r;
}

struct Gateway {
  explicit Gateway(const GatewayConfig& config = {}) : core(config) { tell(ModelListed{"m"}); }
  void tell(const GatewayEvent& event) {
    GatewayEffects out;
    core.step(now, event, out);
    for (GatewayEffect& e : out) {
      if (auto* deliver = std::get_if<Deliver>(&e))
        for (const SampledToken& t : deliver->tokens) delivered.push_back(t.token);
      if (auto* finish = std::get_if<Finish>(&e)) finished.push_back(*finish);
      if (auto* reject = std::get_if<Reject>(&e)) rejected.push_back(*reject);
      if (auto* send = std::get_if<SendWorker>(&e)) sent.push_back(std::move(*send));
    }
  }
  /// A slow decode worker that is good at nothing but decoding, and a fast prefill worker.
  void up_both() {
    tell(WorkerUp{{kP}, {1}, ready(WorkerRole::prefill, 10000)});
    tell(WorkerUp{{kD}, {1}, ready(WorkerRole::decode, 100)});
  }
  void ask(std::uint64_t request, std::uint32_t max_new = 5, std::size_t prompt = 200) {
    Arrive a;
    a.request = {request}, a.model = "m", a.max_new_tokens = max_new;
    a.prompt.assign(prompt, static_cast<TokenId>(request));
    tell(a);
  }
  void token(std::uint64_t worker, std::uint32_t index, TokenId value, std::uint32_t attempt = 1,
             std::uint64_t request = 1) {
    WorkerSaid said{{worker}, {1}, {}};
    said.report.tokens.push_back({{request}, {attempt}, index, {value}});
    tell(said);
  }
  void end(std::uint64_t worker, FinishReason reason, std::uint32_t answer_tokens,
           std::uint32_t attempt = 1, bool retryable = true, std::uint64_t request = 1) {
    WorkerSaid said{{worker}, {1}, {}};
    said.report.ended.push_back({{request}, {attempt}, reason, 0, "why", retryable, answer_tokens});
    tell(said);
  }
  const Submit* submitted(std::uint64_t worker, std::uint32_t attempt = 1,
                          std::uint64_t request = 1) const {
    for (const SendWorker& s : sent) {
      const auto* submit = std::get_if<Submit>(&s.message);
      if (submit && s.worker.value == worker && submit->attempt.value == attempt &&
          submit->request.value == request)
        return submit;
    }
    return nullptr;
  }
  template <typename T>
  std::size_t count(std::uint64_t worker) const {
    std::size_t n = 0;
    for (const SendWorker& s : sent)
      n += s.worker.value == worker && std::holds_alternative<T>(s.message) ? 1 : 0;
    return n;
  }

  GatewayCore core;
  Time now;
  std::vector<TokenId> delivered;
  std::vector<Finish> finished;
  std::vector<Reject> rejected;
  std::vector<SendWorker> sent;
};

TEST(GatewaySplit, Request_GoesToBothAndStreamsFromThePrefillSide) {
  Gateway g;
  g.up_both();
  g.ask(1);
  const Submit* p = g.submitted(kP);
  const Submit* d = g.submitted(kD);
  ASSERT_TRUE(p && d);
  EXPECT_EQ(p->kv_for, (KvPeer{{{kD}, {1}}, 199}));
  EXPECT_EQ(p->max_new_tokens, 1U);
  EXPECT_FALSE(p->kv_from.worker.worker);
  EXPECT_EQ(d->kv_from, (KvPeer{{{kP}, {1}}, 199}));
  EXPECT_EQ(d->max_new_tokens, 5U);
  g.token(kP, 0, 50);
  EXPECT_EQ(g.delivered, (std::vector<TokenId>{50}));
  g.end(kP, FinishReason::prefilled, 1);
  EXPECT_TRUE(g.finished.empty());
  g.token(kD, 0, 50);
  EXPECT_EQ(g.delivered.size(), 1U) << "repeated";
  for (std::uint32_t i = 1; i < 5; ++i) g.token(kD, i, 50 + static_cast<TokenId>(i));
  g.end(kD, FinishReason::length, 5);
  EXPECT_EQ(g.delivered, (std::vector<TokenId>{50, 51, 52, 53, 54}));
  ASSERT_EQ(g.finished.size(), 1U);
  EXPECT_EQ(g.finished[0].reason, FinishReason::length);
  EXPECT_EQ(g.finished[0].attempts, 1U);
  EXPECT_EQ(g.count<Cancel>(kP), 1U) << "of what it may still keep";
  EXPECT_EQ(g.count<Cancel>(kD), 0U);
  EXPECT_EQ(g.core.counters().split, 1U);
}

TEST(GatewaySplit, DecodeSideThatIsFaster_DeliversFirst) {
  Gateway g;
  g.up_both();
  g.ask(1);
  g.token(kD, 0, 50);
  g.token(kP, 0, 50);
  g.token(kD, 1, 51);
  EXPECT_EQ(g.delivered, (std::vector<TokenId>{50, 51}));
  g.end(kD, FinishReason::stop, 2);
  ASSERT_EQ(g.finished.size(), 1U);
  EXPECT_EQ(g.count<Cancel>(kP), 1U) << "its half goes on in vain";
}

TEST(GatewaySplit, DecodeSideThatHasDrawn_FreesThePrefillSide) {
  GatewayConfig config;
  config.max_running_per_worker = 1;
  for (const bool prefilled : {true, false}) {
    Gateway g(config);
    g.up_both();
    g.tell(WorkerUp{{3}, {1}, ready(WorkerRole::decode, 10)});
    g.ask(1);
    if (prefilled) g.token(kP, 0, 50), g.end(kP, FinishReason::prefilled, 1);
    g.ask(2);
    EXPECT_EQ(g.submitted(kP, 1, 2) != nullptr, prefilled);
    EXPECT_EQ(g.count<Cancel>(kP), 0U);
    g.token(kD, 0, 50);
    ASSERT_EQ(g.count<Cancel>(kP), 1U) << "it may never have been asked for its KV";
    if (!prefilled) g.end(kP, FinishReason::prefilled, 1);
    for (std::uint32_t i = 1; i < 5; ++i) g.token(kD, i, 50 + static_cast<TokenId>(i));
    g.end(kD, FinishReason::length, 5);
    EXPECT_EQ(g.delivered, (std::vector<TokenId>{50, 51, 52, 53, 54}));
    ASSERT_EQ(g.finished.size(), 1U);
  }
}

/// However an attempt is over before the decode side has drawn, its KV is kept for nobody.
TEST(GatewaySplit, AttemptOverAfterPrefilled_CancelsWhatIsKept) {
  const std::vector<std::pair<const char*, std::function<void(Gateway&)>>> ways = {
      {"the client is gone", [](Gateway& g) { g.tell(ClientGone{{1}}); }},
      {"a stop string", [](Gateway& g) { g.tell(StopHit{{1}}); }},
      {"the deadline", [](Gateway& g) { g.now = g.now + seconds(11), g.tell(GatewayTick{}); }},
      {"refused", [](Gateway& g) { g.end(kD, FinishReason::error, 1); }},
      {"failed for good", [](Gateway& g) { g.end(kD, FinishReason::error, 1, 1, false); }},
      {"a stop token", [](Gateway& g) { g.end(kD, FinishReason::stop, 1); }},
      {"tokens are missing", [](Gateway& g) { g.token(kD, 3, 50); }},
      {"another token", [](Gateway& g) { g.token(kD, 0, 51); }},
      {"the worker is gone",
       [](Gateway& g) {
         g.tell(WorkerDown{{kD}, {1}});
       }},
  };
  for (const auto& [what, happens] : ways) {
    SCOPED_TRACE(what);
    Gateway g;
    g.up_both();
    Arrive a;
    a.request = {1}, a.model = "m", a.max_new_tokens = 5, a.prompt.assign(200, 1);
    a.deadline = g.now + seconds(10);
    g.tell(a);
    g.token(kP, 0, 50);
    g.end(kP, FinishReason::prefilled, 1);
    ASSERT_EQ(g.count<Cancel>(kP), 0U);
    happens(g);
    ASSERT_EQ(g.count<Cancel>(kP), 1U);
    for (const SendWorker& s : g.sent) {
      const auto* cancel = std::get_if<Cancel>(&s.message);
      EXPECT_TRUE(!cancel || *cancel == (Cancel{{1}, {1}}));
    }
  }
}

TEST(GatewaySplit, PrefilledOfAnAttemptThatIsOver_IsCancelled) {
  Gateway g;
  g.up_both();
  g.end(kP, FinishReason::prefilled, 1, 3, true, 77);  // nobody knows it
  EXPECT_EQ(g.count<Cancel>(kP), 1U);
  g.end(kP, FinishReason::cancelled, 1, 3, true, 77);
  EXPECT_EQ(g.count<Cancel>(kP), 1U) << "it keeps nothing";
  g.ask(1);
  g.end(kD, FinishReason::error, 0);  // placed again
  g.end(kP, FinishReason::prefilled, 1);
  EXPECT_EQ(g.count<Cancel>(kP), 3U) << "once when it was over, once when it was late";
}

TEST(GatewaySplit, StopTokenFromThePrefillSide_EndsTheAnswer) {
  Gateway g;
  g.up_both();
  g.ask(1);
  g.end(kP, FinishReason::stop, 0);
  ASSERT_EQ(g.finished.size(), 1U);
  EXPECT_EQ(g.finished[0].reason, FinishReason::stop);
  EXPECT_EQ(g.count<Cancel>(kD), 1U);
}

TEST(GatewaySplit, AnotherTokenAfterTheFetch_IsDoneAnewFromWhatWasDelivered) {
  Gateway g;
  g.up_both();
  g.ask(1);
  g.token(kP, 0, 50);
  g.token(kD, 0, 60);
  EXPECT_EQ(g.delivered, (std::vector<TokenId>{50}));
  EXPECT_EQ(g.core.counters().divergences, 1U);
  EXPECT_EQ(g.count<Cancel>(kD), 1U);
  const Submit* again = g.submitted(kD, 2);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->tokens.back(), 50);
  EXPECT_EQ(again->tokens.size(), 201U);
  EXPECT_FALSE(again->kv_from.worker.worker) << "split again, to diverge again";
  g.token(kD, 1, 61);  // of the attempt that is over
  g.token(kD, 1, 51, 2);
  EXPECT_EQ(g.delivered, (std::vector<TokenId>{50, 51}));
}

TEST(GatewaySplit, PrefillSideGone_TheDecodeSideComputes) {
  for (const bool dies : {true, false}) {
    Gateway g;
    g.up_both();
    g.ask(1);
    if (dies)
      g.tell(WorkerDown{{kP}, {1}});
    else
      g.end(kP, FinishReason::error, 0);
    EXPECT_EQ(g.count<KvWithheld>(kD), 1U);
    EXPECT_EQ(g.count<Cancel>(kD), 0U);
    for (std::uint32_t i = 0; i < 5; ++i) g.token(kD, i, 50 + static_cast<TokenId>(i));
    g.end(kD, FinishReason::length, 5);
    EXPECT_EQ(g.delivered.size(), 5U);
    ASSERT_EQ(g.finished.size(), 1U);
    EXPECT_EQ(g.finished[0].attempts, 1U);
    EXPECT_EQ(g.core.counters().halves_lost, 1U);
  }
}

TEST(GatewaySplit, DecodeSideGone_GoesOnElsewhereFromWhatWasDelivered) {
  Gateway g;
  g.up_both();
  g.tell(WorkerUp{{3}, {1}, ready(WorkerRole::decode, 10)});
  g.ask(1);
  ASSERT_TRUE(g.submitted(kD));
  g.token(kP, 0, 50);
  g.end(kP, FinishReason::prefilled, 1);
  g.tell(WorkerDown{{kD}, {1}});
  EXPECT_EQ(g.count<Cancel>(kP), 1U) << "the KV is kept for nobody";
  const Submit* again = g.submitted(3, 2);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->tokens.size(), 201U);
  g.token(3, 1, 51, 2);
  EXPECT_EQ(g.delivered, (std::vector<TokenId>{50, 51}));
}

TEST(GatewaySplit, ClientGone_CancelsBothSides) {
  Gateway g;
  g.up_both();
  g.ask(1), g.ask(2);
  g.tell(ClientGone{{1}});
  EXPECT_EQ(g.count<Cancel>(kP), 1U);
  EXPECT_EQ(g.count<Cancel>(kD), 1U);
  g.end(kP, FinishReason::prefilled, 1, 1, true, 2);
  g.tell(StopHit{{2}});
  EXPECT_EQ(g.count<Cancel>(kP), 2U) << "what it keeps is for nobody now";
}

TEST(GatewaySplit, OneRoleLeft_ServesAlone) {
  for (const WorkerRole role : {WorkerRole::prefill, WorkerRole::decode}) {
    Gateway g;
    g.tell(WorkerUp{{4}, {1}, ready(role)});
    g.ask(1);
    const Submit* alone = g.submitted(4);
    ASSERT_TRUE(alone);
    EXPECT_FALSE(alone->kv_for.worker.worker || alone->kv_from.worker.worker);
    EXPECT_EQ(alone->max_new_tokens, 5U);
  }
}

TEST(GatewaySplit, ShortOrCachedPromptsAndLoadedPrefill_GoToTheDecodeWorkerAlone) {
  Gateway g;
  g.tell(WorkerUp{{kP}, {1}, ready(WorkerRole::prefill, 2000)});
  g.tell(WorkerUp{{kD}, {1}, ready(WorkerRole::decode, 1000)});
  g.ask(1, 5, 10);
  EXPECT_FALSE(g.submitted(kP)) << "less than a block";
  g.ask(2, 5, 400);
  EXPECT_TRUE(g.submitted(kP, 1, 2));
  // The same prompt again: the decode worker will have it all.
  Arrive again;
  again.request = {3}, again.model = "m", again.max_new_tokens = 5;
  again.prompt.assign(400, 2);
  g.tell(again);
  EXPECT_FALSE(g.submitted(kP, 1, 3));
  ASSERT_TRUE(g.submitted(kD, 1, 3));
  // So much waits for the prefill worker that it is no help.
  bool alone = false;
  for (std::uint64_t r = 4; r < 60 && !alone; ++r)
    g.ask(r, 5, 2000), alone = !g.submitted(kP, 1, r);
  EXPECT_TRUE(alone);
}

TEST(GatewaySplit, OneTokenAnswers_AreNeverSplit) {
  Gateway g;
  g.up_both();
  g.ask(1, 1);
  EXPECT_FALSE(g.submitted(kP));
  ASSERT_TRUE(g.submitted(kD));
  EXPECT_FALSE(g.submitted(kD)->kv_from.worker.worker);
}

TEST(GatewaySplit, SlowLink_IsLearntAndAvoided) {
  Gateway g;
  g.tell(WorkerUp{{kP}, {1}, ready(WorkerRole::prefill, 4000)});
  g.tell(WorkerUp{{kD}, {1}, ready(WorkerRole::decode, 1000)});
  g.tell(WorkerUp{{3}, {1}, ready(WorkerRole::decode, 1000)});
  const auto report = [&](std::uint64_t to, Duration took) {
    WorkerSaid said{{to}, {1}, {}};
    said.report.load = ready(WorkerRole::decode, 1000).load;
    said.report.fetches.push_back({{9}, {1}, {{kP}, {1}}, 1000, 1'000'000, took, {}, {}});
    g.tell(said);
  };
  for (int i = 0; i < 10; ++i) report(kD, seconds(5)), report(3, milliseconds(1));
  g.ask(1, 5, 1000);
  EXPECT_TRUE(g.submitted(3));
  EXPECT_FALSE(g.submitted(kD)) << "over a link of 200 kB/s";
  for (int i = 0; i < 10; ++i) report(3, seconds(50));
  g.ask(2, 5, 1000);
  EXPECT_FALSE(g.submitted(kP, 1, 2)) << "fetching takes longer than computing";
}

TEST(GatewaySplit, PrefixesOfWorkers_AttractRequests) {
  Gateway g;
  const std::vector<TokenId> prompt(320, 5);
  std::vector<BlockHash> chain;
  BlockHash hash = block_hash_root(16);
  for (int i = 0; i < 20; ++i)
    chain.push_back(hash = block_hash(hash, std::span(prompt).first(16)));
  WorkerReady knows = ready(WorkerRole::aggregated);
  knows.prefixes = chain;
  for (const std::uint64_t w : {5, 6, 7})
    g.tell(WorkerUp{{w}, {1}, w == 6 ? knows : ready(WorkerRole::aggregated)});
  g.ask(5, 5, 320);
  EXPECT_TRUE(g.submitted(6, 1, 5)) << "who said so when it came up";
  WorkerSaid said{{7}, {1}, {}};
  said.report.load = knows.load;
  said.report.held = chain;
  g.tell(said);
  said.worker = {6};
  said.report.held.clear(), said.report.dropped = chain;
  g.tell(said);
  Arrive a;
  a.request = {50}, a.model = "m", a.prompt = prompt, a.max_new_tokens = 5;
  g.tell(a);
  EXPECT_TRUE(g.submitted(7, 1, 50)) << "who reported it later";
}

TEST(GatewaySplit, RunningBound_CountsBothSides) {
  GatewayConfig config;
  config.max_running_per_worker = 2;
  Gateway g(config);
  g.up_both();
  for (std::uint64_t r = 1; r <= 4; ++r) g.ask(r);
  EXPECT_EQ(g.count<Submit>(kP), 2U);
  EXPECT_EQ(g.count<Submit>(kD), 2U);
  g.end(kP, FinishReason::prefilled, 0);
  EXPECT_EQ(g.count<Submit>(kD), 2U);
  g.token(kD, 0, 9);
  g.end(kD, FinishReason::stop, 1);
  EXPECT_EQ(g.count<Submit>(kD), 3U);
  EXPECT_EQ(g.count<Submit>(kP), 3U);
}

}  // namespace
}  // namespace infos
