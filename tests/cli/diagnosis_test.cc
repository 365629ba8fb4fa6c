// SPDX-License-Identifier: Apache-2.0
// Goal: doctor warns of what hurts and is silent about what is well. Method: a healthy machine as
// facts, then one fact at a time made bad; the readers of kernel files on their known texts.
#include "daemon/cli/diagnosis.h"

#include <gtest/gtest.h>

#include "daemon/cli/table.h"

namespace infos::cli {
namespace {

MachineFacts healthy() {
  MachineFacts facts;
  facts.cpu_model = "A CPU";
  facts.cpu_features = {"avx2", "fma", "f16c"};
  facts.cores_online = facts.cores_allowed = 8;
  facts.memory_total = Bytes{16ULL << 30};
  facts.memory_available = Bytes{8ULL << 30};
  facts.huge_pages = "madvise";
  facts.open_files = facts.open_files_hard = 65536;
  facts.shared_memory_free = Bytes{8ULL << 30};
  facts.clock_source = "tsc";
  facts.unix_time = 1'800'000'000;
  return facts;
}

Health health_of(const MachineFacts& facts, const std::string& what) {
  for (const Finding& finding : judge_machine(facts))
    if (finding.what == what) {
      EXPECT_EQ(finding.health == Health::ok, finding.advice.empty())
          << what << ": advice goes with a complaint";
      return finding.health;
    }
  ADD_FAILURE() << "nothing said about " << what;
  return Health::ok;
}

TEST(Diagnosis, AHealthyMachine_HasNothingToMend) {
  for (const Finding& finding : judge_machine(healthy())) {
    EXPECT_EQ(finding.health, Health::ok) << finding.what;
    EXPECT_EQ(finding.advice, "") << finding.what;
    EXPECT_FALSE(finding.seen.empty()) << finding.what;
  }
}

TEST(Diagnosis, EachBadFact_IsFound) {
  const auto with = [](auto change) {
    MachineFacts facts = healthy();
    change(facts);
    return facts;
  };
  EXPECT_EQ(health_of(with([](auto& f) { f.cpu_features = {"avx2"}; }), "cpu"), Health::warn);
  EXPECT_EQ(health_of(with([](auto& f) { f.cores_quota = 2.5; }), "cores"), Health::warn);
  EXPECT_EQ(health_of(with([](auto& f) { f.cores_quota = 8.0; }), "cores"), Health::ok);
  EXPECT_EQ(health_of(with([](auto& f) { f.memory_available = Bytes{100 << 20}; }), "memory"),
            Health::fail);
  EXPECT_EQ(health_of(with([](auto& f) { f.memory_available = Bytes{1 << 30}; }), "memory"),
            Health::warn);
  EXPECT_EQ(health_of(with([](auto& f) { f.memory_limit = Bytes{200 << 20}; }), "memory"),
            Health::fail);
  EXPECT_EQ(health_of(with([](auto& f) { f.huge_pages = "never"; }), "huge pages"), Health::warn);
  EXPECT_EQ(health_of(with([](auto& f) { f.open_files = 100; }), "open files"), Health::fail);
  EXPECT_EQ(health_of(with([](auto& f) { f.open_files = 1024; }), "open files"), Health::warn);
  EXPECT_EQ(
      health_of(with([](auto& f) { f.shared_memory_free = Bytes{1 << 20}; }), "shared memory"),
      Health::warn);
  EXPECT_EQ(health_of(with([](auto& f) { f.shared_memory_free.reset(); }), "shared memory"),
            Health::warn);
  EXPECT_EQ(health_of(with([](auto& f) { f.unix_time = 0; }), "clock"), Health::fail);
  EXPECT_EQ(health_of(with([](auto& f) { f.clock_source = "hpet"; }), "clock"), Health::warn);
}

TEST(Machine, KernelTexts) {
  EXPECT_EQ(parse_limit("max"), std::nullopt);
  EXPECT_EQ(parse_limit("1048576"), 1048576U);
  EXPECT_EQ(parse_limit(""), std::nullopt);
  EXPECT_EQ(parse_cpu_max("max 100000"), std::nullopt);
  EXPECT_EQ(parse_cpu_max("150000 100000"), 1.5);
  EXPECT_EQ(parse_cpu_max("1 0"), std::nullopt);
  EXPECT_EQ(chosen_word("always [madvise] never"), "madvise");
  EXPECT_EQ(chosen_word("none"), "");
}

TEST(Machine, ThisOne_CanBeRead) {
  const MachineFacts facts = read_machine();
  EXPECT_GE(facts.cores_allowed, 1U);
  EXPECT_GT(facts.memory_total.value, 0U);
  EXPECT_GT(facts.open_files, 0U);
  EXPECT_FALSE(facts.kernel.empty());
}

TEST(Table, ColumnsLineUp_AndControlCharactersAreHarmless) {
  EXPECT_EQ(print_table({"A", "LONG"}, {{"x", "y"}, {"\xC3\xA4\xC3\xA4\xC3\xA4", "z"}}),
            "A    LONG\nx    y\n\xC3\xA4\xC3\xA4\xC3\xA4  z\n");
  EXPECT_EQ(safe_for_terminal("a\x1b[2Jb\n\tc\x7f\xC2\x9b\xC3\xA4"), "a?[2Jb\n\tc???\xC3\xA4");
}

}  // namespace
}  // namespace infos::cli
