// SPDX-License-Identifier: Apache-2.0
// Goal: quantities parse strictly and print to a form that parses back to the same value. Method:
// tables and random values.
#include "topology/base/units.h"

#include <gtest/gtest.h>

#include "topology/base/rng.h"

namespace infos {
namespace {

TEST(Units, Parse_KnownTexts) {
  EXPECT_EQ(parse_bytes("16GiB")->value, 16ULL << 30);
  EXPECT_EQ(parse_bytes("1.5kB")->value, 1500U);
  EXPECT_EQ(parse_bytes("0B")->value, 0U);
  EXPECT_EQ(parse_duration("300ms")->ns, 300'000'000);
  EXPECT_EQ(parse_duration("2us")->ns, 2'000);
  EXPECT_EQ(parse_duration("24h")->ns, 86'400'000'000'000);
  EXPECT_DOUBLE_EQ(parse_bandwidth("400Gb/s")->bytes_per_second, 5e10);
  EXPECT_DOUBLE_EQ(parse_bandwidth("64GB/s")->bytes_per_second, 6.4e10);
}

TEST(Units, Parse_RefusesAnythingElse) {
  for (const char* text : {"", "16", "GiB", "16 GiB", "16gib", "-1B", "1e3B", "nanB", "infB",
                           "0x10B", "16GiBs", "9e30TiB", "99999999TiB"})
    EXPECT_FALSE(parse_bytes(text).ok()) << text;
  for (const char* text : {"", "5", "ms", "5 ms", "-5ms", "5sec", "5MS"})
    EXPECT_FALSE(parse_duration(text).ok()) << text;
  for (const char* text : {"", "400", "400Gb", "400Gbps", "-1Gb/s"})
    EXPECT_FALSE(parse_bandwidth(text).ok()) << text;
}

TEST(Units, Error_NamesTheTextAndTheUnits) {
  const std::string message = parse_bytes("12 parsecs").error().message;
  EXPECT_NE(message.find("12 parsecs"), std::string::npos);
  EXPECT_NE(message.find("GiB"), std::string::npos);
}

TEST(Units, PrintThenParse_GivesTheSameValue) {
  Rng rng(1);
  for (int i = 0; i < 2000; ++i) {
    const Bytes bytes{rng.next() >> (12 + rng.below(52))};
    EXPECT_EQ(parse_bytes(to_string(bytes)).value(), bytes) << to_string(bytes);
    const Duration duration{static_cast<std::int64_t>(rng.next() >> (12 + rng.below(52)))};
    EXPECT_EQ(parse_duration(to_string(duration)).value(), duration) << to_string(duration);
  }
  EXPECT_EQ(to_string(Bytes{16ULL << 30}), "16GiB");
  EXPECT_EQ(to_string(milliseconds(300)), "300ms");
  EXPECT_EQ(to_string(Bandwidth{5e10}), "400Gb/s");
}

}  // namespace
}  // namespace infos
