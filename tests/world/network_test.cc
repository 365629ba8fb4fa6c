// SPDX-License-Identifier: Apache-2.0
// Goal: flows share links max-min fair, and end when their bytes have gone. Method: cases whose
// shares are known, and random ones in which no link is exceeded and no flow could have more.
#include "simulator/world/network.h"

#include <gtest/gtest.h>

#include "topology/base/rng.h"

namespace infos {
namespace {

TEST(Network, OneFlow_TakesItsBytesOverTheRate) {
  Network network(2, Bandwidth{1000}, Bandwidth{5000});
  network.start(Time{}, 1, 0, 1, 500);
  EXPECT_EQ(network.next(), Time{} + milliseconds(500));
  EXPECT_EQ(network.take_ended(Time{} + milliseconds(499)), 0U);
  EXPECT_EQ(network.take_ended(Time{} + milliseconds(500)), 1U);
  EXPECT_EQ(network.next(), kNever);
  network.start(Time{} + seconds(1), 2, 1, 1, 500);
  EXPECT_EQ(network.next(), Time{} + milliseconds(1100)) << "within a node";
}

TEST(Network, SharedWayOut_IsHalvedAndWhatIsLeftGoesToOthers) {
  Network network(4, Bandwidth{900}, Bandwidth{5000});
  network.start(Time{}, 1, 0, 1, 1000);
  network.start(Time{}, 2, 0, 2, 1000);
  network.start(Time{}, 3, 0, 3, 1000);
  network.start(Time{}, 4, 1, 3, 1000);
  EXPECT_DOUBLE_EQ(network.rate(1), 300);
  EXPECT_DOUBLE_EQ(network.rate(4), 600);
  network.stop(Time{}, 3);
  EXPECT_DOUBLE_EQ(network.rate(1), 450);
  EXPECT_DOUBLE_EQ(network.rate(4), 900);
}

TEST(Network, RandomFlows_ExceedNothingAndLeaveNothing) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Rng rng(seed);
    Network network(5, Bandwidth{100}, Bandwidth{400});
    std::vector<std::pair<std::uint32_t, std::uint32_t>> flows;
    for (std::uint64_t f = 1; f <= 1 + rng.below(20); ++f) {
      flows.emplace_back(rng.below(5), rng.below(5));
      network.start(Time{}, flows.size(), flows.back().first, flows.back().second,
                    1 + rng.below(99));
    }
    std::vector<double> used(15);
    const auto crossed = [&](std::size_t f) {
      const auto [from, to] = flows[f];
      return from == to ? std::vector<std::uint32_t>{3 * from + 2}
                        : std::vector<std::uint32_t>{3 * from, 3 * to + 1};
    };
    for (std::size_t f = 0; f < flows.size(); ++f)
      for (const std::uint32_t r : crossed(f)) used[r] += network.rate(f + 1);
    for (std::size_t f = 0; f < flows.size(); ++f) {
      bool bound = false;  // some link on its way is full, and it has the most there
      for (const std::uint32_t r : crossed(f)) {
        const double capacity = r % 3 == 2 ? 400 : 100;
        EXPECT_LE(used[r], capacity * (1 + 1e-9));
        bool most = used[r] > capacity * (1 - 1e-9);
        for (std::size_t g = 0; g < flows.size(); ++g)
          for (const std::uint32_t q : crossed(g))
            most = most && (q != r || network.rate(g + 1) <= network.rate(f + 1) * (1 + 1e-9));
        bound = bound || most;
      }
      EXPECT_TRUE(bound) << "flow " << f << " could have more, seed " << seed;
    }
    std::size_t ended = 0;
    while (network.next() != kNever) {
      const Time now = network.next();
      while (network.take_ended(now) != 0) ++ended;
    }
    EXPECT_EQ(ended, flows.size());
  }
}

}  // namespace
}  // namespace infos
