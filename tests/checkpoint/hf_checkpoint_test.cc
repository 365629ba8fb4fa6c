// SPDX-License-Identifier: Apache-2.0
// Goal: a Hugging Face directory gives the model that it holds, whole or in shards.
// Method: the trained 260 k model is exported from its GGUF file; what is read back must be the
// same model.
#include <gtest/gtest.h>

#include <cstring>

#include "devices/engine/checkpoint.h"
#include "tests/checkpoint/temp_directory.h"
#include "tests/support/data.h"
#include "tests/tools/hf_export.h"

namespace infos {
namespace {

using test::TempDirectory;

constexpr const char* kStories = "models/stories260K-f32.gguf";

bool is_rotated(const std::string& name) {
  return name.find("attn_q.") != std::string::npos || name.find("attn_k.") != std::string::npos;
}

void expect_same_model(const Checkpoint& gguf, const Checkpoint& hf) {
  EXPECT_EQ(hf.config().family, gguf.config().family);
  EXPECT_EQ(hf.config().layers, gguf.config().layers);
  EXPECT_EQ(hf.config().ffn_hidden, gguf.config().ffn_hidden);
  EXPECT_EQ(hf.config().kv_heads, gguf.config().kv_heads);
  EXPECT_EQ(hf.config().head_dim, gguf.config().head_dim);
  EXPECT_EQ(hf.config().max_context, gguf.config().max_context);
  EXPECT_EQ(hf.config().norm_epsilon, gguf.config().norm_epsilon);
  EXPECT_EQ(hf.config().bos, gguf.config().bos);
  EXPECT_EQ(hf.config().eos, gguf.config().eos);
  EXPECT_FALSE(hf.config().rope_adjacent_pairs);
  ASSERT_EQ(hf.tensors().size(), gguf.tensors().size());
  for (const auto& tensor : gguf.tensors()) {
    const auto* other = hf.find(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    EXPECT_EQ(other->dims, tensor.dims) << tensor.name;
    ASSERT_EQ(other->data.size(), tensor.data.size()) << tensor.name;
    if (is_rotated(tensor.name)) continue;
    EXPECT_EQ(std::memcmp(other->data.data(), tensor.data.data(), tensor.data.size()), 0)
        << tensor.name;
  }
}

// Head 1 of layer 0: its row j in halves order is row 2j (j < 4) or 2(j - 4) + 1 in adjacent order,
// head_dim being 8.
void expect_rows_in_halves_order(const Checkpoint& gguf, const Checkpoint& hf) {
  const auto *from = gguf.find("blk.0.attn_q.weight"), *to = hf.find("blk.0.attn_q.weight");
  constexpr std::size_t kRow = 64 * sizeof(float);
  for (std::size_t j = 0; j < 8; ++j) {
    const std::size_t source = 8 + (j < 4 ? 2 * j : 2 * (j - 4) + 1);
    EXPECT_EQ(
        std::memcmp(to->data.data() + (8 + j) * kRow, from->data.data() + source * kRow, kRow), 0)
        << j;
  }
}

TEST(HfCheckpoint, ExportOfStories_IsTheSameModel) {
  INFOS_NEEDS_DATA(kStories);
  for (const auto shards : {test::Shards::one, test::Shards::two}) {
    const TempDirectory directory;
    const auto gguf = open_checkpoint(test::data_path(kStories));
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    const auto done = test::export_hugging_face(**gguf, directory.path(), {.shards = shards});
    ASSERT_TRUE(done.ok()) << done.error().message;
    const auto hf = open_checkpoint(directory.path());
    ASSERT_TRUE(hf.ok()) << hf.error().message;
    expect_same_model(**gguf, **hf);
    expect_rows_in_halves_order(**gguf, **hf);
  }
}

TEST(HfCheckpoint, ExportOfStories_HasTheTokenizer) {
  INFOS_NEEDS_DATA(kStories);
  const TempDirectory directory;
  const auto gguf = open_checkpoint(test::data_path(kStories));
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  ASSERT_TRUE(test::export_hugging_face(**gguf, directory.path()).ok());
  const auto hf = open_checkpoint(directory.path());
  ASSERT_TRUE(hf.ok()) << hf.error().message;
  const TokenizerSource& source = (*hf)->tokenizer();
  EXPECT_FALSE(source.gguf.has_value());
  EXPECT_TRUE(source.add_bos);
  EXPECT_EQ(source.bos_token, "<s>");
  EXPECT_EQ(source.eos_token, "</s>");
  EXPECT_NE(source.tokenizer_json.find("\"byte_fallback\":true"), std::string::npos);
  // The best-scored piece comes first: "▁t" out of "▁" and "t".
  EXPECT_NE(source.tokenizer_json.find("\"merges\":[\"▁ t\",\"h e\""), std::string::npos);
}

}  // namespace
}  // namespace infos
