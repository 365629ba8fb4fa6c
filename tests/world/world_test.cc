// SPDX-License-Identifier: Apache-2.0
// Goal: the production cores keep every promise under faults, and a world is the same each time. Method: worlds from seeds
// with invariants after each event; planted bugs that the invariants must catch.
#include <gtest/gtest.h>

#include "simulator/world/run.h"

namespace infos {
namespace {

TEST(World, NoFaults_EveryRequestIsAnsweredInFull) {
  SimulateOptions options;
  options.workers = 2;
  options.workload.requests = 200;
  options.checks = SimulateOptions::Checks::every_event;
  options.worker.kv_blocks = 200;
  const SimulateReport report = simulate(options);
  EXPECT_EQ(report.violation, "");
  EXPECT_EQ(report.outcomes.at("length") + report.outcomes.at("stop"), 200U) << to_json(report);
  EXPECT_EQ(report.retries, 0U);
}

TEST(World, Swarm_NoSeedBreaksAnInvariant) {
  FuzzOptions options;
  options.seeds = 40;
  const FuzzReport report = fuzz(options);
  for (const FuzzFailure& f : report.failures) {
    ADD_FAILURE() << f.violation << "\nrerun: infos simulate --fuzz --seeds 1 --seed " << f.seed;
  }
  EXPECT_EQ(report.faults.size(), 12U) << to_json(report);
}

}  // namespace
}  // namespace infos
