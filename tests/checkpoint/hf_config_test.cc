// SPDX-License-Identifier: Apache-2.0
// Goal: config.json and its companions mean what their makers mean, and what we cannot compute is
// refused by name. Method: a small true file per architecture, with one change at a time.
#include "devices/engine/checkpoint/hf_config.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace infos {
namespace {

/// A config.json: the fields every architecture needs, and `more` of them (which must begin with a
/// comma).
std::string text_of(const std::string& architecture, const std::string& more = "") {
  return R"({"architectures":[")" + architecture +
         R"("],"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,)" +
         R"("num_attention_heads":4,"num_key_value_heads":2,"vocab_size":100,"max_position_embeddings":256,"rms_norm_eps":1e-6)" +
         more + "}";
}

struct Case {
  const char* name;
  std::string text;
  std::function<bool(const ModelConfig&)> holds;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.text; }

std::vector<Case> good() {
  using C = const ModelConfig&;
  return {
      {"Defaults", text_of("LlamaForCausalLM"),
       [](C c) {
         return c.family == ModelFamily::llama && c.head_dim == 16 && c.rope_theta == 10000 &&
                !c.tied_embeddings && c.bos == -1 && c.eos.empty() && !c.rope_adjacent_pairs &&
                c.window == 0;
       }},
      {"ByModelType",
       R"({"model_type":"qwen2","hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,)"
       R"("num_key_value_heads":2,"vocab_size":100,"max_position_embeddings":256,"rms_norm_eps":1e-6})",
       [](C c) { return c.family == ModelFamily::qwen2 && c.qkv_bias; }},
      {"HeadDim", text_of("Qwen3ForCausalLM", R"(,"head_dim":32)"),
       [](C c) { return c.head_dim == 32 && c.qk_norm && !c.qkv_bias; }},
      {"HeadDimNull", text_of("MistralForCausalLM", R"(,"head_dim":null)"),
       [](C c) { return c.head_dim == 16; }},
      {"ThetaAsInteger", text_of("LlamaForCausalLM", R"(,"rope_theta":1000000)"),
       [](C c) { return c.rope_theta == 1e6; }},
      {"RopeLlama3",
       text_of(
           "LlamaForCausalLM",
           R"(,"rope_scaling":{"factor":32.0,"high_freq_factor":4.0,"low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3"})"),
       [](C c) {
         return c.rope_scaling.kind == RopeScaling::Kind::llama3 && c.rope_scaling.factor == 32 &&
                c.rope_scaling.original_context == 8192;
       }},
      {"RopeLinearOldKey",
       text_of("LlamaForCausalLM", R"(,"rope_scaling":{"type":"linear","factor":2})"),
       [](C c) {
         return c.rope_scaling.kind == RopeScaling::Kind::linear && c.rope_scaling.factor == 2;
       }},
      {"RopeDefault", text_of("LlamaForCausalLM", R"(,"rope_scaling":{"rope_type":"default"})"),
       [](C c) { return c.rope_scaling.kind == RopeScaling::Kind::none; }},
      {"RopeParameters",
       text_of("LlamaForCausalLM",
               R"(,"rope_parameters":{"rope_type":"default","rope_theta":500000.0})"),
       [](C c) { return c.rope_theta == 5e5; }},
      {"MistralWindow", text_of("MistralForCausalLM", R"(,"sliding_window":4096)"),
       [](C c) { return c.window == 4096; }},
      {"MistralWindowNull", text_of("MistralForCausalLM", R"(,"sliding_window":null)"),
       [](C c) { return c.window == 0; }},
      {"QwenWindowUnused",
       text_of("Qwen2ForCausalLM",
               R"(,"sliding_window":32768,"use_sliding_window":false,"max_window_layers":1)"),
       [](C c) { return c.window == 0; }},
      {"QwenWindowNoLayers",
       text_of("Qwen2ForCausalLM",
               R"(,"sliding_window":64,"use_sliding_window":true,"max_window_layers":2)"),
       [](C c) { return c.window == 0; }},
      {"QwenWindowAllLayers",
       text_of("Qwen2ForCausalLM",
               R"(,"sliding_window":64,"use_sliding_window":true,"max_window_layers":0)"),
       [](C c) { return c.window == 64; }},
      {"EosList",
       text_of("LlamaForCausalLM",
               R"(,"bos_token_id":1,"eos_token_id":[2,3],"tie_word_embeddings":true)"),
       [](C c) {
         return c.bos == 1 && c.eos == std::vector<std::int32_t>{2, 3} && c.tied_embeddings;
       }},
      {"EosOne", text_of("LlamaForCausalLM", R"(,"eos_token_id":2)"),
       [](C c) { return c.eos == std::vector<std::int32_t>{2}; }},
      {"Mixtral",
       text_of("MixtralForCausalLM", R"(,"num_local_experts":8,"num_experts_per_tok":2)"),
       [](C c) {
         return c.family == ModelFamily::mistral && c.experts == 8 && c.experts_per_token == 2 &&
                c.renormalise_experts && c.ffn_hidden == 128;
       }},
      {"Qwen3Moe",
       text_of(
           "Qwen3MoeForCausalLM",
           R"(,"num_experts":16,"num_experts_per_tok":4,"moe_intermediate_size":32,"norm_topk_prob":true)"),
       [](C c) {
         return c.experts == 16 && c.ffn_hidden == 32 && c.renormalise_experts && c.qk_norm;
       }},
      {"Qwen3MoeNotRenormalised",
       text_of("Qwen3MoeForCausalLM",
               R"(,"num_experts":16,"num_experts_per_tok":4,"moe_intermediate_size":32)"),
       [](C c) { return !c.renormalise_experts; }},
  };
}

class HfConfigGood : public testing::TestWithParam<Case> {};

TEST_P(HfConfigGood, Holds) {
  const auto config = hf_config(GetParam().text, "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_TRUE(config->validate().ok()) << config->validate().error().message;
  EXPECT_TRUE(GetParam().holds(*config));
}

INSTANTIATE_TEST_SUITE_P(Files, HfConfigGood, testing::ValuesIn(good()),
                         [](const auto& i) { return std::string(i.param.name); });

struct Bad {
  const char* name;
  std::string text;
  ErrorCode code;
  std::vector<const char*> words;
};

void PrintTo(const Bad& b, std::ostream* out) { *out << b.text; }

std::vector<Bad> bad() {
  const auto corrupt = ErrorCode::corrupt, unsupported = ErrorCode::unsupported;
  const std::string llama = "LlamaForCausalLM";
  return {
      {"Empty", "", corrupt, {"not JSON"}},
      {"NotObject", "[1]", corrupt, {"want an object"}},
      {"Deep", std::string(10000, '['), corrupt, {"not JSON"}},
      {"KeyTwice", text_of(llama, R"(,"hidden_size":128)"), corrupt, {"hidden_size", "twice"}},
      {"OtherArchitecture",
       text_of("GPT2LMHeadModel"),
       unsupported,
       {"architectures", "GPT2LMHeadModel", "LlamaForCausalLM"}},
      {"NoArchitecture", "{}", unsupported, {"model_type"}},
      {"MissingKey",
       R"({"architectures":["LlamaForCausalLM"],"num_hidden_layers":2})",
       corrupt,
       {"hidden_size", "missing"}},
      {"TextForNumber",
       text_of(llama, R"(,"head_dim":"16")"),
       corrupt,
       {"head_dim", "a string", "an integer"}},
      {"Negative", text_of(llama, R"(,"head_dim":-16)"), corrupt, {"head_dim", "-16"}},
      {"Fraction", text_of(llama, R"(,"head_dim":16.5)"), corrupt, {"head_dim", "16.5"}},
      {"TooLarge", text_of(llama, R"(,"head_dim":1e300)"), corrupt, {"head_dim", "4294967295"}},
      {"RopeYarn",
       text_of(llama, R"(,"rope_scaling":{"type":"yarn","factor":4.0})"),
       unsupported,
       {"rope_scaling", "type", "yarn", "llama3"}},
      {"RopeDynamic",
       text_of(llama, R"(,"rope_scaling":{"rope_type":"dynamic","factor":4.0})"),
       unsupported,
       {"rope_type", "dynamic"}},
      {"RopeNoFactor",
       text_of(llama, R"(,"rope_scaling":{"rope_type":"linear"})"),
       corrupt,
       {"rope_scaling", "factor"}},
      {"RopeFactorZero",
       text_of(llama, R"(,"rope_scaling":{"rope_type":"linear","factor":0})"),
       corrupt,
       {"factor"}},
      {"Activation",
       text_of(llama, R"(,"hidden_act":"gelu")"),
       unsupported,
       {"hidden_act", "gelu", "silu"}},
      {"AttentionBias",
       text_of(llama, R"(,"attention_bias":true)"),
       unsupported,
       {"attention_bias"}},
      {"PartialRotary",
       text_of(llama, R"(,"partial_rotary_factor":0.5)"),
       unsupported,
       {"partial_rotary_factor", "0.5"}},
      {"Quantised",
       text_of(llama, R"(,"quantization_config":{"quant_method":"gptq"})"),
       unsupported,
       {"quantization_config", "gptq"}},
      {"MixedWindow",
       text_of("Qwen2ForCausalLM",
               R"(,"sliding_window":64,"use_sliding_window":true,"max_window_layers":1)"),
       unsupported,
       {"max_window_layers", "1 of 2"}},
      {"MixedLayerTypes",
       text_of(
           "Qwen3ForCausalLM",
           R"(,"sliding_window":64,"use_sliding_window":true,"layer_types":["full_attention","sliding_attention"])"),
       unsupported,
       {"layer_types", "1 of 2"}},
      {"NoExperts", text_of("MixtralForCausalLM"), corrupt, {"num_local_experts", "missing"}},
      {"SparseStep",
       text_of(
           "Qwen3MoeForCausalLM",
           R"(,"num_experts":16,"num_experts_per_tok":4,"moe_intermediate_size":32,"decoder_sparse_step":2)"),
       unsupported,
       {"decoder_sparse_step", "2"}},
      {"EosNegative", text_of(llama, R"(,"eos_token_id":-1)"), corrupt, {"eos_token_id"}},
      {"EosText", text_of(llama, R"(,"eos_token_id":["a"])"), corrupt, {"eos_token_id"}},
  };
}

class HfConfigBad : public testing::TestWithParam<Bad> {};

TEST_P(HfConfigBad, IsRefusedByName) {
  const auto config = hf_config(GetParam().text, "config.json");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, GetParam().code) << config.error().message;
  EXPECT_TRUE(config.error().message.starts_with("config.json: ")) << config.error().message;
  for (const char* word : GetParam().words)
    EXPECT_NE(config.error().message.find(word), std::string::npos)
        << config.error().message << "\nwants: " << word;
}

INSTANTIATE_TEST_SUITE_P(Files, HfConfigBad, testing::ValuesIn(bad()),
                         [](const auto& i) { return std::string(i.param.name); });

TEST(HfGeneration, ReadsDefaultsAndEveryEos) {
  const auto read = hf_generation(
      R"({"eos_token_id":[151645,151643],"temperature":0.7,"top_p":0.8,"top_k":20,"repetition_penalty":1.05})",
      "g");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->eos, (std::vector<std::int32_t>{151645, 151643}));
  EXPECT_EQ(read->defaults.temperature, 0.7F);
  EXPECT_EQ(read->defaults.top_k, 20);
  EXPECT_FALSE(read->defaults.min_p.has_value());
}

TEST(HfTokenizerConfig, TokensAsObjects_TemplatesAsList) {
  const auto read = hf_tokenizer_config(
      R"({"add_bos_token":true,"bos_token":{"content":"<s>","lstrip":false},"eos_token":"</s>","unk_token":null,)"
      R"("chat_template":[{"name":"tool_use","template":"T"},{"name":"default","template":"D"}]})",
      "t");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_TRUE(read->add_bos);
  EXPECT_EQ(read->bos_token, "<s>");
  EXPECT_EQ(read->eos_token, "</s>");
  EXPECT_EQ(read->chat_template, "D");
}

TEST(HfTokenizerConfig, TokenOfWrongType_IsRefused) {
  const auto read = hf_tokenizer_config(R"({"bos_token":5})", "t");
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("bos_token"), std::string::npos);
}

}  // namespace
}  // namespace infos
