// SPDX-License-Identifier: Apache-2.0
// Goal: busy and idle workers are believed, hung ones are not. Method: a table of two samples each.
#include "daemon/runtime/progress_watch.h"

#include <gtest/gtest.h>

namespace infos {
namespace {

struct Case {
  const char* what;
  ProgressSample before, after;
  Time now;
  bool moved;
};

TEST(ProgressWatch, TwoSamples_TellBusyFromHung) {
  const Time t0{1'000'000'000};
  const Case cases[] = {
      {"idle, its loop turns", {.beat = 4}, {.beat = 5}, t0, true},
      {"stopped while idle", {.beat = 4}, {.beat = 4}, t0, false},
      {"loads", {.loaded_bytes = 10}, {.loaded_bytes = 11}, t0, true},
      {"finished a step",
       {.steps = 1, .step_started = t0},
       {.steps = 2, .step_started = t0},
       t0,
       true},
      {"computes a long step",
       {.step_started = t0, .cpu_time = seconds(1)},
       {.step_started = t0, .cpu_time = seconds(2)},
       t0 + seconds(9),
       true},
      {"stopped in a step",
       {.step_started = t0, .cpu_time = seconds(1)},
       {.step_started = t0, .cpu_time = seconds(1)},
       t0 + seconds(9),
       false},
      {"spins in a step for ever",
       {.step_started = t0, .cpu_time = seconds(1)},
       {.step_started = t0, .cpu_time = seconds(2)},
       t0 + seconds(10),
       false},
      {"uses the processor without a step",
       {.cpu_time = seconds(1)},
       {.cpu_time = seconds(2)},
       t0,
       false},
  };
  for (const Case& c : cases) {
    ProgressWatch watch(seconds(10));
    watch.moved(c.now, c.before);
    EXPECT_EQ(watch.moved(c.now, c.after), c.moved) << c.what;
  }
}

}  // namespace
}  // namespace infos
