// SPDX-License-Identifier: Apache-2.0
// Ranks that compute together: sums over ranks, rows of logits that lie apart, and that no rank
// waits for one that has failed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "devices/host/collective.h"
#include "devices/host/conformance/checks.h"
#include "devices/host/conformance/tiny_model.h"

namespace infos::conformance {

namespace {

constexpr std::uint32_t kRanks = 3, kVocab = 11, kWidth = 83, kLayers = 3;
constexpr std::uint32_t kStride = kWidth + 5;  // of the rows of logits
constexpr float kUntouched = -7.0F;

/// x = table[token]; then, once a layer, y = sum of x over ranks, x = y + y; the logits are x. Each
/// sum's input is written again before the next sum, which a backend must not do too early.
PhaseGraph sums_graph() {
  PhaseGraph g;
  const auto table = g.add_tensor(INFOS_ROLE_WEIGHT, "token_embd.weight", {kVocab, kWidth});
  const auto x = g.add_tensor(INFOS_ROLE_ACTIVATION, "x", {INFOS_DIM_TOKENS, kWidth});
  const auto y = g.add_tensor(INFOS_ROLE_ACTIVATION, "y", {INFOS_DIM_TOKENS, kWidth});
  const auto out = g.add_tensor(INFOS_ROLE_ACTIVATION, "logits", {INFOS_DIM_ROWS, kWidth});
  g.add_op(INFOS_OP_EMBED, {table}, x);
  g.begin_layers(kLayers);
  g.add_op(INFOS_OP_ALL_REDUCE, {x}, y);
  g.add_op(INFOS_OP_ADD, {y, y}, x);
  g.end_layers();
  g.add_op(INFOS_OP_SELECT_ROWS, {x}, out);
  return g;
}

float table_value(std::uint32_t rank, std::uint32_t token, std::uint32_t i) {
  return 1.0F + static_cast<float>((rank * 37 + token * 11 + i * 3) % 101) / 7.0F;
}

struct SumRank {
  std::vector<float> table;
  Device device;
  Program program;
  KvPool kv;
  Batch batch;

  static infos_code source(void* context, std::uint32_t, std::uint32_t, infos_weight* out) {
    const auto& table = static_cast<SumRank*>(context)->table;
    *out = {sizeof *out, INFOS_F32, table.data(), table.size() * sizeof(float)};
    return INFOS_OK;
  }

  Status open(const Plugin& plugin, const std::string& options, std::uint32_t rank,
              const infos_group* group) {
    for (std::uint32_t token = 0; token < kVocab; ++token)
      for (std::uint32_t i = 0; i < kWidth; ++i) table.push_back(table_value(rank, token, i));
    DeviceConfig config;
    config.threads = 1 + rank % 2;
    config.options = options;
    config.group = group;
    device = INFOS_TRY(Device::open(plugin, config));
    const PhaseGraph graph = sums_graph();
    const Artifact artifact = INFOS_TRY(device.compile(graph.view(), kBucket));
    program = INFOS_TRY(device.load(artifact, &SumRank::source, this));
    kv = INFOS_TRY(device.create_kv(kv_config(tiny_config("llama", INFOS_F32))));
    return {};
  }

  Status run(std::uint32_t tokens, std::uint64_t deadline_ns) {
    batch = make_batch({{0, 0, random_tokens(tokens, kVocab, 5)}}, kStride);
    std::fill(batch.logits.begin(), batch.logits.end(), kUntouched);
    infos_batch view = batch.view();
    view.logits_stride = kStride;
    view.deadline_ns = deadline_ns;
    return program.execute(kv, view);
  }
};

/// Empty when every row of a rank's logits is right and nothing lies between them.
std::string wrong_sums(const SumRank& rank) {
  for (std::size_t row = 0; row < rank.batch.tokens.size(); ++row)
    for (std::uint32_t i = 0; i < kStride; ++i) {
      float want = kUntouched;
      if (i < kWidth) {
        want = 0;
        const auto token = static_cast<std::uint32_t>(rank.batch.tokens[row]);
        for (std::uint32_t r = 0; r < kRanks; ++r) want += table_value(r, token, i);
        want *= 2 * std::pow(2.0F * kRanks, static_cast<float>(kLayers - 1));
      }
      const float got = rank.batch.logits[row * kStride + i];
      if (!(std::fabs(got - want) <= 1e-5F * std::fabs(want)))
        return fmt::format("row {} value {} is {}: want {}", row, i, got, want);
    }
  return {};
}

/// Runs all ranks at once, `late` with a deadline long ago, as a host does: a rank that fails
/// breaks the group. What each says.
std::vector<Status> run_ranks(std::vector<SumRank>& ranks, Collective& collective,
                              std::uint32_t tokens, std::uint32_t late) {
  std::vector<Status> said(kRanks);
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < kRanks; ++r)
    threads.emplace_back([&, r] {
      said[r] = ranks[r].run(tokens, r == late ? 1 : 0);
      if (!said[r].ok()) collective.fail();
    });
  for (std::thread& thread : threads) thread.join();
  return said;
}

Verdict group_sums(const Plugin& plugin, const std::string& options) {
  const infos_device_info info = INFOS_CHECK_OK(Device::describe(plugin, 0));
  if (((info.op_mask >> INFOS_OP_ALL_REDUCE) & 1) == 0) return skip("the device has no ALL_REDUCE");
  if (info.device_class != INFOS_CLASS_CPU && INFOS_CHECK_OK(Device::count(plugin)) < kRanks)
    return skip(fmt::format("fewer than {} devices", kRanks));
  SumRank alone;
  if (alone.open(plugin, options, 0, nullptr).ok())
    return fail("loads ALL_REDUCE on a device that is no rank of a group");
  Collective collective(kRanks);
  std::vector<SumRank> ranks(kRanks);
  for (std::uint32_t r = 0; r < kRanks; ++r)
    if (const Status s = ranks[r].open(plugin, options, r, collective.group(r)); !s.ok())
      return fail(s.error().message);
  for (const std::uint32_t tokens : {1U, 29U, 2U}) {
    const auto said = run_ranks(ranks, collective, tokens, kRanks);
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      if (!said[r].ok()) return fail(fmt::format("rank {}: {}", r, said[r].error().message));
      if (const std::string why = wrong_sums(ranks[r]); !why.empty())
        return fail(fmt::format("rank {} of a batch of {}: {}", r, tokens, why));
      if (ranks[r].batch.logits != ranks[0].batch.logits)
        return fail(fmt::format("rank {} has other bits than rank 0", r));
    }
    const auto failed = run_ranks(ranks, collective, tokens, 1);
    if (failed[0].ok() || failed[2].ok()) return fail("a rank computes without one that failed");
    if (failed[1].ok() || failed[1].error().code != ErrorCode::deadline_exceeded)
      return fail("a rank whose deadline has passed does not say so");
    collective.reset();
  }
  return pass();
}

}  // namespace

std::vector<Check> group_checks() {
  return {{"ranks sum in order, and none waits for one that failed", group_sums}};
}

}  // namespace infos::conformance
