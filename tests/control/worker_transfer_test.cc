// SPDX-License-Identifier: Apache-2.0
// Goal: WorkerCore splits a request over two workers without using a block that a transfer may
// still touch, and without waiting for ever. Method: two harnesses whose answers depend on the KV
// found through block tables; the test itself plays the transfer between them.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/control/worker_harness.h"
#include "topology/base/rng.h"

namespace infos {
namespace {

using test::prompt;
using test::reference_answer;
using test::submit;
using test::WorkerHarness;

const WorkerRef kP{WorkerId{1}, Generation{1}};
const WorkerRef kD{WorkerId{2}, Generation{1}};

WorkerConfig small() {
  WorkerConfig config;
  config.kv_blocks = 32;
  config.block_tokens = 4;
  config.max_context = 120;
  config.max_running = 8;
  config.max_waiting = 16;
  config.max_step_tokens = 16;
  config.fetch_limit = seconds(10);
  config.export_limit = seconds(5);
  return config;
}

Submit fetching(std::uint64_t request, std::size_t length, std::uint32_t answer,
                TokenId first = 1) {
  Submit s = submit(request, prompt(length, first), answer);
  s.kv_from = {kP, static_cast<std::uint32_t>(length - 1)};
  return s;
}
Submit exporting(std::uint64_t request, std::size_t length, TokenId first = 1) {
  Submit s = submit(request, prompt(length, first), 1);
  s.kv_for = {kD, static_cast<std::uint32_t>(length - 1)};
  return s;
}
void expect_idle(WorkerHarness& h) {
  EXPECT_FALSE(h.running());
  EXPECT_EQ(h.core().load().kv_blocks_used, 0U);
  EXPECT_TRUE(h.core().audit().sequences.empty());
  EXPECT_TRUE(h.core().audit().transfers.empty());
  EXPECT_EQ(h.core().next_deadline(), kNever);
}

TEST(WorkerTransfer, SplitRequest_GivesTheReferenceAnswer) {
  WorkerHarness p(small()), d(small());
  d.tell(fetching(1, 50, 12));
  ASSERT_EQ(d.fetches().size(), 1U);
  EXPECT_FALSE(d.running()) << "computes what it fetches";
  const FetchKv fetch = d.fetches()[0];
  EXPECT_EQ(fetch.begin, 0U);
  EXPECT_EQ(fetch.end, 49U);
  EXPECT_EQ(fetch.blocks.size(), 13U);
  p.tell(exporting(1, 50));
  ASSERT_EQ(p.exports().size(), 1U);
  EXPECT_EQ(p.exports()[0].tokens, 49U);
  EXPECT_EQ(p.exports()[0].sink, kD);
  p.run();
  EXPECT_EQ(p.end_of(RequestId{1})->reason, FinishReason::prefilled);
  EXPECT_EQ(p.answer(RequestId{1}), reference_answer(prompt(50), 1));
  ASSERT_FALSE(p.advances().empty());
  EXPECT_EQ(p.advances().back().computed, 49U);
  EXPECT_EQ(p.core().load().kv_blocks_used, 13U) << "kept for the reader";
  d.copy_from(p, p.advances().back().blocks, fetch, 49);
  d.tell(FetchDone{fetch.id, 49, "", 4900, milliseconds(3), milliseconds(1), {}});
  p.tell(ExportDone{p.exports()[0].id});
  EXPECT_EQ(d.step().sequences[0].start, 49U);
  d.run();
  EXPECT_EQ(d.answer(RequestId{1}), reference_answer(prompt(50), 12));
  ASSERT_EQ(d.fetch_stats().size(), 1U);
  EXPECT_EQ(d.fetch_stats()[0].bytes, 4900U);
  EXPECT_EQ(d.fetch_stats()[0].source, kP);
  expect_idle(p), expect_idle(d);
  EXPECT_GE(d.core().load().kv_blocks_cached, 12U) << "fetched blocks are not reusable";
  EXPECT_GE(p.core().load().kv_blocks_cached, 12U);
}

TEST(WorkerTransfer, OnlyWhatIsMissing_IsFetchedAndTheRestComputed) {
  WorkerHarness d(small());
  d.tell(submit(1, prompt(22), 2));
  d.run();
  d.tell(fetching(2, 50, 6));
  ASSERT_EQ(d.fetches().size(), 1U);
  EXPECT_EQ(d.fetches()[0].begin, 20U) << "prefix hits come first, from a block boundary";
  // Nothing came: all of it is computed.
  d.tell(FetchDone{d.fetches()[0].id, 0, "refused"});
  EXPECT_EQ(d.step().sequences[0].start, 20U);
  d.run();
  EXPECT_EQ(d.answer(RequestId{2}), reference_answer(prompt(50), 6));
  // All but less than a block is there: not worth a fetch.
  d.tell(fetching(3, 50, 2));
  EXPECT_EQ(d.fetches().size(), 1U);
  d.run();
  expect_idle(d);
}

TEST(WorkerTransfer, PartlyProven_IsUsedThatFar) {
  WorkerHarness p(small()), d(small());
  p.tell(exporting(1, 40));
  p.run();
  d.tell(fetching(1, 40, 5));
  d.copy_from(p, p.advances().back().blocks, d.fetches()[0], 17);
  d.tell(FetchDone{d.fetches()[0].id, 17, "the link broke"});
  EXPECT_EQ(d.step().sequences[0].start, 17U);
  d.run();
  EXPECT_EQ(d.answer(RequestId{1}), reference_answer(prompt(40), 5));
}

TEST(WorkerTransfer, CancelledFetch_KeepsItsBlocksUntilItIsDone) {
  WorkerHarness d(small());
  d.tell(fetching(1, 50, 5));
  d.tell(Cancel{RequestId{1}, Attempt{1}});
  EXPECT_EQ(d.end_of(RequestId{1})->reason, FinishReason::cancelled);
  ASSERT_EQ(d.abandoned().size(), 1U);
  EXPECT_EQ(d.core().load().kv_blocks_used, 13U);
  // Others get other blocks.
  d.tell(submit(2, prompt(60, 9), 4));
  while (d.running()) {
    for (const StepSequence& s : d.step().sequences) {
      for (const BlockId b : s.blocks)
        EXPECT_EQ(std::ranges::count(d.fetches()[0].blocks, b), 0) << "a block of the transfer";
    }
    d.finish();
  }
  d.tell(FetchDone{d.fetches()[0].id, 30, ""});
  EXPECT_EQ(d.answer(RequestId{2}), reference_answer(prompt(60, 9), 4));
  expect_idle(d);
  d.tell(FetchDone{d.fetches()[0].id, 30, ""});  // said twice
  expect_idle(d);
}

TEST(WorkerTransfer, FetchWithoutEnd_IsComputedInOtherBlocks) {
  WorkerHarness d(small());
  d.tell(fetching(1, 50, 5));
  EXPECT_EQ(d.core().next_deadline(), Time{} + seconds(10));
  d.advance(seconds(10));
  ASSERT_EQ(d.abandoned().size(), 1U);
  EXPECT_FALSE(d.running()) << "its answer may still come";
  d.advance(seconds(2));
  ASSERT_TRUE(d.running());
  d.run();
  EXPECT_EQ(d.answer(RequestId{1}), reference_answer(prompt(50), 5));
  EXPECT_EQ(d.core().load().kv_blocks_used, 13U) << "the transfer's blocks came back by a timer";
  d.tell(FetchDone{d.fetches()[0].id, 49, ""});
  expect_idle(d);
}

TEST(WorkerTransfer, WithheldKv_IsComputedAtOnce) {
  WorkerHarness d(small());
  d.tell(fetching(1, 50, 5));
  d.tell(KvWithheld{RequestId{1}, Attempt{1}});
  ASSERT_EQ(d.abandoned().size(), 1U);
  d.tell(FetchDone{d.fetches()[0].id, 0, "withheld"});
  EXPECT_TRUE(d.running());
  d.run();
  EXPECT_EQ(d.answer(RequestId{1}), reference_answer(prompt(50), 5));
  expect_idle(d);
}

TEST(WorkerTransfer, PreemptedFetch_ComesBackOnlyWithItsAnswer) {
  WorkerConfig config = small();
  config.kv_blocks = 16;
  config.max_context = 64;
  WorkerHarness d(config);
  d.tell(submit(1, prompt(10), 40));  // grows to 13 blocks
  d.finish();
  d.tell(fetching(2, 40, 4, 3));
  ASSERT_EQ(d.fetches().size(), 0U) << "admitted beside one that would take its blocks";
  while (d.running()) d.finish();
  ASSERT_EQ(d.fetches().size(), 1U);
  Submit urgent = submit(3, prompt(30, 5), 20);
  urgent.priority = -1;
  d.tell(urgent);
  while (d.running()) d.finish();
  EXPECT_TRUE(d.end_of(RequestId{3}).has_value() || d.core().load().running > 0);
  if (!d.abandoned().empty()) {
    EXPECT_FALSE(d.end_of(RequestId{3}).has_value()) << "took blocks of a transfer";
  }
  d.tell(FetchDone{d.fetches()[0].id, 0, "abandoned"});
  d.run();
  EXPECT_EQ(d.answer(RequestId{3}), reference_answer(prompt(30, 5), 20));
  EXPECT_EQ(d.answer(RequestId{2}), reference_answer(prompt(40, 3), 4));
  expect_idle(d);
}

TEST(WorkerTransfer, ExportsWithoutReader_EndAndDoNotStarvePrefill) {
  WorkerHarness p(small());
  for (std::uint64_t r = 1; r <= 6; ++r) {
    p.tell(exporting(r, 30, static_cast<TokenId>(r)));
    while (p.running()) p.finish();
  }
  // 8 blocks each; at most half of 32 may wait for readers.
  EXPECT_EQ(p.core().load().kv_blocks_used, 16U);
  EXPECT_EQ(p.core().load().waiting, 4U);
  p.advance(seconds(5));
  ASSERT_EQ(p.ended_exports().size(), 2U);
  EXPECT_EQ(p.core().load().kv_blocks_used, 16U) << "freed without an answer";
  for (int i = 0; i < 2; ++i) p.tell(ExportDone{p.exports()[i].id});
  while (p.running()) p.finish();
  EXPECT_EQ(p.exports().size(), 4U);
  p.tell(Cancel{RequestId{3}, Attempt{1}});  // its reader has died
  EXPECT_EQ(p.ended_exports().size(), 3U);
  for (std::size_t i = 2; i < 4; ++i) p.tell(ExportDone{p.exports()[i].id});
  while (p.running()) p.finish();
  for (std::size_t i = 4; i < 6; ++i) p.tell(ExportDone{p.exports()[i].id});
  while (p.running()) p.finish();
  expect_idle(p);
}

TEST(WorkerTransfer, Cancel_EndsAnExportWhateverItsSequenceDoes) {
  enum class When { waiting, in_step, prefilled };
  for (const When when : {When::waiting, When::in_step, When::prefilled}) {
    SCOPED_TRACE(static_cast<int>(when));
    WorkerHarness p(small());
    if (when == When::waiting) p.tell(submit(2, prompt(16, 5), 1));
    p.tell(exporting(1, 50));
    if (when == When::prefilled) p.run();
    p.tell(Cancel{RequestId{1}, Attempt{0}});  // of an older attempt
    EXPECT_TRUE(p.ended_exports().empty());
    p.tell(Cancel{RequestId{1}, Attempt{1}});
    p.run();
    EXPECT_EQ(p.end_of(RequestId{1})->reason,
              when == When::prefilled ? FinishReason::prefilled : FinishReason::cancelled);
    ASSERT_EQ(p.ended_exports().size(), p.exports().size());
    EXPECT_EQ(p.exports().size(), when == When::waiting ? 0U : 1U);
    for (const ExportKv& e : p.exports()) {
      EXPECT_GT(p.core().load().kv_blocks_used, 0U) << "freed without an answer";
      p.tell(ExportDone{e.id});
    }
    expect_idle(p);
    p.tell(Cancel{RequestId{1}, Attempt{1}});  // said twice
    expect_idle(p);
  }
}

TEST(WorkerTransfer, NextAttempt_EndsTheExportOfTheOneBefore) {
  WorkerHarness p(small());
  p.tell(exporting(1, 30));
  p.run();
  ASSERT_EQ(p.end_of(RequestId{1})->reason, FinishReason::prefilled);
  Submit again = exporting(1, 30);
  again.attempt = Attempt{2};
  again.tokens.push_back(p.answer(RequestId{1})[0]);  // it was delivered
  again.max_new_tokens = 2;
  p.tell(again);
  EXPECT_EQ(p.ended_exports().size(), 1U);
  p.run();
  ASSERT_EQ(p.exports().size(), 2U);
  p.tell(Cancel{RequestId{1}, Attempt{2}});
  for (const ExportKv& e : std::vector<ExportKv>(p.exports())) p.tell(ExportDone{e.id});
  expect_idle(p);
}

TEST(WorkerTransfer, RunningSequence_TakesTheBlocksOfWaitingExports) {
  WorkerConfig config = small();
  config.kv_blocks = 16;
  config.max_context = 64;
  WorkerHarness p(config);
  p.tell(exporting(1, 30));
  p.run();
  p.tell(submit(2, prompt(20, 7), 40));  // needs 15 of 16 blocks in the end
  while (p.running()) p.finish();
  ASSERT_EQ(p.ended_exports().size(), 1U);
  EXPECT_FALSE(p.end_of(RequestId{2}).has_value());
  p.tell(ExportDone{p.exports()[0].id});
  p.run();
  EXPECT_EQ(p.answer(RequestId{2}), reference_answer(prompt(20, 7), 40));
  expect_idle(p);
}

TEST(WorkerTransfer, ExportedTwin_KeepsItsOwnBlocks) {
  WorkerHarness p(small());
  p.tell(submit(1, prompt(30), 2));
  p.tell(exporting(2, 30));  // computed beside its twin
  p.run();
  const AdvanceExport last = p.advances().back();
  for (const AdvanceExport& a : p.advances()) {
    EXPECT_TRUE(std::equal(a.blocks.begin(), a.blocks.end(), last.blocks.begin()))
        << "a block of the export was exchanged";
  }
  p.tell(ExportDone{p.exports()[0].id});
  expect_idle(p);
}

TEST(WorkerTransfer, Drain_WaitsForReaders) {
  WorkerHarness p(small());
  p.tell(exporting(1, 30));
  p.run();
  p.tell(Drain{});
  EXPECT_EQ(p.drained(), 0U);
  p.tell(ExportDone{p.exports()[0].id});
  EXPECT_EQ(p.drained(), 1U);
}

TEST(WorkerTransfer, Reports_NameWhatIsHeldAndDropped) {
  WorkerConfig config = small();
  config.kv_blocks = 8;
  config.max_context = 32;
  WorkerHarness h(config);
  h.tell(submit(1, prompt(20), 2));
  h.run();
  const std::vector<BlockHash> held = h.core().prefixes(100);
  EXPECT_EQ(held.size(), 5U);
  BlockHash hash = block_hash_root(4);
  const std::vector<TokenId> tokens = prompt(20);
  for (std::uint32_t i = 0; i < 5; ++i) {
    hash = block_hash(hash, std::span(tokens).subspan(i * 4, 4));
    EXPECT_EQ(std::ranges::count(held, hash), 1) << "block " << i;
    EXPECT_TRUE(h.held().contains(hash));
  }
  h.tell(submit(2, prompt(30, 77), 2));
  h.run();
  const std::vector<BlockHash> later = h.core().prefixes(100);
  EXPECT_EQ(std::set<BlockHash>(later.begin(), later.end()), h.held());
}

/// Random submissions, answers of transfers, cancels, ticks and failing steps.
TEST(WorkerTransfer, AnyOrderOfEvents_LeavesNothingBehind) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Rng rng(seed);
    WorkerConfig config = small();
    config.kv_blocks = 10 + static_cast<std::uint32_t>(rng.below(20));
    config.max_context = config.kv_blocks * 4;
    WorkerHarness h(config);
    std::uint64_t next = 1;
    for (int i = 0; i < 300; ++i) {
      switch (rng.below(8)) {
        case 0: {
          const auto length = 2 + rng.below(36);
          Submit s = submit(next++, prompt(length, 1 + static_cast<TokenId>(rng.below(3))),
                            1 + static_cast<std::uint32_t>(rng.below(12)));
          if (rng.chance(0.4)) s.kv_from = {kP, static_cast<std::uint32_t>(length)};
          if (rng.chance(0.4)) s.kv_for = {kD, static_cast<std::uint32_t>(length - 1)};
          h.tell(s);
          break;
        }
        case 1:
          h.tell(Cancel{RequestId{1 + rng.below(next)}, Attempt{1}});
          break;
        case 2:
          if (!h.fetches().empty() && rng.chance(0.5))
            h.tell(FetchDone{h.fetches()[rng.below(h.fetches().size())].id, 0, ""});
          break;
        case 3:
          if (!h.exports().empty() && rng.chance(0.5))
            h.tell(ExportDone{h.exports()[rng.below(h.exports().size())].id});
          break;
        case 4:
          h.advance(milliseconds(static_cast<std::int64_t>(rng.below(2000))));
          break;
        case 5:
          if (h.running() && rng.chance(0.2)) h.fail("planted");
          break;
        default:
          if (h.running()) h.finish();
          break;
      }
    }
    for (int round = 0; round < 200; ++round) {
      h.run();
      for (std::size_t i = 0; i < h.fetches().size(); ++i)
        h.tell(FetchDone{h.fetches()[i].id, 0, ""});
      for (std::size_t i = 0; i < h.exports().size(); ++i) h.tell(ExportDone{h.exports()[i].id});
    }
    expect_idle(h);
    for (std::uint64_t r = 1; r < next; ++r) EXPECT_TRUE(h.end_of(RequestId{r})) << r;
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace
}  // namespace infos
