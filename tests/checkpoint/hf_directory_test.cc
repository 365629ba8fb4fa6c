// SPDX-License-Identifier: Apache-2.0
// Goal: a Hugging Face directory that is incomplete or lies gives an error that names the file;
// nothing outside the directory is opened because a file's contents say so. Method: a synthetic
// model of each family is exported, then one file is changed at a time.
#include <gtest/gtest.h>

#include <filesystem>

#include "devices/engine/checkpoint/file_bytes.h"
#include "devices/engine/checkpoint/hf_names.h"
#include "devices/engine/checkpoint/synth.h"
#include "tests/checkpoint/temp_directory.h"
#include "tests/tools/hf_export.h"

namespace infos {
namespace {

using test::Shards;
using test::TempDirectory;
namespace fs = std::filesystem;

/// A directory with the f32 model of a shape, in two shards, without a tokenizer.json (synthetic
/// ones have none).
class HfDirectory : public testing::Test {
 protected:
  void fill(const std::string& shape, Shards shards) {
    const auto done = synth_model({.shape = shape,
                                   .dtype = DType::f32,
                                   .path = files_.file("m.gguf"),
                                   .seed = 1,
                                   .progress = {}});
    ASSERT_TRUE(done.ok()) << done.error().message;
    source_ = *open_checkpoint(files_.file("m.gguf"));
    const WithoutTokenizer bare(*source_);
    const auto exported = test::export_hugging_face(bare, files_.file("hf"), {.shards = shards});
    ASSERT_TRUE(exported.ok()) << exported.error().message;
  }

  void replace_in(const std::string& name, const std::string& from, const std::string& to) {
    std::string text = *read_text_file(files_.file("hf/" + name), Bytes{1 << 24});
    const auto at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    files_.write("hf/" + name, text.replace(at, from.size(), to));
  }

  std::string error() {
    const auto opened = open_checkpoint(files_.file("hf"));
    return opened.ok() ? "opened" : opened.error().message;
  }

  class WithoutTokenizer final : public Checkpoint {
   public:
    explicit WithoutTokenizer(const Checkpoint& inner) : inner_(inner), config_(inner.config()) {
      // A table of divisors has no form in config.json.
      config_.rope_scaling = {};
      for (const auto& tensor : inner.tensors())
        if (tensor.name != "rope_freqs.weight") tensors_.push_back(tensor);
    }
    const ModelConfig& config() const override { return config_; }
    const TokenizerSource& tokenizer() const override { return none_; }
    const GenerationDefaults& generation() const override { return inner_.generation(); }
    const TensorView* find(std::string_view name) const override { return inner_.find(name); }
    const std::vector<TensorView>& tensors() const override { return tensors_; }
    std::string path() const override { return inner_.path(); }

   private:
    const Checkpoint& inner_;
    ModelConfig config_;
    TokenizerSource none_;
    std::vector<TensorView> tensors_;
  };

  TempDirectory files_;
  std::unique_ptr<Checkpoint> source_;
};

#define EXPECT_SAYS(text, word) EXPECT_NE((text).find(word), std::string::npos) << (text)

TEST_F(HfDirectory, EveryFamily_ReadsBackWithItsFacts) {
  for (const char* shape : {"tiny-llama", "tiny-mistral", "tiny-qwen2", "tiny-qwen3",
                            "tiny-mixtral", "tiny-qwen3-moe"}) {
    SCOPED_TRACE(shape);
    fill(shape, Shards::two);
    const auto opened = open_checkpoint(files_.file("hf"));
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const ModelConfig &got = (*opened)->config(), &want = source_->config();
    EXPECT_EQ(got.experts, want.experts);
    EXPECT_EQ(got.experts_per_token, want.experts_per_token);
    EXPECT_EQ(got.ffn_hidden, want.ffn_hidden);
    EXPECT_EQ(got.head_dim, want.head_dim);
    EXPECT_EQ(got.qkv_bias, want.qkv_bias);
    EXPECT_EQ(got.qk_norm, want.qk_norm);
    EXPECT_EQ(got.tied_embeddings, want.tied_embeddings);
    EXPECT_EQ(got.eos, want.eos);
    if (want.experts > 0) {
      EXPECT_NE((*opened)->find("blk.1.ffn_down.3.weight"), nullptr);
      EXPECT_EQ((*opened)->find("blk.1.ffn_down_exps.weight"), nullptr);
    }
    fs::remove_all(files_.file("hf"));
  }
}

TEST_F(HfDirectory, MissingFiles_AreNamed) {
  fill("tiny-qwen2", Shards::two);
  fs::remove(files_.file("hf/model-00002-of-00002.safetensors"));
  EXPECT_SAYS(error(), "model-00002-of-00002.safetensors");
  fs::remove(files_.file("hf/model.safetensors.index.json"));
  EXPECT_SAYS(error(), "neither model.safetensors nor model.safetensors.index.json");
  fs::remove(files_.file("hf/config.json"));
  EXPECT_SAYS(error(), "config.json");
}

TEST_F(HfDirectory, IndexThatPointsOutside_IsRefused) {
  for (const char* path : {"../other.safetensors", "/etc/other.safetensors", "sub/x.safetensors",
                           "..", ".hidden.safetensors", "model.bin", ""}) {
    SCOPED_TRACE(path);
    fill("tiny-qwen2", Shards::two);
    replace_in("model.safetensors.index.json", "model-00001-of-00002.safetensors", path);
    EXPECT_SAYS(error(), "want the name of a .safetensors file in the same directory");
  }
}

TEST_F(HfDirectory, IndexThatLies_IsRefused) {
  fill("tiny-qwen2", Shards::two);
  replace_in("model.safetensors.index.json", "model.embed_tokens.weight",
             "model.embed_tokens.wait");
  EXPECT_SAYS(error(), "weight_map: model.embed_tokens.wait");
}

TEST_F(HfDirectory, SymlinkLoop_IsAnError) {
  fill("tiny-qwen2", Shards::two);
  const fs::path shard = files_.file("hf/model-00001-of-00002.safetensors");
  fs::remove(shard);
  fs::create_symlink(shard.filename(), shard);
  EXPECT_SAYS(error(), "model-00001-of-00002.safetensors: cannot open");
}

TEST_F(HfDirectory, SameTensorInTwoShards_IsRefused) {
  fill("tiny-qwen2", Shards::two);
  fs::copy_file(files_.file("hf/model-00001-of-00002.safetensors"),
                files_.file("hf/model-00002-of-00002.safetensors"),
                fs::copy_options::overwrite_existing);
  EXPECT_SAYS(error(), "too");
}

TEST_F(HfDirectory, ConfigThatContradictsTheWeights_IsRefused) {
  fill("tiny-qwen2", Shards::one);
  replace_in("config.json", R"("intermediate_size":512)", R"("intermediate_size":513)");
  EXPECT_SAYS(error(), "blk.0.ffn_gate.weight");
  EXPECT_SAYS(error(), "[512, 256]");
}

TEST_F(HfDirectory, EosBeyondTheVocabulary_IsRefused) {
  fill("tiny-qwen2", Shards::one);
  files_.write("hf/generation_config.json", R"({"eos_token_id":512})");
  EXPECT_SAYS(error(), "512");
}

TEST_F(HfDirectory, TemplateFile_WinsOverTokenizerConfig) {
  fill("tiny-qwen2", Shards::one);
  files_.write("hf/tokenizer_config.json", R"({"chat_template":"old","eos_token":"<|im_end|>"})");
  files_.write("hf/chat_template.jinja", "new");
  const auto opened = open_checkpoint(files_.file("hf"));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ((*opened)->tokenizer().chat_template, "new");
  EXPECT_EQ((*opened)->tokenizer().eos_token, "<|im_end|>");
}

TEST(HfNames, GoThereAndBack) {
  for (const char* name :
       {"model.embed_tokens.weight", "lm_head.weight", "model.layers.0.self_attn.q_proj.bias",
        "model.layers.31.mlp.down_proj.weight", "model.layers.3.mlp.experts.12.gate_proj.weight",
        "model.layers.3.mlp.gate.weight"}) {
    const auto canonical = canonical_name(name);
    ASSERT_TRUE(canonical.has_value()) << name;
    EXPECT_EQ(hugging_face_name(*canonical, ModelFamily::qwen3), name);
  }
  EXPECT_EQ(canonical_name("model.layers.3.block_sparse_moe.experts.7.w2.weight"),
            "blk.3.ffn_down.7.weight");
  EXPECT_EQ(hugging_face_name("blk.3.ffn_up.7.weight", ModelFamily::mistral),
            "model.layers.3.block_sparse_moe.experts.7.w3.weight");
  for (const char* name :
       {"", "model.layers.", "model.layers.x.mlp.up_proj.weight",
        "model.layers.01.mlp.up_proj.weight", "model.layers.3.mlp.experts.up_proj.weight",
        "model.layers.3", "model.layers.9999999.mlp.up_proj.weight"})
    EXPECT_FALSE(canonical_name(name).has_value()) << name;
}

}  // namespace
}  // namespace infos
