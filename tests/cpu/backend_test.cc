// SPDX-License-Identifier: Apache-2.0
// Goal: through the device ABI, a row's logits have the same bits whatever else is in the batch,
// however a prompt is cut, with any number of threads and any instruction set; and memory bounds,
// options, deadlines are honoured. Method: the tiny random models of the conformance suite, whole
// prompts against random mixed batches.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "devices/cpu/device.h"
#include "devices/host/conformance/tiny_model.h"
#include "topology/base/rng.h"

namespace infos {
namespace {

using conformance::Rows;
using conformance::TinyModel;

const Plugin& plugin() {
  static const auto opened = open_query(infos_plugin_query, "(linked)");
  EXPECT_TRUE(opened.ok());
  return **opened;
}

struct Prompt {
  std::vector<std::int32_t> tokens;
  std::vector<float> logits;  ///< [tokens, vocab], from one whole prefill alone
};

/// Feeds all prompts in random pieces, several sequences at once, and compares every row's logits.
void expect_same_bits(TinyModel& model, const std::vector<Prompt>& prompts, std::uint64_t seed,
                      const std::string& what) {
  Rng rng(seed);
  std::vector<std::size_t> done(prompts.size());
  const std::size_t vocab = model.config.vocab;
  for (;;) {
    std::vector<Rows> batch;
    for (std::uint32_t s = 0; s < prompts.size(); ++s) {
      const std::size_t left = prompts[s].tokens.size() - done[s];
      if (left == 0 || rng.chance(0.3)) continue;
      const std::size_t n = std::min<std::size_t>(left, 1 + rng.below(rng.chance(0.5) ? 1 : 9));
      const auto first = prompts[s].tokens.begin() + static_cast<std::ptrdiff_t>(done[s]);
      batch.push_back({s,
                       static_cast<std::uint32_t>(done[s]),
                       {first, first + static_cast<std::ptrdiff_t>(n)}});
    }
    if (batch.empty()) {
      bool all = true;
      for (std::size_t s = 0; s < prompts.size(); ++s) all &= done[s] == prompts[s].tokens.size();
      if (all) return;
      continue;
    }
    const auto logits = model.run(batch);
    ASSERT_TRUE(logits.ok()) << logits.error().message;
    const float* row = logits->data();
    for (const Rows& rows : batch) {
      for (std::size_t i = 0; i < rows.tokens.size(); ++i, row += vocab) {
        const float* want = prompts[rows.sequence].logits.data() + (rows.start + i) * vocab;
        ASSERT_EQ(std::memcmp(row, want, vocab * sizeof(float)), 0)
            << what << ", seed " << seed << ", sequence " << rows.sequence << " position "
            << rows.start + i;
      }
      done[rows.sequence] += rows.tokens.size();
    }
  }
}

class Invariance : public testing::TestWithParam<std::uint32_t> {};

TEST_P(Invariance, RowsInAnyBatchThreadsAndIsa_HaveTheirOwnBits) {
  const std::uint32_t dtype = GetParam();
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3", "mixtral"}) {
    const ModelConfig config = conformance::tiny_config(family, dtype);
    std::vector<Prompt> prompts;
    constexpr std::pair<cpu::Isa, std::uint32_t> kCases[] = {
        {cpu::Isa::generic, 2}, {cpu::Isa::avx2, 1},   {cpu::Isa::avx2, 3},
        {cpu::Isa::avxvnni, 1}, {cpu::Isa::avx512, 1}, {cpu::Isa::avx512, 5}};
    for (const auto& [isa, threads] : kCases) {
      if (!cpu::isa_supported(isa)) continue;
      const std::string options = std::string("isa=") + cpu::to_string(isa);
      auto model = TinyModel::load(plugin(), options, config, dtype, threads);
      ASSERT_TRUE(model.ok()) << model.error().message;
      if (prompts.empty()) {
        for (std::uint32_t s = 0; s < conformance::kSequences; ++s) {
          prompts.push_back({conformance::random_tokens(20 + 3 * s, config.vocab, 7 + s), {}});
          auto alone = model->run({{s, 0, prompts[s].tokens}});
          ASSERT_TRUE(alone.ok()) << alone.error().message;
          prompts[s].logits = std::move(*alone);
        }
      }
      expect_same_bits(
          *model, prompts, 11 + static_cast<std::uint64_t>(isa),
          std::string(family) + " " + options + ", threads " + std::to_string(threads));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Dtypes, Invariance,
                         testing::Values(INFOS_F32, INFOS_F16, INFOS_BF16, INFOS_Q8_0, INFOS_Q4_0,
                                         INFOS_Q4_K, INFOS_Q6_K));

TEST(CpuDevice, BadOptions_AreRefusedWithTheAllowedOnes) {
  for (const char* options : {"isa=sse9", "isa", "speed=11", "spin_us=abc", "spin_us=99999999"}) {
    const auto device = Device::open(plugin(), {.options = options});
    ASSERT_FALSE(device.ok()) << options;
    const std::string& text = device.error().message;
    EXPECT_TRUE(text.find("allowed") != std::string::npos ||
                text.find("expected") != std::string::npos)
        << text;
  }
}

TEST(CpuDevice, MemoryBound_CoversPoolsAndIsGivenBack) {
  auto device = Device::open(plugin(), {.threads = 1, .memory_bytes = 8U << 20U});
  ASSERT_TRUE(device.ok());
  infos_kv_config kv = conformance::kv_config(conformance::tiny_config("llama", INFOS_F32));
  kv.n_blocks = 1U << 20U;
  const auto refused = device->create_kv(kv);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted);
  kv.n_blocks = 16;
  {
    const auto pool = device->create_kv(kv);
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    EXPECT_GT(device->health()->memory_used_bytes, 0U);
  }
  EXPECT_EQ(device->health()->memory_used_bytes, 0U);
}

TEST(CpuDevice, Description_HasFiguresOfThisMachine) {
  const auto info = Device::describe(plugin(), 0);
  ASSERT_TRUE(info.ok());
  EXPECT_GT(info->memory_bytes, 0U);
  EXPECT_GT(info->cores, 0U);
  EXPECT_GT(info->memory_bytes_per_second, 0.0);
  EXPECT_GT(info->peak_int8_ops, 0.0);
  EXPECT_EQ(info->batch_invariant, 1U);
}

}  // namespace
}  // namespace infos
