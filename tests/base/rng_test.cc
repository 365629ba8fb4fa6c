// SPDX-License-Identifier: Apache-2.0
// Goal: the generators give the published sequences, everywhere the same. Method: known answers and
// simple statistics.
#include "topology/base/rng.h"

#include <gtest/gtest.h>

#include <array>

namespace infos {
namespace {

// Random123's kat_vectors for philox4x32-10.
TEST(Philox, KnownAnswers) {
  const std::array<std::uint32_t, 4> zero = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  EXPECT_EQ(philox(0, 0, 0), zero);
  const std::array<std::uint32_t, 4> ones = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  EXPECT_EQ(philox(~0ULL, ~0ULL, ~0ULL), ones);
}

TEST(Rng, SameSeedSameSequence_OtherSeedOther) {
  Rng a(42), b(42), c(43);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const auto x = a.next();
    EXPECT_EQ(x, b.next());
    differs |= x != c.next();
  }
  EXPECT_TRUE(differs);
}

// Pins the sequence: a change of it would silently change every simulation and every seeded answer.
TEST(Rng, Sequence_IsPinned) {
  Rng rng(0);
  EXPECT_EQ(rng.next(), 0x99EC5F36CB75F2B4ULL);
}

TEST(Rng, Below_IsInRangeAndCoversIt) {
  Rng rng(7);
  std::array<int, 5> seen{};
  for (int i = 0; i < 5000; ++i) ++seen[rng.below(5)];
  for (const int n : seen) EXPECT_GT(n, 800);
}

TEST(Rng, UniformAndExponential_HaveTheirMeans) {
  Rng rng(11);
  double u = 0, e = 0;
  for (int i = 0; i < 100000; ++i) {
    u += rng.uniform();
    e += rng.exponential(3.0);
  }
  EXPECT_NEAR(u / 100000, 0.5, 0.01);
  EXPECT_NEAR(e / 100000, 3.0, 0.06);
}

TEST(CounterUniform, DependsOnEachOfItsKeys) {
  const double x = counter_uniform(1, 2, 3);
  EXPECT_EQ(x, counter_uniform(1, 2, 3));
  EXPECT_NE(x, counter_uniform(2, 2, 3));
  EXPECT_NE(x, counter_uniform(1, 3, 3));
  EXPECT_NE(x, counter_uniform(1, 2, 4));
  EXPECT_GE(x, 0.0);
  EXPECT_LT(x, 1.0);
}

}  // namespace
}  // namespace infos
