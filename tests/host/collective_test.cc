// SPDX-License-Identifier: Apache-2.0
// Goal: ranks that meet get each other's values of that meeting and no other's; a failure ends
// every wait and a reset makes the group whole. Method: threads that meet thousands of times and
// check what they read, with a spin and without one (then they sleep).
#include "devices/host/collective.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace infos {
namespace {

template <typename Job>
void on_threads(std::uint32_t n, const Job& job) {
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < n; ++i) threads.emplace_back([&, i] { job(i); });
  for (std::thread& thread : threads) thread.join();
}

infos_code meet(Collective& collective, std::uint32_t rank, std::uint64_t mine,
                std::vector<std::uint64_t>& all) {
  const infos_group* group = collective.group(rank);
  all.resize(group->ranks);
  return group->exchange(group->context, mine, all.data());
}

TEST(Collective, RanksThatMeetOften_ReadTheValuesOfEachMeeting) {
  for (const std::uint32_t spin_us : {0U, 50U}) {
    for (const std::uint32_t ranks : {1U, 2U, 4U}) {
      Collective collective(ranks, spin_us);
      // Written plainly before each meeting and read plainly after it: the meeting orders memory.
      std::vector<std::uint64_t> plain(ranks * 2);
      on_threads(ranks, [&](std::uint32_t rank) {
        std::vector<std::uint64_t> all;
        for (std::uint64_t turn = 0; turn < 300; ++turn) {
          plain[turn % 2 * ranks + rank] = turn * 100 + rank;
          ASSERT_EQ(meet(collective, rank, turn * 10 + rank, all), INFOS_OK);
          for (std::uint32_t other = 0; other < ranks; ++other) {
            ASSERT_EQ(all[other], turn * 10 + other);
            ASSERT_EQ(plain[turn % 2 * ranks + other], turn * 100 + other);
          }
        }
      });
    }
  }
}

TEST(Collective, RankThatFails_EndsEveryWaitUntilTheReset) {
  Collective collective(4, 0);
  for (int round = 0; round < 20; ++round) {
    on_threads(4, [&](std::uint32_t rank) {
      std::vector<std::uint64_t> all;
      infos_code code = INFOS_OK;
      // A failure may end a meeting for those who have not left it yet.
      for (int turn = 0; turn < round && code == INFOS_OK; ++turn)
        code = meet(collective, rank, 1, all);
      if (rank == static_cast<std::uint32_t>(round) % 4)
        collective.fail();
      else
        ASSERT_EQ(code == INFOS_OK ? meet(collective, rank, 1, all) : code, INFOS_CANCELLED);
    });
    EXPECT_TRUE(collective.failed());
    collective.reset();
    on_threads(4, [&](std::uint32_t rank) {
      std::vector<std::uint64_t> all;
      ASSERT_EQ(meet(collective, rank, 7 + rank, all), INFOS_OK);
      ASSERT_EQ(all, (std::vector<std::uint64_t>{7, 8, 9, 10}));
    });
  }
}

}  // namespace
}  // namespace infos
