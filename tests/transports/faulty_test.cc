// SPDX-License-Identifier: Apache-2.0
// The faulty transport: without faults and with delays it passes the conformance suite; with faults
// every operation has one verdict, each fault does what its declaration says, and a seed repeats.
// Method: one operation per byte range, so that what landed where can be told afterwards.
#include "transports/faulty/faulty_transport.h"

#include <cstring>

#include "tests/transports/conformance.h"
#include "transports/shm/shm_transport.h"
#include "transports/tcp/tcp_transport.h"

namespace infos::test {
namespace {

Result<std::unique_ptr<Transport>> make_faulty(const FaultyOptions& options, TransportKind kind) {
  auto inner = kind == TransportKind::tcp ? make_tcp_transport({}) : make_shm_transport({});
  if (!inner.ok()) return inner.error();
  return std::unique_ptr<Transport>(
      std::make_unique<FaultyTransport>(std::move(inner).value(), options));
}

FaultyOptions with_delays() {
  FaultyOptions options;
  options.delay = 0.3;
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    Backend, TransportConformance,
    ::testing::Values(
        Backend{"no_fault_over_shm", [] { return make_faulty({}, TransportKind::shm); }},
        Backend{"delays_over_tcp", [] { return make_faulty(with_delays(), TransportKind::tcp); }}),
    [](const auto& info) { return info.param.name; });

constexpr std::uint64_t kSlot = 1024, kOps = 400;

struct FaultyRun {
  std::vector<Verdict> verdicts;  ///< by operation
  std::vector<int> calls;
  FaultCounts counts;
  std::size_t whole = 0, wrong = 0, untouched = 0;  ///< slots by what they hold after a fence
  std::size_t ok_but_wrong = 0;
};

FaultyRun run_with(const FaultyOptions& options) {
  auto inner = make_shm_transport({});
  auto faulty = std::make_unique<FaultyTransport>(std::move(inner).value(), options);
  FaultyTransport& a = *faulty;
  Pair pair = make_pair(std::move(faulty), make_shm_transport({}).value(), kSlot * kOps);
  fill(pair.of_b.bytes, options.seed);
  FaultyRun run;
  run.verdicts.resize(kOps, Verdict::ok);
  run.calls.resize(kOps);
  std::size_t ended = 0;
  for (std::uint64_t i = 0; i < kOps; ++i) {
    const Piece pieces[] = {{i * kSlot, i * kSlot, kSlot / 2},
                            {i * kSlot + kSlot / 2, i * kSlot + kSlot / 2, kSlot / 2}};
    a.get(pair.readable, pair.of_a.region, pieces, [&run, &ended, i](OpId, Verdict verdict) {
      run.verdicts[i] = verdict;
      ++run.calls[i];
      ++ended;
    });
  }
  EXPECT_TRUE(pair.pump().until([&] { return ended == kOps; }));
  bool fenced = false;
  a.fence(pair.b_of_a, [&] { fenced = true; });
  EXPECT_TRUE(pair.pump().until([&] { return fenced; }));
  const std::vector<std::byte> at_fence(pair.of_a.bytes.begin(), pair.of_a.bytes.end());
  pair.pump().a_while();
  EXPECT_TRUE(same(pair.of_a.bytes, at_fence)) << "bytes landed after the fence";
  for (std::uint64_t i = 0; i < kOps; ++i) {
    const auto here = pair.of_a.bytes.subspan(i * kSlot, kSlot);
    const bool whole = same(here, pair.of_b.bytes.subspan(i * kSlot, kSlot));
    const bool untouched = all_are(here, std::byte{0});
    ++(whole ? run.whole : untouched ? run.untouched : run.wrong);
    if (run.verdicts[i] == Verdict::ok && !whole) ++run.ok_but_wrong;
  }
  run.counts = a.counts();
  EXPECT_EQ(a.stats().ops_open, 0u);
  return run;
}

TEST(Faulty, EachFaultDoesWhatItsDeclarationSays) {
  FaultyOptions fail, drop, truncate, corrupt;
  fail.fail = 0.25;
  drop.drop = 0.25;
  truncate.truncate = 0.25;
  corrupt.corrupt = 0.25;
  const FaultyRun failed = run_with(fail), dropped = run_with(drop), cut = run_with(truncate),
                  turned = run_with(corrupt);
  const auto not_ok = [](const FaultyRun& r) {
    return std::count(r.verdicts.begin(), r.verdicts.end(), Verdict::failed);
  };
  EXPECT_GT(failed.counts.fail, 50u);
  EXPECT_EQ(failed.untouched, failed.counts.fail);
  EXPECT_EQ(not_ok(failed), static_cast<std::ptrdiff_t>(failed.counts.fail));
  EXPECT_GT(dropped.counts.drop, 50u);
  EXPECT_EQ(dropped.untouched, dropped.counts.drop);
  EXPECT_EQ(not_ok(dropped), static_cast<std::ptrdiff_t>(dropped.counts.drop));
  EXPECT_GT(cut.counts.truncate, 50u);
  EXPECT_EQ(cut.wrong, cut.counts.truncate);
  EXPECT_EQ(not_ok(cut), static_cast<std::ptrdiff_t>(cut.counts.truncate));
  EXPECT_GT(turned.counts.corrupt, 50u);
  EXPECT_EQ(turned.ok_but_wrong, turned.counts.corrupt);
  EXPECT_EQ(not_ok(turned), 0);
}

TEST(Faulty, LateBytes_LandAfterTheVerdictButNotAfterTheFence) {
  FaultyOptions options;
  options.late = 0.5;
  const FaultyRun late = run_with(options);
  EXPECT_GT(late.counts.late, 100u);
  EXPECT_EQ(std::count(late.verdicts.begin(), late.verdicts.end(), Verdict::failed),
            static_cast<std::ptrdiff_t>(late.counts.late));
  EXPECT_EQ(late.ok_but_wrong, 0u);
}

TEST(Faulty, AllFaultsTogether_GiveOneVerdictEachAndTheSeedRepeats) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    FaultyOptions options{seed, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 8};
    const FaultyRun first = run_with(options), second = run_with(options);
    for (const int calls : first.calls) ASSERT_EQ(calls, 1) << "seed " << seed;
    ASSERT_EQ(first.verdicts, second.verdicts) << "seed " << seed;
    ASSERT_EQ(first.ok_but_wrong, first.counts.corrupt) << "seed " << seed;
    ASSERT_EQ(second.counts.late, first.counts.late) << "seed " << seed;
  }
}

TEST(Faulty, Held_NothingBeginsAndAFenceForgetsIt) {
  auto faulty = std::make_unique<FaultyTransport>(make_tcp_transport({}).value(), FaultyOptions{});
  FaultyTransport& a = *faulty;
  Pair pair = make_pair(std::move(faulty), make_tcp_transport({}).value(), 4096);
  fill(pair.of_b.bytes, 1);
  a.hold();
  Verdicts verdicts;
  const Piece all{0, 0, 4096};
  a.get(pair.readable, pair.of_a.region, {&all, 1}, verdicts.done());
  pair.pump().a_while();
  EXPECT_EQ(verdicts.ended(), 0u);
  bool fenced = false;
  a.fence(pair.b_of_a, [&] { fenced = true; });
  ASSERT_TRUE(pair.pump().until([&] { return fenced; }));
  EXPECT_EQ(verdicts.of(Verdict::cancelled), 1u) << verdicts.text();
  a.release();
  pair.pump().a_while();
  EXPECT_TRUE(all_are(pair.of_a.bytes, std::byte{0}));
}

}  // namespace
}  // namespace infos::test
