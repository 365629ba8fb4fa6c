// SPDX-License-Identifier: Apache-2.0
// Goal: the cost of a model is what its tensors really take. Method: numbers worked out by hand
// from the published configs (and equal to the published parameter counts), and the size of a real
// file.
#include "topology/model/cost.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/data.h"

namespace infos {
namespace {

ModelConfig llama_8b() {
  ModelConfig c;
  c.layers = 32, c.hidden = 4096, c.ffn_hidden = 14336, c.heads = 32, c.kv_heads = 8,
  c.head_dim = 128, c.vocab = 128256;
  c.max_context = 131072;
  return c;
}

ModelConfig qwen_half_b() {
  ModelConfig c;
  c.family = ModelFamily::qwen2;
  c.layers = 24, c.hidden = 896, c.ffn_hidden = 4864, c.heads = 14, c.kv_heads = 2, c.head_dim = 64,
  c.vocab = 151936;
  c.max_context = 32768, c.qkv_bias = true, c.tied_embeddings = true;
  return c;
}

ModelConfig mixtral() {
  ModelConfig c;
  c.family = ModelFamily::mistral;
  c.layers = 32, c.hidden = 4096, c.ffn_hidden = 14336, c.heads = 32, c.kv_heads = 8,
  c.head_dim = 128, c.vocab = 32000;
  c.max_context = 32768, c.experts = 8, c.experts_per_token = 2;
  return c;
}

ModelConfig stories_260k() {
  ModelConfig c;
  c.layers = 5, c.hidden = 64, c.ffn_hidden = 172, c.heads = 8, c.kv_heads = 4, c.head_dim = 8,
  c.vocab = 512;
  c.max_context = 128;
  return c;
}

TEST(Cost, WeightCounts_EqualThePublishedParameterCounts) {
  EXPECT_EQ(weight_counts(llama_8b()).total(), 8'030'261'248U);
  EXPECT_EQ(weight_counts(qwen_half_b()).total(), 494'032'768U);
  EXPECT_EQ(weight_counts(mixtral()).total(), 46'702'792'704U);
  EXPECT_EQ(weight_counts(llama_8b()).attention, 32 * 41'943'040ULL);
  EXPECT_EQ(weight_counts(llama_8b()).ffn, 32 * 176'160'768ULL);
  EXPECT_EQ(weight_counts(mixtral()).router, 32U * 8U * 4096U);
  EXPECT_EQ(weight_counts(qwen_half_b()).vectors, 24U * (1792U + 1152U) + 896U);
}

TEST(Cost, WeightBytes_OfEachFormat) {
  const ModelConfig c = llama_8b();
  const std::uint64_t vectors = 4 * (32 * 8192 + 4096);  // f32
  const std::uint64_t matrices = 8'030'261'248U - (32 * 8192 + 4096);
  EXPECT_EQ(weight_bytes(c, WeightFormat::f32).value, 8'030'261'248U * 4);
  EXPECT_EQ(weight_bytes(c, WeightFormat::bf16).value, matrices * 2 + vectors);
  EXPECT_EQ(weight_bytes(c, WeightFormat::q8_0).value, matrices / 32 * 34 + vectors);
  EXPECT_EQ(weight_bytes(c, WeightFormat::q4_0).value, matrices / 32 * 18 + vectors);
  EXPECT_EQ(weight_bytes(c, WeightFormat::q4_k).value, matrices / 256 * 144 + vectors);
  EXPECT_EQ(weight_bytes(c, WeightFormat::q6_k).value, matrices / 256 * 210 + vectors);
}

TEST(Cost, WeightBytes_RoundEachRowUpToABlock) {
  ModelConfig c = stories_260k();  // ffn down has rows of 172 weights: 6 blocks of 32
  const std::uint64_t per_layer =
      (64 * 64 * 2 + 64 * 32 * 2 + 2 * 172 * 64) / 32 * 34 + 64 * 6 * 34;
  EXPECT_EQ(weight_bytes(c, WeightFormat::q8_0).value,
            5 * per_layer + 2 * 512 * 2 * 34 + 4 * (5 * 128 + 64));
}

TEST(Cost, WeightBytes_EqualTheTensorsOfARealFile) {
  INFOS_NEEDS_DATA("models/stories260K-f32.gguf");
  const auto file = std::filesystem::file_size(test::data_path("models/stories260K-f32.gguf"));
  const std::uint64_t weights = weight_bytes(stories_260k(), WeightFormat::f32).value;
  EXPECT_EQ(weights, 1'171'200U);
  EXPECT_EQ(file - weights, 14'176U);  // its header, aligned to 32
}

TEST(Cost, KvBytesPerToken) {
  EXPECT_EQ(kv_bytes_per_token(llama_8b(), 2).value, 131'072U);
  EXPECT_EQ(kv_bytes_per_token(qwen_half_b(), 2).value, 12'288U);
  EXPECT_EQ(kv_bytes_per_token(mixtral(), 2).value, 131'072U);
  EXPECT_EQ(kv_bytes_per_token(stories_260k(), 4).value, 1'280U);
}

TEST(Cost, Flops_OfDecodeAndPrefill) {
  // Matrices that a token passes: 7,504,658,432 weights; attention: 4 * 32 * 4096 for each position
  // seen.
  EXPECT_DOUBLE_EQ(sequence_flops(llama_8b(), {1, 0, 1}), 15'009'316'864.0 + 524'288.0);
  EXPECT_DOUBLE_EQ(sequence_flops(llama_8b(), {1, 999, 1}), 15'009'316'864.0 + 524'288'000.0);
  const double layers = 2.0 * (7'504'658'432.0 - 525'336'576.0);
  const double output = 2.0 * 525'336'576.0;
  EXPECT_DOUBLE_EQ(sequence_flops(llama_8b(), {512, 0, 1}),
                   512 * layers + output + 524'288.0 * 512 * 513 / 2);
  // Two experts of eight, and the router.
  EXPECT_DOUBLE_EQ(sequence_flops(mixtral(), {1, 0, 0}),
                   2.0 * 32 * (41'943'040.0 + 2 * 176'160'768.0 + 32'768.0) + 524'288.0);
}

TEST(Cost, Flops_PrefillInPiecesCostsTheSame) {
  for (const std::uint32_t window : {0U, 1U, 100U, 300U, 511U, 512U, 513U, 10'000U}) {
    ModelConfig c = qwen_half_b();
    c.window = window;
    double pieces = 0;
    for (std::uint64_t i = 0; i < 512; ++i) pieces += sequence_flops(c, {1, i, 0});
    EXPECT_NEAR(sequence_flops(c, {512, 0, 0}) / pieces, 1.0, 1e-12) << window;
    const double two = sequence_flops(c, {200, 0, 0}) + sequence_flops(c, {312, 200, 0});
    EXPECT_NEAR(two / pieces, 1.0, 1e-12) << window;
  }
}

TEST(Cost, ExpertsTouched_GrowFromTopKToAll) {
  EXPECT_DOUBLE_EQ(experts_touched(mixtral(), 0), 0);
  EXPECT_DOUBLE_EQ(experts_touched(mixtral(), 1), 2);
  EXPECT_DOUBLE_EQ(experts_touched(mixtral(), 2), 3.5);  // 8 * (1 - 0.75^2)
  EXPECT_NEAR(experts_touched(mixtral(), 64), 8, 1e-6);
  EXPECT_DOUBLE_EQ(experts_touched(llama_8b(), 5), 0);
}

TEST(Cost, DecodeStepBytes_AreWeightsOnceAndEveryKv) {
  const ModelConfig c = llama_8b();
  const double embedding = 2.0 * 525'336'576.0;  // looked up, not read
  const double weights = static_cast<double>(weight_bytes(c, WeightFormat::bf16).value) - embedding;
  EXPECT_DOUBLE_EQ(decode_step_bytes(c, {8, 1000, WeightFormat::bf16, 2}),
                   weights + 8.0 * 1000 * 131'072);
  // One sequence of Mixtral reads two experts a layer, not eight.
  const double one = decode_step_bytes(mixtral(), {1, 0, WeightFormat::bf16, 2});
  const double all =
      static_cast<double>(weight_bytes(mixtral(), WeightFormat::bf16).value) - 2.0 * 131'072'000.0;
  EXPECT_DOUBLE_EQ(all - one, 32.0 * 6 * 176'160'768.0 * 2);
}

TEST(Cost, MemoryNeed_CountsWholeBlocks) {
  const MemoryNeed need = memory_need(llama_8b(), {WeightFormat::q8_0, 2, 4, 1000, 16, 512});
  EXPECT_EQ(need.weights, weight_bytes(llama_8b(), WeightFormat::q8_0));
  EXPECT_EQ(need.kv.value, 131'072U * 1008 * 4);
  EXPECT_EQ(need.scratch.value, 4U * (512U * (3U * 4096 + 2 * 14336) + 4U * 128256));
  EXPECT_EQ(need.total().value, need.weights.value + need.kv.value + need.scratch.value);
}

TEST(Cost, WeightFormat_WordsParseBack) {
  for (const char* word : {"f32", "f16", "bf16", "f8", "i8", "q8_0", "q4_0", "q4_k", "q6_k"})
    EXPECT_STREQ(to_string(parse_weight_format(word).value()), word);
  EXPECT_NE(parse_weight_format("q5_1").error().message.find("q4_k"), std::string::npos);
}

}  // namespace
}  // namespace infos
