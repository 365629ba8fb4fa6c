// SPDX-License-Identifier: Apache-2.0
// Goal: ranks together compute what one computes; each row's bits depend on nothing but the row; a
// rank that fails or a cancel ends the step on all; what cannot be split is refused. Method: the
// f64 reference split into ranks against itself whole; the CPU plugin split against the reference
// whole and, bit by bit, against itself in other batches; a trained model's text; a backend one
// rank of which fails.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "devices/engine/reference/backend.h"
#include "devices/engine/reference/dequantise.h"
#include "tests/engine/engine_driver.h"
#include "tests/engine/memory_checkpoint.h"
#include "tests/support/data.h"

namespace infos::test {
namespace {

EngineOptions parallel_options(const std::string& backend, std::uint32_t ranks) {
  EngineOptions options = small_options(backend);
  options.tensor_parallel = ranks;
  options.threads = 2 * ranks;
  options.kv_dtype = DType::f32;
  return options;
}

std::unique_ptr<Engine> open_engine(const Checkpoint& checkpoint, const EngineOptions& options) {
  auto engine = Engine::open(checkpoint, options);
  EXPECT_TRUE(engine.ok()) << engine.error().message;
  return engine.ok() ? std::move(*engine) : nullptr;
}

std::vector<TokenId> prompt_of(std::size_t n, std::uint32_t vocab, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<TokenId> tokens;
  while (tokens.size() < n) tokens.push_back(static_cast<TokenId>(rng.below(vocab)));
  return tokens;
}

/// Logits after `prompt`, computed in chunks of `chunk` tokens, beside a sequence of `company`
/// tokens that is computed again in each step.
std::vector<float> logits_after(Engine& engine, const std::vector<TokenId>& prompt,
                                std::size_t chunk, std::size_t company = 0) {
  const auto blocks = scattered_blocks(0, 8), other_blocks = scattered_blocks(8, 8);
  const std::vector<TokenId> others(company, 3);
  std::vector<float> logits;
  for (std::size_t at = 0; at < prompt.size(); at += chunk) {
    const std::size_t n = std::min(chunk, prompt.size() - at);
    std::vector<EngineSequence> step;
    if (company != 0) step.push_back({{2}, others, 0, other_blocks, false, 0});
    step.push_back(
        {{1}, std::span(prompt).subspan(at, n), static_cast<std::uint32_t>(at), blocks, true, 0});
    auto result = engine.logits(step);
    EXPECT_TRUE(result.ok()) << result.error().message;
    if (!result.ok()) return {};
    logits = std::move(*result);
  }
  return logits;
}

double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size()) return INFINITY;
  double error = 0, size = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2);
    size += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(error / size);
}

TEST(TensorParallel, ReferenceInRanks_EqualsTheReferenceWhole) {
  std::vector<const char*> names(std::begin(kTinyModels), std::end(kTinyModels));
  names.insert(names.end(), std::begin(kWideModels), std::end(kWideModels));
  for (const char* name : names) {
    const auto checkpoint = tiny_model(name, DType::f32, 21);
    const auto prompt = prompt_of(13, checkpoint->config().vocab, 4);
    const auto whole = open_engine(*checkpoint, parallel_options("reference", 1));
    ASSERT_NE(whole, nullptr);
    const auto want = logits_after(*whole, prompt, 6);
    for (const std::uint32_t ranks : {2U, 4U}) {
      if (checkpoint->config().kv_heads % ranks != 0) continue;
      SCOPED_TRACE(std::string(name) + " in " + std::to_string(ranks));
      const auto split = open_engine(*checkpoint, parallel_options("reference", ranks));
      ASSERT_NE(split, nullptr);
      // Only the f32 rounding of KV and logits differs; a wrong head or row is off by a tenth.
      EXPECT_LT(relative_error(logits_after(*split, prompt, 6), want), 1e-6);
    }
  }
}

class CpuRanks : public testing::TestWithParam<DType> {};

TEST_P(CpuRanks, Logits_AreTheReferencesAndTheSameBitsInAnyBatch) {
  if (!find_plugin("cpu").ok()) GTEST_SKIP() << "the CPU plugin is not built here";
  const DType dtype = GetParam();
  const bool big_blocks = reference::block_of(static_cast<std::uint32_t>(dtype)).elements > 32;
  for (const char* name : kWideModels) {
    const auto checkpoint = tiny_model(name, dtype, 22);
    const auto prompt = prompt_of(19, checkpoint->config().vocab, 5);
    const auto whole = open_engine(*checkpoint, parallel_options("reference", 1));
    ASSERT_NE(whole, nullptr);
    const auto want = logits_after(*whole, prompt, prompt.size());
    for (const std::uint32_t ranks : {2U, 4U}) {
      if (big_blocks && ranks == 4) continue;
      SCOPED_TRACE(std::string(name) + " in " + std::to_string(ranks));
      const auto split = open_engine(*checkpoint, parallel_options("cpu", ranks));
      ASSERT_NE(split, nullptr);
      const auto got = logits_after(*split, prompt, prompt.size());
      const double tolerance = dtype == DType::f32 ? 1e-4 : dtype == DType::f16 ? 1e-2 : 3e-2;
      EXPECT_LT(relative_error(got, want), tolerance);
      EXPECT_EQ(logits_after(*split, prompt, 1), got);
      EXPECT_EQ(logits_after(*split, prompt, 7, 11), got);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Dtypes, CpuRanks,
                         testing::Values(DType::f32, DType::f16, DType::q8_0, DType::q4_0,
                                         DType::q4_k, DType::q6_k),
                         [](const auto& info) {
                           return std::string(
                               reference::dtype_name(static_cast<std::uint32_t>(info.param)));
                         });

/// Greedy texts of a trained model in 1 rank and in several, a thread each.
void expect_same_text(const Checkpoint& checkpoint, std::vector<std::uint32_t> all_ranks,
                      const std::vector<TokenId>& prompt) {
  std::vector<TokenId> want;
  all_ranks.insert(all_ranks.begin(), 1);
  for (const std::uint32_t ranks : all_ranks) {
    SCOPED_TRACE(ranks);
    EngineOptions options = parallel_options("cpu", ranks);
    options.threads = ranks;
    const auto engine = open_engine(checkpoint, options);
    ASSERT_NE(engine, nullptr);
    const auto text = generate(*engine, prompt, 120);
    if (ranks == 1) want = text;
    EXPECT_EQ(text, want);
  }
}

TEST(TensorParallel, TrainedModelsInRanks_TellTheSameStory) {
  INFOS_NEEDS_DATA("models/stories260K.bin");
  if (!find_plugin("cpu").ok()) GTEST_SKIP() << "the CPU plugin is not built here";
  const auto stories = read_llama2c(data_path("models/stories260K.bin"));
  ASSERT_NE(stories, nullptr);
  expect_same_text(*stories, {2, 4}, {1});
  const auto demo = open_checkpoint(INFOS_SOURCE_DIR "/configs/demo/infos-demo.gguf");
  ASSERT_TRUE(demo.ok()) << demo.error().message;
  for (const TokenId token : {40, 300}) expect_same_text(**demo, {2}, {token, 12, 77});
}

TEST(TensorParallel, Pools_ShareTheHeadsAndLayersAreHeardOnceFromAllRanks) {
  const auto checkpoint = tiny_model("wide", DType::f32, 23);
  for (const std::string& backend : backends()) {
    SCOPED_TRACE(backend);
    std::vector<std::vector<std::byte>> memory(4);
    EngineOptions options = parallel_options(backend, 4);
    options.kv_allocator.allocate = [&](std::uint32_t rank, Bytes bytes) -> void* {
      memory[rank].assign(bytes.value + 4096, std::byte{0});
      return memory[rank].data() +
             (4096 - reinterpret_cast<std::uintptr_t>(memory[rank].data()) % 4096);
    };
    options.kv_allocator.release = [&](std::uint32_t rank, void*, Bytes) { memory[rank].clear(); };
    auto engine = open_engine(*checkpoint, options);
    const auto alone = open_engine(*checkpoint, parallel_options(backend, 1));
    ASSERT_TRUE(engine != nullptr && alone != nullptr);
    ASSERT_EQ(engine->kv_ranks().size(), 4U);
    const KvRank& whole = alone->kv_ranks()[0];
    std::vector<std::uint32_t> layers;
    engine->on_layer_done([&](std::uint32_t layer) { layers.push_back(layer); });
    const auto prompt = prompt_of(5, checkpoint->config().vocab, 6);
    ASSERT_FALSE(logits_after(*engine, prompt, 5).empty());
    ASSERT_FALSE(logits_after(*alone, prompt, 5).empty());
    EXPECT_EQ(layers, (std::vector<std::uint32_t>{0, 1}));
    const std::uint32_t block = scattered_blocks(0, 8)[0].value;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      const KvRank& kv = engine->kv_ranks()[rank];
      EXPECT_EQ(kv.head_begin, rank);
      ASSERT_EQ(kv.heads, 1U);
      // Layer 0 comes before any sum over ranks: the same bits as in the whole pool.
      const auto* mine = kv.base + block * kv.s_block;
      const auto* theirs = whole.base + block * whole.s_block + rank * whole.s_head;
      EXPECT_EQ(std::memcmp(mine, theirs, kv.head_dim * sizeof(float)), 0) << rank;
    }
    engine.reset();
    for (const auto& pool : memory) EXPECT_TRUE(pool.empty());
  }
}

TEST(TensorParallel, CancelFromAnotherThread_EndsTheStepOnAllRanksAndNotTheEngine) {
  const auto checkpoint = tiny_model("wide", DType::f32, 24);
  const auto prompt = prompt_of(30, checkpoint->config().vocab, 7);
  const auto blocks = scattered_blocks(0, 8);
  const EngineSequence sequence{{1}, prompt, 0, blocks, true, 0};
  for (const std::string& backend : backends()) {
    SCOPED_TRACE(backend);
    const auto engine = open_engine(*checkpoint, parallel_options(backend, 2));
    ASSERT_NE(engine, nullptr);
    const auto want = logits_after(*engine, prompt, 30);
    std::atomic<bool> stop{false};
    std::thread other([&] {
      while (!stop) engine->cancel();
    });
    int cancelled = 0;
    for (int i = 0; i < 20000 && cancelled < 20; ++i) {
      const auto result = engine->logits({&sequence, 1});
      if (result.ok()) continue;
      EXPECT_EQ(result.error().code, ErrorCode::cancelled) << result.error().message;
      ++cancelled;
    }
    stop = true;
    other.join();
    EXPECT_EQ(cancelled, 20);
    EXPECT_EQ(logits_after(*engine, prompt, 30), want);
  }
}

// A backend whose last rank can be told to fail.
infos_plugin_api g_sound;
std::atomic<bool> g_fails{false};
std::atomic<infos_program*> g_last{nullptr};
std::atomic<infos_device*> g_last_device{nullptr};

infos_code open_and_note(const infos_device_config* c, infos_device** out, infos_error* e) {
  const infos_code code = g_sound.open(c, out, e);
  if (code == INFOS_OK && c->group != nullptr && c->group->rank + 1 == c->group->ranks)
    g_last_device = *out;
  return code;
}
infos_code load_and_note(infos_device* d, const infos_artifact* a, infos_weight_source s, void* c,
                         infos_program** out, infos_error* e) {
  if (d == g_last_device && g_fails) return INFOS_EXHAUSTED;
  const infos_code code = g_sound.load(d, a, s, c, out, e);
  if (d == g_last_device) g_last = *out;
  return code;
}
infos_code fail_when_told(infos_program* p, infos_kv* kv, const infos_batch* b, infos_error* e) {
  if (p != g_last || !g_fails) return g_sound.execute(p, kv, b, e);
  if (e != nullptr) std::strcpy(e->message, "the last rank burns");
  return INFOS_FAILED;
}
infos_code failing_query(std::uint32_t abi, const infos_host_api* host, infos_plugin_api* out,
                         infos_error* e) {
  g_sound.struct_size = sizeof g_sound;
  const infos_code code = reference::plugin_query(abi, host, &g_sound, e);
  *out = g_sound;
  out->open = open_and_note;
  out->load = load_and_note;
  out->execute = fail_when_told;
  return code;
}

TEST(TensorParallel, RankThatFails_EndsTheStepOnAllWithItsOwnError) {
  register_plugin("one-rank-fails", &failing_query);
  const auto checkpoint = tiny_model("wide", DType::f32, 25);
  const auto prompt = prompt_of(5, checkpoint->config().vocab, 8);
  const auto blocks = scattered_blocks(0, 8);
  const EngineSequence sequence{{1}, prompt, 0, blocks, true, 0};
  g_fails = false;
  const auto engine = open_engine(*checkpoint, parallel_options("one-rank-fails", 4));
  ASSERT_NE(engine, nullptr);
  const auto want = logits_after(*engine, prompt, 5);
  for (int round = 0; round < 10; ++round) {
    g_fails = true;
    const auto failed = engine->logits({&sequence, 1});
    ASSERT_FALSE(failed.ok());
    EXPECT_NE(failed.error().message.find("the last rank burns"), std::string::npos);
    g_fails = false;
    ASSERT_EQ(logits_after(*engine, prompt, 5), want);
  }
  g_fails = true;
  const auto refused = Engine::open(*checkpoint, parallel_options("one-rank-fails", 4));
  g_fails = false;
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted);
}

TEST(TensorParallel, GivenCores_AreSharedAndOpeningLeavesTheCallersThreadFree) {
  if (!find_plugin("cpu").ok()) GTEST_SKIP() << "the CPU plugin is not built here";
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EngineOptions options = parallel_options("cpu", 2);
  options.threads = 0;
  for (std::uint32_t core = 0; core < CPU_SETSIZE && options.cores.size() < 2; ++core)
    if (CPU_ISSET(core, &before)) options.cores.push_back(core);
  if (options.cores.size() < 2) GTEST_SKIP() << "one core";
  const auto checkpoint = tiny_model("wide", DType::q8_0, 26);
  const auto engine = open_engine(*checkpoint, options);
  ASSERT_NE(engine, nullptr);
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
  std::thread stepping([&] {  // a step binds the thread that calls it
    EXPECT_FALSE(logits_after(*engine, {1, 2, 3}, 3).empty());
  });
  stepping.join();
}

TEST(TensorParallel, WhatCannotBeSplit_IsRefusedWithWhatCould) {
  const auto wide = tiny_model("wide", DType::f32, 1);
  const auto tiny_q8 = tiny_model("llama2", DType::q8_0, 1);  // FFN 96: halves of 48, blocks of 32
  struct Case {
    const Checkpoint& checkpoint;
    std::uint32_t ranks, threads;
    std::vector<std::uint32_t> cores;
    const char* says;
  };
  const Case cases[] = {
      {*wide, 3, 3, {}, "8 heads, 4 KV heads and FFN width 128; 1, 2, 4 would"},
      {*wide, 0, 1, {}, "tensor_parallel is 0"},
      {*wide, 8, 8, {}, "1, 2, 4 would"},
      {*tiny_q8,
       2,
       2,
       {},
       "rows of 96 in q8_0 blocks of 32: tensor_parallel 2 would cut blocks; 1, 3"},
      {*wide, 2, 3, {}, "3 threads and 0 cores for tensor_parallel 2"},
      {*wide, 2, 2, {0, 0, 0}, "2 threads and 3 cores for tensor_parallel 2"},
  };
  for (const Case& c : cases) {
    EngineOptions options = parallel_options("reference", c.ranks);
    options.threads = c.threads;
    options.cores = c.cores;
    const auto engine = Engine::open(c.checkpoint, options);
    ASSERT_FALSE(engine.ok()) << c.says;
    EXPECT_NE(engine.error().message.find(c.says), std::string::npos) << engine.error().message;
  }
}

}  // namespace
}  // namespace infos::test
