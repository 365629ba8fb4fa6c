// SPDX-License-Identifier: Apache-2.0
// Goal: a running step can be cancelled from another thread and the engine works on; a warm step
// allocates next to nothing; sampled answers do not depend on the batch. Method: a thread that
// cancels until it is told to stop; a counting operator new in this program; the same seeded
// requests alone and together.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "tests/engine/engine_driver.h"
#include "tests/engine/memory_checkpoint.h"

namespace {
std::atomic<std::uint64_t> g_allocations{0};
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  ++g_allocations;
  if (void* memory = std::malloc(size)) return memory;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace infos::test {
namespace {

TEST(EngineStep, CancelFromAnotherThread_EndsTheStepAndNotTheEngine) {
  const auto checkpoint = tiny_model("llama3", DType::f32, 1);
  for (const std::string& backend : backends()) {
    SCOPED_TRACE(backend);
    auto engine = Engine::open(*checkpoint, small_options(backend));
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    const std::vector<TokenId> tokens(60, 5);
    const auto blocks = scattered_blocks(0, 15);
    const EngineSequence sequence{{1}, tokens, 0, blocks, true, 0};
    const auto want = (*engine)->logits({&sequence, 1});
    ASSERT_TRUE(want.ok());
    std::atomic<bool> stop{false};
    std::thread other([&] {
      while (!stop) (*engine)->cancel();
    });
    bool cancelled = false;
    for (int i = 0; i < 20000 && !cancelled; ++i) {
      const auto result = (*engine)->logits({&sequence, 1});
      cancelled = !result.ok() && result.error().code == ErrorCode::cancelled;
      if (!result.ok() && !cancelled) ADD_FAILURE() << result.error().message;
    }
    stop = true;
    other.join();
    EXPECT_TRUE(cancelled);
    const auto again = (*engine)->logits({&sequence, 1});
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(*again, *want);
  }
}

TEST(EngineStep, WarmDecodeStep_AllocatesOnlyItsResult) {
  if (!find_plugin("cpu").ok()) GTEST_SKIP() << "the CPU plugin is not built here";
  const auto checkpoint = tiny_model("llama3", DType::q8_0, 1);
  auto engine = Engine::open(*checkpoint, small_options("cpu"));
  ASSERT_TRUE(engine.ok());
  SamplingParams params;
  params.temperature = 0;
  std::vector<std::vector<BlockId>> blocks;
  for (std::uint32_t s = 0; s < 4; ++s) {
    (*engine)->open_sequence({s + 1}, {}, 0, params);
    blocks.push_back(scattered_blocks(s * 16, 16));
  }
  const std::vector<TokenId> token = {3};
  for (std::uint32_t position = 0; position < 40; ++position) {
    std::vector<EngineSequence> step;
    for (std::uint32_t s = 0; s < 4; ++s)
      step.push_back({{s + 1}, token, position, blocks[s], true, position});
    const std::uint64_t before = g_allocations;
    ASSERT_TRUE((*engine)->step(step).ok());
    if (position > 5) {
      EXPECT_LE(g_allocations - before, 1U) << "position " << position;
    }
  }
}

TEST(EngineStep, SeededSampling_GivesTheSameAnswerAloneAndInCompany) {
  const auto checkpoint = tiny_model("qwen2", DType::q8_0, 3);
  for (const std::string& backend : backends()) {
    SCOPED_TRACE(backend);
    auto engine = Engine::open(*checkpoint, small_options(backend));
    ASSERT_TRUE(engine.ok());
    constexpr std::uint32_t kSequences = 5, kTokens = 24;
    const auto run = [&](std::uint32_t first, std::uint32_t end) {
      std::vector<std::vector<TokenId>> answers(kSequences), rows(kSequences);
      std::vector<std::vector<BlockId>> blocks;
      for (std::uint32_t s = 0; s < kSequences; ++s) {
        SamplingParams params;
        params.seed = 1000 + s;
        params.temperature = 0.7F + 0.2F * static_cast<float>(s);
        params.top_p = s % 2 == 0 ? 0.8F : 1.0F;
        params.frequency_penalty = s == 3 ? 1.0F : 0.0F;
        rows[s] = {static_cast<TokenId>(s), static_cast<TokenId>(2 * s + 1)};
        (*engine)->open_sequence({s + 1}, rows[s], 2, params);
        blocks.push_back(scattered_blocks(s * 8, 8));
      }
      for (std::uint32_t i = 0; i < kTokens; ++i) {
        std::vector<EngineSequence> step;
        for (std::uint32_t s = first; s < end; ++s)
          step.push_back({{s + 1}, rows[s], i == 0 ? 0 : i + 1, blocks[s], true, i});
        const auto sampled = (*engine)->step(step);
        EXPECT_TRUE(sampled.ok()) << sampled.error().message;
        if (!sampled.ok()) return answers;
        for (std::uint32_t s = first; s < end; ++s) {
          rows[s] = {(*sampled)[s - first].token};
          answers[s].push_back(rows[s][0]);
        }
      }
      return answers;
    };
    const auto together = run(0, kSequences);
    for (std::uint32_t s = 0; s < kSequences; ++s)
      EXPECT_EQ(run(s, s + 1)[s], together[s]) << "sequence " << s;
  }
}

TEST(EngineStep, KvPool_LiesInTheGivenMemoryAndLayersAreHeardInOrder) {
  const auto checkpoint = tiny_model("llama3", DType::f32, 1);
  for (const std::string& backend : backends()) {
    SCOPED_TRACE(backend);
    std::vector<std::byte> memory;
    std::byte* given = nullptr;
    int taken_back = 0;
    EngineOptions options = small_options(backend);
    options.kv_allocator.allocate = [&](std::uint32_t rank, Bytes bytes) -> void* {
      EXPECT_EQ(rank, 0U);
      memory.assign(bytes.value + 4096, std::byte{0});
      given = memory.data() + (4096 - reinterpret_cast<std::uintptr_t>(memory.data()) % 4096);
      return given;
    };
    options.kv_allocator.release = [&](std::uint32_t, void* back, Bytes bytes) {
      taken_back += back == given && bytes.value + 4096 == memory.size() ? 1 : 0;
    };
    auto engine = Engine::open(*checkpoint, options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    ASSERT_EQ((*engine)->kv_ranks().size(), 1U);
    const KvRank kv = (*engine)->kv_ranks()[0];
    EXPECT_EQ(kv.base, given);
    EXPECT_EQ(kv.bytes + 4096, memory.size());
    EXPECT_EQ(kv.blocks, (*engine)->kv_blocks());
    EXPECT_EQ(kv.heads, checkpoint->config().kv_heads);
    std::vector<std::uint32_t> layers;
    const std::vector<TokenId> tokens = {1, 2, 3};
    const std::vector<BlockId> blocks = {{2}};
    (*engine)->on_layer_done([&](std::uint32_t layer) {
      layers.push_back(layer);
      const auto* row = kv.base + 2 * kv.s_block + layer * kv.s_layer + 2 * kv.s_token;
      EXPECT_FALSE(std::all_of(row, row + kv.head_dim * sizeof(float),
                               [](std::byte b) { return b == std::byte{0}; }));
    });
    const EngineSequence sequence{{1}, tokens, 0, blocks, true, 0};
    ASSERT_TRUE((*engine)->logits({&sequence, 1}).ok());
    EXPECT_EQ(layers, (std::vector<std::uint32_t>{0, 1}));
    engine->reset();
    EXPECT_EQ(taken_back, 1);
  }
}

}  // namespace
}  // namespace infos::test
