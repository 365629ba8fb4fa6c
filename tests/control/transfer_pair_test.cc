// SPDX-License-Identifier: Apache-2.0
// Goal: whatever happens to letters, moves and processes, no KV is used that is not the right one,
// no block is given back that somebody may still write, everything ends exactly once and comes to
// rest. Method: thousands of seeded histories of three workers (transfer_world.h).
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/control/transfer_world.h"

namespace infos {
namespace {

/// INFOS_SEED=n runs that one alone.
std::uint64_t only_seed() {
  const char* text = std::getenv("INFOS_SEED");
  return text ? std::strtoull(text, nullptr, 10) : 0;
}

TEST(TransferPair, NothingWrong_FetchesAll) {
  std::uint64_t wanted = 0, fetched = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    test::TransferWorld world(seed, {});
    ASSERT_EQ(world.run(4), "") << "seed " << seed;
    EXPECT_EQ(world.tokens_fetched(), world.tokens_wanted()) << "seed " << seed;
    wanted += world.tokens_wanted(), fetched += world.tokens_fetched();
  }
  EXPECT_GT(fetched, 3000U);
  EXPECT_EQ(fetched, wanted);
}

TEST(TransferPair, AnyFaults_KeepTheInvariantsAndComeToRest) {
  const std::uint64_t only = only_seed();
  const std::uint64_t seeds = 4000;
  std::uint64_t fetched = 0, wanted = 0, fences = 0;
  for (std::uint64_t seed = only ? only : 1; seed <= (only ? only : seeds); ++seed) {
    test::TransferWorld world(seed, test::swarm(seed));
    ASSERT_EQ(world.run(5), "") << "INFOS_SEED=" << seed << " transfer_pair_test";
    fetched += world.tokens_fetched(), wanted += world.tokens_wanted(), fences += world.fences();
  }
  if (only) return;
  EXPECT_GT(fetched * 2, wanted);  // faults are not all that happens
  EXPECT_LT(fetched, wanted);
  EXPECT_GT(fences, 1000U);
}

}  // namespace
}  // namespace infos
