// SPDX-License-Identifier: Apache-2.0
// Goal: a real GGUF file gives the configuration, weights and tokenizer that it holds.
// Method: the trained 260 k model, whose facts are known from its makers and whose weights exist in
// a second format.
#include "devices/engine/checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "tests/support/data.h"

namespace infos {
namespace {

constexpr const char* kStories = "models/stories260K-f32.gguf";

TEST(GgufCheckpoint, Stories_ConfigIsTheModels) {
  INFOS_NEEDS_DATA(kStories);
  const auto opened = open_checkpoint(test::data_path(kStories));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const ModelConfig& config = (*opened)->config();
  EXPECT_EQ(config.family, ModelFamily::llama);
  EXPECT_EQ(config.layers, 5u);
  EXPECT_EQ(config.hidden, 64u);
  EXPECT_EQ(config.ffn_hidden, 172u);
  EXPECT_EQ(config.heads, 8u);
  EXPECT_EQ(config.kv_heads, 4u);
  EXPECT_EQ(config.head_dim, 8u);
  EXPECT_EQ(config.vocab, 512u);
  EXPECT_EQ(config.max_context, 128u);
  EXPECT_TRUE(config.rope_adjacent_pairs);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_EQ(config.bos, 1);
  EXPECT_EQ(config.eos, std::vector<std::int32_t>{2});
}

// The original file holds the embedding table first after a header of 7 ints, then the attention
// norms of all layers.
TEST(GgufCheckpoint, Stories_WeightsEqualTheOriginalFile) {
  INFOS_NEEDS_DATA(kStories);
  INFOS_NEEDS_DATA("models/stories260K.bin");
  const auto opened = open_checkpoint(test::data_path(kStories));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  std::ifstream in(test::data_path("models/stories260K.bin"), std::ios::binary);
  const std::vector<char> original((std::istreambuf_iterator<char>(in)), {});
  const TensorView* table = (*opened)->find("token_embd.weight");
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->dtype, DType::f32);
  EXPECT_EQ(table->dims, (std::vector<std::int64_t>{512, 64}));
  ASSERT_EQ(table->data.size(), 512u * 64 * 4);
  EXPECT_EQ(std::memcmp(table->data.data(), original.data() + 28, table->data.size()), 0);
  const TensorView* norm = (*opened)->find("blk.0.attn_norm.weight");
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ(
      std::memcmp(norm->data.data(), original.data() + 28 + table->data.size(), norm->data.size()),
      0);
  EXPECT_EQ((*opened)->find("blk.5.attn_norm.weight"), nullptr);
}

TEST(GgufCheckpoint, Stories_TokenizerIsSentencePiece) {
  INFOS_NEEDS_DATA(kStories);
  const auto opened = open_checkpoint(test::data_path(kStories));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const TokenizerSource& source = (*opened)->tokenizer();
  EXPECT_TRUE(source.tokenizer_json.empty());
  ASSERT_TRUE(source.gguf.has_value());
  EXPECT_EQ(source.gguf->model, "llama");
  EXPECT_EQ(source.gguf->tokens.size(), 512u);
  EXPECT_EQ(source.gguf->tokens[3], "<0x00>");
  EXPECT_EQ(source.gguf->types[3], 6);
  EXPECT_EQ(source.gguf->scores.size(), 512u);
  EXPECT_TRUE(source.gguf->add_bos);
  EXPECT_TRUE(source.gguf->add_space_prefix);
  EXPECT_EQ(source.gguf->padding, -1) << "all bits set means none";
  EXPECT_EQ(source.bos_token, "<s>");
  EXPECT_EQ(source.eos_token, "</s>");
}

TEST(OpenCheckpoint, MissingFile_IsNotFoundAndNamesIt) {
  const auto opened = open_checkpoint("/nonexistent/model.gguf");
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::not_found);
  EXPECT_NE(opened.error().message.find("/nonexistent/model.gguf"), std::string::npos);
}

}  // namespace
}  // namespace infos
