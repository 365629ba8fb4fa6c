// SPDX-License-Identifier: Apache-2.0
// Goal: the simulator's invariants find the bugs that are planted in the control code
// (daemon/control/mutant.h); a simulator that finds none of them would show nothing. Method: worlds
// of the swarm with one bug each, until one breaks; the table says which seed, and what broke. What
// needs a rare history, an alien or a silent peer is shown by transfer_mutant_test.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "daemon/control/mutant.h"
#include "simulator/world/run.h"

namespace infos {
namespace {

struct Planted {
  Mutant mutant;
  const char* name;
  std::uint64_t from;  ///< the first seed tried: one that is known to find it
};
constexpr Planted kPlanted[] = {
    {Mutant::stamp_bytes_unchecked, "stamp_bytes_unchecked", 9},
    {Mutant::lease_freed_early, "lease_freed_early", 1},
    {Mutant::quarantine_by_timer, "quarantine_by_timer", 5},
    {Mutant::fence_not_awaited, "fence_not_awaited", 5},
    {Mutant::fetch_done_twice, "fetch_done_twice", 1},
    {Mutant::export_done_twice, "export_done_twice", 1},
    {Mutant::abandon_forgets_moves, "abandon_forgets_moves", 5},
    {Mutant::ready_too_early, "ready_too_early", 8},
    {Mutant::gap_counts_as_fetched, "gap_counts_as_fetched", 9},
    {Mutant::peer_gone_without_fence, "peer_gone_without_fence", 156},
    {Mutant::retry_before_fence, "retry_before_fence", 113},
    {Mutant::fetch_blocks_freed_early, "fetch_blocks_freed_early", 1},
    {Mutant::export_blocks_freed_early, "export_blocks_freed_early", 1},
    {Mutant::fetch_used_unproven, "fetch_used_unproven", 1},
    {Mutant::fetch_range_off_by_block, "fetch_range_off_by_block", 1},
    {Mutant::published_before_computed, "published_before_computed", 1},
    {Mutant::exported_before_computed, "exported_before_computed", 8},
    {Mutant::fetch_orphan_leaked, "fetch_orphan_leaked", 1},
    {Mutant::computes_while_fetching, "computes_while_fetching", 1},
    {Mutant::stop_token_delivered, "stop_token_delivered", 1},
    {Mutant::repeated_token_delivered, "repeated_token_delivered", 1},
    {Mutant::emitted_counted_as_prompt, "emitted_counted_as_prompt", 1},
    {Mutant::double_completion, "double_completion", 1},
    {Mutant::half_taken_for_whole, "half_taken_for_whole", 1},
    {Mutant::token_gap_accepted, "token_gap_accepted", 1},
    {Mutant::orphans_forgotten, "orphans_forgotten", 1},
    {Mutant::draws_prompt_seed, "draws_prompt_seed", 1},
    {Mutant::generation_reused, "generation_reused", 1},
};
constexpr std::uint64_t kSeedsEach = 2000;  // when the code changes, other seeds find it
constexpr std::uint64_t kRequests = 60;

std::string broken_by(Mutant mutant, std::uint64_t seed) {
  active_mutant = mutant;
  std::string violation = simulate(fuzz_options(seed, kRequests)).violation;
  active_mutant = Mutant::none;
  return violation;
}

class WorldMutant : public testing::TestWithParam<Planted> {};

TEST_P(WorldMutant, IsFound) {
  std::string violation;
  std::uint64_t seed = GetParam().from;
  for (; seed < GetParam().from + kSeedsEach; ++seed) {
    violation = broken_by(GetParam().mutant, seed);
    if (!violation.empty()) break;
  }
  ASSERT_NE(violation, "") << GetParam().name << " was not found";
  std::printf("| %s | %llu | %s |\n", GetParam().name, static_cast<unsigned long long>(seed),
              violation.c_str());
  EXPECT_EQ(broken_by(Mutant::none, seed), "") << "seed " << seed << " breaks without it too";
}

INSTANTIATE_TEST_SUITE_P(Each, WorldMutant, testing::ValuesIn(kPlanted),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace infos
