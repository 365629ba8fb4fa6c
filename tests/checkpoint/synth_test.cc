// SPDX-License-Identifier: Apache-2.0
// Goal: a synthetic model is a model: it opens, has the shape and dtype asked for, is the same each
// time, and its numbers are of sensible size. Method: every tiny shape in every dtype is written
// and read back; large shapes only as configurations.
#include "devices/engine/checkpoint/synth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string_view>

#include "devices/engine/checkpoint/file_bytes.h"
#include "devices/engine/checkpoint/quant.h"
#include "devices/engine/checkpoint/shapes.h"
#include "tests/checkpoint/temp_directory.h"

namespace infos {
namespace {

using test::TempDirectory;

constexpr DType kDtypes[] = {DType::f32,  DType::f16,  DType::bf16, DType::q8_0,
                             DType::q4_0, DType::q4_k, DType::q6_k};

std::vector<float> values_of(const TensorView& tensor) {
  std::size_t elements = 1;
  for (const auto dim : tensor.dims) elements *= static_cast<std::size_t>(dim);
  std::vector<float> out(elements);
  dequantise(tensor.dtype, tensor.data, out);
  return out;
}

double deviation_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(Synth, EveryTinyShapeAndDtype_OpensWithItsConfig) {
  for (const std::string& name : shape_names()) {
    if (!name.starts_with("tiny-")) continue;
    for (const DType dtype : kDtypes) {
      SCOPED_TRACE(name + " " + to_string(dtype));
      const TempDirectory directory;
      const auto done = synth_model({.shape = name,
                                     .dtype = dtype,
                                     .path = directory.file("m.gguf"),
                                     .seed = 1,
                                     .progress = {}});
      ASSERT_TRUE(done.ok()) << done.error().message;
      const auto opened = open_checkpoint(directory.file("m.gguf"));
      ASSERT_TRUE(opened.ok()) << opened.error().message;
      const ModelConfig want = *named_shape(name), got = (*opened)->config();
      EXPECT_EQ(got.layers, want.layers);
      EXPECT_EQ(got.head_dim, want.head_dim);
      EXPECT_EQ(got.vocab, want.vocab);
      EXPECT_EQ(got.experts_per_token, want.experts_per_token);
      EXPECT_EQ(got.qkv_bias, want.qkv_bias);
      EXPECT_EQ(got.qk_norm, want.qk_norm);
      EXPECT_EQ(got.tied_embeddings, want.tied_embeddings);
      EXPECT_EQ(got.rope_adjacent_pairs, want.rope_adjacent_pairs);
      EXPECT_EQ((*opened)->find("blk.1.attn_q.weight")->dtype, dtype);
      EXPECT_NEAR(deviation_of(values_of(*(*opened)->find("blk.1.attn_q.weight"))),
                  1 / std::sqrt(want.hidden), 0.05 / std::sqrt(want.hidden));
    }
  }
}

TEST(Synth, SameOptions_SameBytes_OtherSeed_Others) {
  const TempDirectory directory;
  const auto make = [&](const char* file, std::uint64_t seed) {
    const auto done = synth_model({.shape = "tiny-qwen2",
                                   .dtype = DType::q8_0,
                                   .path = directory.file(file),
                                   .seed = seed,
                                   .progress = {}});
    EXPECT_TRUE(done.ok());
    return *read_text_file(directory.file(file), Bytes{1 << 26});
  };
  const std::string a = make("a", 1), b = make("b", 1), c = make("c", 2);
  EXPECT_TRUE(a == b);
  EXPECT_EQ(a.size(), c.size());
  EXPECT_FALSE(a == c);
}

TEST(Synth, RowsOfTheVocabulary_AllDiffer) {
  const TempDirectory directory;
  ASSERT_TRUE(synth_model({.shape = "mixtral-tiny",
                           .dtype = DType::q4_0,
                           .path = directory.file("m.gguf"),
                           .seed = 1,
                           .progress = {}})
                  .ok());
  const auto opened = open_checkpoint(directory.file("m.gguf"));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const TensorView* table = (*opened)->find("token_embd.weight");
  const std::size_t row = table->data.size() / 2048;
  std::set<std::string_view> rows;
  for (std::size_t i = 0; i < 2048; ++i)
    rows.emplace(reinterpret_cast<const char*>(table->data.data()) + i * row, row);
  EXPECT_EQ(rows.size(), 2048u);
}

TEST(Synth, Progress_RisesToTheTotal) {
  const TempDirectory directory;
  std::vector<std::uint64_t> seen;
  std::uint64_t total = 0;
  const auto note = [&](Bytes done, Bytes all) {
    seen.push_back(done.value);
    total = all.value;
  };
  ASSERT_TRUE(synth_model({.shape = "tiny-llama",
                           .dtype = DType::f16,
                           .path = directory.file("m.gguf"),
                           .seed = 1,
                           .progress = note})
                  .ok());
  ASSERT_FALSE(seen.empty());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), total);
}

TEST(Synth, UnknownShape_IsRefusedWithTheNames_AndLeavesNoFile) {
  const TempDirectory directory;
  const auto done = synth_model({.shape = "gpt-5",
                                 .dtype = DType::f16,
                                 .path = directory.file("m.gguf"),
                                 .seed = 1,
                                 .progress = {}});
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.error().message.find("qwen2.5-0.5b"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(SynthTokenizer, HasEveryTokenOnce_AndMergesOfTokens) {
  const auto source = synth_tokenizer(ModelFamily::qwen2, 1000);
  const auto& gguf = *source.gguf;
  const std::set<std::string> tokens(gguf.tokens.begin(), gguf.tokens.end());
  EXPECT_EQ(gguf.tokens.size(), 1000u);
  EXPECT_EQ(tokens.size(), 1000u);
  ASSERT_FALSE(gguf.merges.empty());
  for (const auto& merge : gguf.merges) {
    const auto space = merge.find(' ');
    EXPECT_TRUE(tokens.count(merge.substr(0, space))) << merge;
    EXPECT_TRUE(tokens.count(merge.substr(space + 1))) << merge;
    EXPECT_TRUE(tokens.count(merge.substr(0, space) + merge.substr(space + 1))) << merge;
  }
}

TEST(Shapes, AreValid_AndFitEveryDtype) {
  for (const std::string& name : shape_names()) {
    const auto config = named_shape(name);
    ASSERT_TRUE(config.ok());
    EXPECT_TRUE(config->validate().ok()) << name;
    for (const DType dtype : kDtypes)
      for (const std::uint32_t row :
           {config->hidden, config->ffn_hidden, config->heads * config->head_dim})
        EXPECT_EQ(row % block_shape(synth_row_dtype(dtype, row)).elements, 0u) << name;
  }
}

}  // namespace
}  // namespace infos
