// SPDX-License-Identifier: Apache-2.0
// Goal: stop strings are found wherever the text is cut into pieces, and nothing that may become
// one gets out. Method: tables, and random texts over a two-letter alphabet against a matcher that
// looks at every prefix.
#include "daemon/gateway/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "topology/base/rng.h"

namespace infos {
namespace {

// Where the text ends, by looking at every prefix: the first that ends with a stop string, less the
// longest such.
std::optional<std::size_t> cut_by_brute_force(const std::string& text,
                                              const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop))
        longest = std::max(longest, stop.size());
    }
    if (longest > 0) return end - longest;
  }
  return std::nullopt;
}

// How much of `text` may go out while no stop string is complete: all but the longest ending that
// begins one.
std::size_t releasable(const std::string& text, const std::vector<std::string>& stops) {
  std::size_t hold = 0;
  for (const std::string& stop : stops) {
    for (std::size_t n = 1; n < stop.size() && n <= text.size(); ++n) {
      if (text.ends_with(stop.substr(0, n))) hold = std::max(hold, n);
    }
  }
  return text.size() - hold;
}

TEST(StopMatcher, StopAcrossPieces_CutsTextBeforeIt) {
  StopMatcher matcher({"END"});
  std::string out;
  EXPECT_FALSE(matcher.feed("one E", out));
  EXPECT_EQ(out, "one ");
  EXPECT_FALSE(matcher.feed("N", out));
  EXPECT_EQ(out, "one ");
  EXPECT_TRUE(matcher.feed("D two", out));
  EXPECT_EQ(out, "one ");
  EXPECT_TRUE(matcher.feed("more", out));
  EXPECT_EQ(out, "one ");
  matcher.flush(out);
  EXPECT_EQ(out, "one ");
  EXPECT_EQ(matcher.passed(), 4u);
}

TEST(StopMatcher, PrefixThatBecomesNothing_ComesOut) {
  StopMatcher matcher({"END"});
  std::string out;
  matcher.feed("EN", out);
  EXPECT_EQ(out, "");
  matcher.feed("x", out);
  EXPECT_EQ(out, "ENx");
  matcher.feed("E", out);
  matcher.flush(out);
  EXPECT_EQ(out, "ENxE");
}

TEST(StopMatcher, NoStops_PassesEverything) {
  StopMatcher matcher({});
  std::string out;
  EXPECT_FALSE(matcher.feed("anything", out));
  EXPECT_EQ(out, "anything");
}

TEST(StopMatcher, SelfOverlappingStop_IsFound) {
  StopMatcher matcher({"aab"});
  std::string out;
  EXPECT_TRUE(matcher.feed("aaab", out));
  EXPECT_EQ(out, "a");
}

TEST(StopMatcher, RandomTextsAndCuts_AgreeWithBruteForce) {
  Rng rng(20240611);
  int stopped = 0;
  for (int round = 0; round < 20000; ++round) {
    const auto random_text = [&](std::size_t max) {
      std::string text(1 + rng.below(max), 'a');
      for (char& c : text) c = static_cast<char>('a' + rng.below(2));
      return text;
    };
    std::vector<std::string> stops(1 + rng.below(4));
    for (std::string& stop : stops) stop = random_text(7);
    const std::string text = random_text(24);

    StopMatcher matcher(stops);
    std::string out;
    bool done = false;
    for (std::size_t at = 0; at < text.size() && !done;) {
      const std::size_t n = std::min<std::size_t>(text.size() - at, rng.below(5));
      done = matcher.feed(std::string_view(text).substr(at, n), out);
      at += n;
      if (!done) {
        ASSERT_EQ(out, text.substr(0, releasable(text.substr(0, at), stops)))
            << "round " << round << " text " << text;
      }
    }
    const auto cut = cut_by_brute_force(text, stops);
    ASSERT_EQ(done, cut.has_value()) << "round " << round << " text " << text;
    matcher.flush(out);
    ASSERT_EQ(out, cut ? text.substr(0, *cut) : text) << "round " << round;
    ASSERT_EQ(matcher.passed(), out.size());
    stopped += done;
  }
  EXPECT_GT(stopped, 1000);
  EXPECT_LT(stopped, 19900);
}

}  // namespace
}  // namespace infos
