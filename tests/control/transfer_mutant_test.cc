// SPDX-License-Identifier: Apache-2.0
// Goal: the invariants of transfer_world.h find every bug that is planted in TransferCore; a test
// that finds none of them would be worth nothing. Method: the same histories on the core with one
// bug each, until one breaks.
#include <gtest/gtest.h>

#include <cstdio>

#include "daemon/control/mutant.h"
#include "tests/control/transfer_world.h"

namespace infos {
namespace {

struct Planted {
  Mutant mutant;
  const char* name;
  std::uint64_t from = 1;  ///< the first seed tried, where the bug shows rarely
};
constexpr Planted kPlanted[] = {
    {Mutant::stamp_generation_unchecked, "stamp_generation_unchecked", 7700},
    {Mutant::stamp_bytes_unchecked, "stamp_bytes_unchecked"},
    {Mutant::lease_freed_early, "lease_freed_early"},
    {Mutant::quarantine_by_timer, "quarantine_by_timer"},
    {Mutant::fence_not_awaited, "fence_not_awaited"},
    {Mutant::fetch_done_twice, "fetch_done_twice"},
    {Mutant::export_done_twice, "export_done_twice"},
    {Mutant::superseded_lease_kept, "superseded_lease_kept"},
    {Mutant::generation_not_renewed, "generation_not_renewed", 7700},
    {Mutant::sender_unchecked, "sender_unchecked"},
    {Mutant::abandon_forgets_moves, "abandon_forgets_moves"},
    {Mutant::ready_too_early, "ready_too_early"},
    {Mutant::release_lost, "release_lost"},
    {Mutant::identity_unchecked, "identity_unchecked"},
    {Mutant::gap_counts_as_fetched, "gap_counts_as_fetched"},
    {Mutant::peer_gone_without_fence, "peer_gone_without_fence"},
    {Mutant::retry_before_fence, "retry_before_fence"},
};

class TransferMutant : public testing::TestWithParam<Planted> {};

TEST_P(TransferMutant, IsFound) {
  active_mutant = GetParam().mutant;
  std::string found;
  std::uint64_t seed = GetParam().from - 1;
  while (found.empty() && ++seed <= 60000)
    found = test::TransferWorld(seed, test::swarm(seed)).run(5);
  active_mutant = Mutant::none;
  ASSERT_NE(found, "") << GetParam().name << " was not found";
  std::printf("%s: seed %llu: %s\n", GetParam().name, static_cast<unsigned long long>(seed),
              found.c_str());
}

INSTANTIATE_TEST_SUITE_P(Each, TransferMutant, testing::ValuesIn(kPlanted),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(TransferMutant, None_IsSilent) {
  active_mutant = Mutant::none;
  for (std::uint64_t seed = 1; seed <= 300; ++seed)
    ASSERT_EQ(test::TransferWorld(seed, test::swarm(seed)).run(5), "") << "seed " << seed;
}

}  // namespace
}  // namespace infos
