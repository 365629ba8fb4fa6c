// SPDX-License-Identifier: Apache-2.0
// Goal: what WorkerCore schedules computes every answer exactly, frees every block, and survives
// every event in every state. Method: an engine whose answers depend on the KV it finds through the
// core's block tables.
#include "daemon/control/worker_core.h"

#include <gtest/gtest.h>

#include "tests/control/worker_harness.h"
#include "topology/base/rng.h"

namespace infos {
namespace {

using test::prompt;
using test::reference_answer;
using test::submit;
using test::WorkerHarness;

WorkerConfig small() {
  WorkerConfig config;
  config.kv_blocks = 64;
  config.block_tokens = 4;
  config.max_context = 200;
  config.max_running = 8;
  config.max_waiting = 16;
  config.max_step_tokens = 32;
  return config;
}

void expect_idle(WorkerHarness& h) {
  EXPECT_FALSE(h.running());
  EXPECT_EQ(h.core().load().kv_blocks_used, 0U);
  EXPECT_EQ(h.open(), 0U);
  EXPECT_TRUE(h.core().audit().sequences.empty());
}

TEST(WorkerCore, OneRequest_GivesTheReferenceAnswer) {
  WorkerHarness h(small());
  h.tell(submit(1, prompt(50), 20));
  h.run();
  EXPECT_EQ(h.answer(RequestId{1}), reference_answer(prompt(50), 20));
  EXPECT_EQ(h.end_of(RequestId{1})->reason, FinishReason::length);
  EXPECT_EQ(h.end_of(RequestId{1})->answer_tokens, 20U);
  expect_idle(h);
}

TEST(WorkerCore, StopToken_EndsTheAnswerAndIsNotPartOfIt) {
  WorkerHarness h(small());
  const auto want = reference_answer(prompt(9), 6);
  Submit s = submit(1, prompt(9), 50);
  s.stop_tokens = {want[5]};
  h.tell(s);
  h.run();
  const auto first = std::find(want.begin(), want.end(), want[5]) - want.begin();
  EXPECT_EQ(h.answer(RequestId{1}), std::vector<TokenId>(want.begin(), want.begin() + first));
  EXPECT_EQ(h.end_of(RequestId{1})->reason, FinishReason::stop);
  expect_idle(h);
}

TEST(WorkerCore, LaterAttempt_GoesOnWithTheNextIndex) {
  WorkerHarness h(small());
  const auto want = reference_answer(prompt(10), 12);
  Submit s = submit(1, prompt(10), 12);
  s.attempt = Attempt{3};
  s.tokens.insert(s.tokens.end(), want.begin(), want.begin() + 5);
  h.tell(s);
  EXPECT_EQ(h.step().sequences[0].index, 5U);
  h.run();
  const auto got = h.answer(RequestId{1});
  ASSERT_EQ(got.size(), 12U);
  EXPECT_TRUE(std::equal(got.begin() + 5, got.end(), want.begin() + 5));
}

TEST(WorkerCore, ContextFull_EndsWithLength) {
  WorkerConfig config = small();
  config.max_context = 20;
  WorkerHarness h(config);
  h.tell(submit(1, prompt(15), 100));
  h.run();
  EXPECT_EQ(h.answer(RequestId{1}).size(), 5U);
  EXPECT_EQ(h.end_of(RequestId{1})->reason, FinishReason::length);
}

TEST(WorkerCore, WhatCannotFit_IsRefusedWithAReason) {
  WorkerConfig config = small();
  config.kv_blocks = 4;
  WorkerHarness h(config);
  h.tell(submit(1, prompt(16), 5));
  EXPECT_EQ(h.end_of(RequestId{1})->reason, FinishReason::error);
  EXPECT_NE(h.end_of(RequestId{1})->message.find("16 tokens, this worker has room for 16"),
            std::string::npos)
      << h.end_of(RequestId{1})->message;
  EXPECT_FALSE(h.end_of(RequestId{1})->retryable);
  h.tell(submit(2, {}, 5));
  EXPECT_EQ(h.end_of(RequestId{2})->reason, FinishReason::error);
  h.tell(submit(3, prompt(3), 0));
  EXPECT_EQ(h.end_of(RequestId{3})->reason, FinishReason::length);
  expect_idle(h);
}

TEST(WorkerCore, SharedPrefix_IsComputedOnce) {
  WorkerHarness h(small());
  h.tell(submit(1, prompt(41), 4));
  h.run();
  h.tell(submit(2, prompt(41), 4));
  EXPECT_EQ(h.step().sequences[0].start, 40U);
  h.run();
  EXPECT_EQ(h.answer(RequestId{2}), reference_answer(prompt(41), 4));
  EXPECT_EQ(h.end_of(RequestId{2})->cached_tokens, 40U);
  // The last token is computed even when all of the prompt is cached.
  h.tell(submit(3, prompt(40), 4));
  EXPECT_EQ(h.step().sequences[0].start, 36U);
  h.run();
  EXPECT_EQ(h.answer(RequestId{3}), reference_answer(prompt(40), 4));
  expect_idle(h);
}

TEST(WorkerCore, EqualPromptsTogether_EndUpSharingBlocks) {
  WorkerHarness h(small());
  for (std::uint64_t i = 1; i <= 4; ++i) h.tell(submit(i, prompt(60), 8));
  std::uint32_t used_max = 0;
  while (h.running()) h.finish(), used_max = std::max(used_max, h.core().load().kv_blocks_used);
  for (std::uint64_t i = 1; i <= 4; ++i)
    EXPECT_EQ(h.answer(RequestId{i}), reference_answer(prompt(60), 8));
  EXPECT_LT(used_max, 40U);  // 4 x 17 blocks if nothing were shared
  expect_idle(h);
}

TEST(WorkerCore, BlocksRunOut_YoungerGiveWayAndAllAnswersAreExact) {
  WorkerConfig config = small();
  config.kv_blocks = 20;
  WorkerHarness h(config);
  for (std::uint64_t i = 1; i <= 8; ++i)
    h.tell(submit(i, prompt(8, static_cast<TokenId>(i * 10)), 60));
  h.run();
  for (std::uint64_t i = 1; i <= 8; ++i) {
    EXPECT_EQ(h.answer(RequestId{i}), reference_answer(prompt(8, static_cast<TokenId>(i * 10)), 60))
        << i;
  }
  EXPECT_GT(h.core().load().preemptions, 0U);
  EXPECT_EQ(h.ended().front().request, RequestId{1}) << "the oldest is first to end";
  expect_idle(h);
}

TEST(WorkerCore, Priority_GoesFirst) {
  WorkerConfig config = small();
  config.max_running = 1;
  WorkerHarness h(config);
  h.tell(submit(1, prompt(5), 3));
  Submit low = submit(2, prompt(5), 3), high = submit(3, prompt(5), 3);
  low.priority = 5;
  h.tell(low);
  h.tell(high);
  h.run();
  ASSERT_EQ(h.ended().size(), 3U);
  EXPECT_EQ(h.ended()[1].request, RequestId{3});
}

TEST(WorkerCore, CancelWhileItsStepRuns_KeepsTheBlocksUntilItEnds) {
  WorkerHarness h(small());
  h.tell(submit(1, prompt(30), 10));
  const std::uint32_t used = h.core().load().kv_blocks_used;
  h.tell(Cancel{RequestId{1}, Attempt{1}});
  EXPECT_EQ(h.core().load().kv_blocks_used, used);
  EXPECT_TRUE(h.ended().empty());
  h.finish();
  EXPECT_EQ(h.end_of(RequestId{1})->reason, FinishReason::cancelled);
  expect_idle(h);
}

TEST(WorkerCore, CancelWhileWaiting_EndsAtOnce) {
  WorkerConfig config = small();
  config.max_running = 1;
  WorkerHarness h(config);
  h.tell(submit(1, prompt(5), 3));
  h.tell(submit(2, prompt(5), 3));
  h.tell(Cancel{RequestId{2}, Attempt{1}});
  EXPECT_EQ(h.end_of(RequestId{2})->reason, FinishReason::cancelled);
  h.tell(Cancel{RequestId{2}, Attempt{1}});
  h.tell(Cancel{RequestId{77}, Attempt{1}});
  EXPECT_EQ(h.ended().size(), 1U);
  h.run();
  expect_idle(h);
}

TEST(WorkerCore, NewAttemptWhileTheOldOneIsInAStep_StartsAfterIt) {
  WorkerHarness h(small());
  h.tell(submit(1, prompt(5), 6));
  Submit again = submit(1, prompt(5), 6);
  again.attempt = Attempt{2};
  h.tell(again);
  h.tell(submit(1, prompt(5), 6));  // the old one, late
  EXPECT_TRUE(h.ended().empty());
  h.run();
  ASSERT_EQ(h.ended().size(), 2U);
  EXPECT_EQ(h.ended()[0].reason, FinishReason::cancelled);
  EXPECT_EQ(h.ended()[1].attempt, Attempt{2});
  EXPECT_EQ(h.answer(RequestId{1}), reference_answer(prompt(5), 6));
  expect_idle(h);
}

TEST(WorkerCore, SpuriousStepEvents_AreIgnored) {
  WorkerHarness h(small());
  h.tell(StepDone{EffectId{1}, {{3}}, milliseconds(1)});
  h.tell(StepFailed{EffectId{1}, "x"});
  h.tell(Tick{});
  expect_idle(h);
  h.tell(submit(1, prompt(5), 6));
  h.tell(StepDone{EffectId{99}, {{3}}, milliseconds(1)});
  h.tell(StepFailed{EffectId{99}, "x"});
  h.run();
  EXPECT_EQ(h.answer(RequestId{1}), reference_answer(prompt(5), 6));
}

TEST(WorkerCore, FailedStep_IsTriedAgainAloneAndOnlyTheBadOneEnds) {
  WorkerHarness h(small());
  for (std::uint64_t i = 1; i <= 4; ++i)
    h.tell(submit(i, prompt(6, static_cast<TokenId>(i * 10)), 5));
  for (std::size_t guard = 0; h.running() && guard < 1000; ++guard) {
    bool bad = false;
    for (const StepSequence& s : h.step().sequences) bad |= s.request == RequestId{3};
    if (bad)
      h.fail("cannot compute this");
    else
      h.finish();
  }
  for (const std::uint64_t i : {1U, 2U, 4U}) {
    EXPECT_EQ(h.answer(RequestId{i}), reference_answer(prompt(6, static_cast<TokenId>(i * 10)), 5))
        << i;
  }
  EXPECT_EQ(h.end_of(RequestId{3})->reason, FinishReason::error);
  EXPECT_EQ(h.end_of(RequestId{3})->message, "cannot compute this");
  expect_idle(h);
}

TEST(WorkerCore, WrongNumberOfSampledTokens_IsAFailedStep) {
  WorkerHarness h(small());
  h.tell(submit(1, prompt(5), 3));
  h.finish_with({});
  EXPECT_TRUE(h.ended().empty());
  h.finish_with({{1}, {2}});
  EXPECT_EQ(h.end_of(RequestId{1})->reason, FinishReason::error);
  EXPECT_NE(h.end_of(RequestId{1})->message.find("drew 2 tokens where 1"), std::string::npos);
  expect_idle(h);
}

TEST(WorkerCore, Drain_FinishesWhatRunsAndHandsBackTheRest) {
  WorkerConfig config = small();
  config.max_running = 2;
  WorkerHarness h(config);
  for (std::uint64_t i = 1; i <= 3; ++i) h.tell(submit(i, prompt(5), 3));
  h.finish();
  h.tell(Drain{});
  EXPECT_TRUE(h.end_of(RequestId{3})->retryable);
  h.tell(submit(4, prompt(5), 3));
  EXPECT_TRUE(h.end_of(RequestId{4})->retryable);
  EXPECT_EQ(h.drained(), 0U);
  h.run();
  EXPECT_EQ(h.answer(RequestId{1}), reference_answer(prompt(5), 3));
  EXPECT_EQ(h.drained(), 1U);
  h.tell(Drain{});
  EXPECT_EQ(h.drained(), 2U) << "asked again, it answers again";
}

TEST(WorkerCore, QueueFull_HandsBack) {
  WorkerConfig config = small();
  config.max_running = 1;
  config.max_waiting = 2;
  WorkerHarness h(config);
  for (std::uint64_t i = 1; i <= 4; ++i) h.tell(submit(i, prompt(5), 3));
  EXPECT_TRUE(h.end_of(RequestId{4})->retryable);
  h.run();
  expect_idle(h);
}

}  // namespace
}  // namespace infos
