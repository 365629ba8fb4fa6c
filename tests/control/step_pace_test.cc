// SPDX-License-Identifier: Apache-2.0
// Goal: prefill beside running answers stays within its share of the decode time, always advances,
// and recovers from noise. Method: a device of known speed; the budget is held against the
// arithmetic.
#include "daemon/control/step_pace.h"

#include <gtest/gtest.h>

namespace infos {
namespace {

// A device: 2 ms per step, 1 ms per decode row, 0.1 ms per prefill row.
Duration takes(std::uint32_t decode, std::uint32_t prefill) {
  return microseconds(2000 + 1000 * decode + 100 * prefill);
}

/// Runs steps with as much prefill as allowed; returns the last mixed budget.
std::uint32_t settle(StepPace& pace, std::uint32_t decode, std::uint64_t backlog, int steps = 300) {
  std::uint32_t last = 0;
  for (int i = 0; i < steps; ++i) {
    const std::uint32_t rows = pace.prefill_budget(decode, backlog);
    if (rows > 0) last = rows;
    pace.finished(decode, rows, takes(decode, rows));
  }
  return last;
}

TEST(StepPace, Budget_SettlesAtTheShareOfTheDecodeTime) {
  StepPace pace(1.0, 16, 512);
  EXPECT_EQ(pace.prefill_budget(0, 1), 512U);
  EXPECT_EQ(pace.prefill_budget(8, 1), 0U) << "the decode time is unknown: measure it";
  EXPECT_NEAR(settle(pace, 8, 1), 100, 5);  // (2 + 8) ms / 0.1 ms
  EXPECT_NEAR(settle(pace, 30, 1), 320, 16);
}

TEST(StepPace, Backlog_DoublesTheShareAtMostUntilItIsLong) {
  StepPace pace(1.0, 16, 4096);
  EXPECT_NEAR(settle(pace, 8, 20'000), 200, 10);   // 2 s of prefill
  EXPECT_NEAR(settle(pace, 8, 100'000), 500, 25);  // 10 s
}

TEST(StepPace, Floor_LetsPrefillAdvanceWhateverTheShare) {
  StepPace none(0, 16, 512);
  EXPECT_EQ(settle(none, 8, 1), 16U);
  StepPace odd(-1.0 / 0.0, 16, 512);
  EXPECT_EQ(settle(odd, 8, 1), 16U);
}

TEST(StepPace, DecodeTime_IsMeasuredAgainBetweenMixedSteps) {
  StepPace pace(1.0, 16, 512);
  settle(pace, 8, 1);
  int mixed = 0, longest = 0;
  for (int i = 0; i < 300; ++i) {
    const std::uint32_t rows = pace.prefill_budget(8, 1);
    mixed = rows > 0 ? mixed + 1 : 0;
    longest = std::max(longest, mixed);
    pace.finished(8, rows, takes(8, rows));
  }
  EXPECT_LE(longest, 64);
  EXPECT_GT(longest, 32);
}

TEST(StepPace, OneStall_DoesNotDistortAndIsForgotten) {
  StepPace pace(1.0, 16, 512);
  settle(pace, 8, 1);
  pace.finished(8, 100, seconds(5));
  EXPECT_GE(pace.prefill_budget(8, 1), 50U);
  pace.finished(8, 0, seconds(5));
  EXPECT_NEAR(settle(pace, 8, 1, 3000), 100, 10);
}

}  // namespace
}  // namespace infos
