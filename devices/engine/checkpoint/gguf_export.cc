// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/gguf_export.h"

#include <cmath>
#include <numbers>

namespace infos {
namespace {

std::string key(const ModelConfig& config, const char* name) {
  return std::string(gguf_architecture(config)) + "." + name;
}

/// The number that general.file_type has for files of mostly this dtype.
std::uint32_t file_type(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 1;
    case DType::q4_0:
      return 2;
    case DType::q8_0:
      return 7;
    case DType::q4_k:
      return 15;
    case DType::q6_k:
      return 18;
    case DType::bf16:
      return 32;
    default:
      return 0;
  }
}

void add_architecture(GgufHeader& header, const ModelConfig& config) {
  header.add_u32(key(config, "vocab_size"), config.vocab);
  header.add_u32(key(config, "context_length"), config.max_context);
  header.add_u32(key(config, "embedding_length"), config.hidden);
  header.add_u32(key(config, "block_count"), config.layers);
  header.add_u32(key(config, "feed_forward_length"), config.ffn_hidden);
  header.add_u32(key(config, "attention.head_count"), config.heads);
  header.add_u32(key(config, "attention.head_count_kv"), config.kv_heads);
  header.add_u32(key(config, "attention.key_length"), config.head_dim);
  header.add_u32(key(config, "attention.value_length"), config.head_dim);
  header.add_f32(key(config, "attention.layer_norm_rms_epsilon"),
                 static_cast<float>(config.norm_epsilon));
  if (config.window > 0) header.add_u32(key(config, "attention.sliding_window"), config.window);
  header.add_u32(key(config, "rope.dimension_count"), config.head_dim);
  header.add_f32(key(config, "rope.freq_base"), static_cast<float>(config.rope_theta));
  if (config.rope_scaling.kind == RopeScaling::Kind::linear) {
    header.add_text(key(config, "rope.scaling.type"), "linear");
    header.add_f32(key(config, "rope.scaling.factor"),
                   static_cast<float>(config.rope_scaling.factor));
  }
  if (config.experts == 0) return;
  header.add_u32(key(config, "expert_count"), config.experts);
  header.add_u32(key(config, "expert_used_count"), config.experts_per_token);
  header.add_u32(key(config, "expert_feed_forward_length"), config.ffn_hidden);
  header.add_flag(key(config, "expert_weights_norm"), config.renormalise_experts);
}

void add_id(GgufHeader& header, const char* name, std::int32_t id) {
  if (id >= 0) header.add_u32(name, static_cast<std::uint32_t>(id));
}

void add_tokenizer(GgufHeader& header, const TokenizerSource& source) {
  const auto& gguf = *source.gguf;
  header.add_text("tokenizer.ggml.model", gguf.model);
  header.add_text("tokenizer.ggml.pre", gguf.pre);
  header.add_texts("tokenizer.ggml.tokens", gguf.tokens);
  if (!gguf.scores.empty()) header.add_floats("tokenizer.ggml.scores", gguf.scores);
  header.add_integers("tokenizer.ggml.token_type", gguf.types);
  if (!gguf.merges.empty()) header.add_texts("tokenizer.ggml.merges", gguf.merges);
  add_id(header, "tokenizer.ggml.bos_token_id", gguf.bos);
  add_id(header, "tokenizer.ggml.eos_token_id", gguf.eos);
  add_id(header, "tokenizer.ggml.unknown_token_id", gguf.unknown);
  add_id(header, "tokenizer.ggml.padding_token_id", gguf.padding);
  header.add_flag("tokenizer.ggml.add_bos_token", gguf.add_bos);
  header.add_flag("tokenizer.ggml.add_eos_token", gguf.add_eos);
  header.add_flag("tokenizer.ggml.add_space_prefix", gguf.add_space_prefix);
  if (!source.chat_template.empty())
    header.add_text("tokenizer.chat_template", source.chat_template);
}

}  // namespace

const char* gguf_architecture(const ModelConfig& config) {
  switch (config.family) {
    case ModelFamily::llama:
    case ModelFamily::mistral:
      return "llama";
    case ModelFamily::qwen2:
      return "qwen2";
    case ModelFamily::qwen3:
      return config.experts > 0 ? "qwen3moe" : "qwen3";
  }
  return "llama";
}

Result<GgufHeader> gguf_header(const ModelConfig& config, const TokenizerSource& tokenizer,
                               DType dtype) {
  const bool is_llama =
      config.family == ModelFamily::llama || config.family == ModelFamily::mistral;
  if (config.rope_adjacent_pairs != is_llama)
    return Error{ErrorCode::unsupported,
                 std::string("rotary rows of a ") + to_string(config.family) + " model: want " +
                     (is_llama ? "adjacent pairs" : "halves") + " to write GGUF"};
  if (!tokenizer.tokenizer_json.empty())
    return Error{ErrorCode::unsupported, "a tokenizer.json cannot be written as GGUF keys"};
  GgufHeader header;
  header.add_text("general.architecture", gguf_architecture(config));
  header.add_text("general.name", config.name);
  header.add_u32("general.file_type", file_type(dtype));
  if (block_shape(dtype).elements > 1) header.add_u32("general.quantization_version", 2);
  add_architecture(header, config);
  if (tokenizer.gguf) add_tokenizer(header, tokenizer);
  return header;
}

std::vector<float> rope_divisors(const ModelConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.kind == RopeScaling::Kind::table) return scaling.divisors;
  if (scaling.kind != RopeScaling::Kind::llama3) return {};
  std::vector<float> out;
  for (std::uint32_t i = 0; i < config.head_dim / 2; ++i) {
    const double frequency = std::pow(config.rope_theta, -2.0 * i / config.head_dim);
    // How often the rotation turns within the context that the model was first trained for.
    const double turns = scaling.original_context * frequency / (2 * std::numbers::pi);
    const double part =
        (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
    if (turns > scaling.high_freq_factor)
      out.push_back(1.0F);
    else if (turns < scaling.low_freq_factor)
      out.push_back(static_cast<float>(scaling.factor));
    else
      out.push_back(static_cast<float>(1 / ((1 - part) / scaling.factor + part)));
  }
  return out;
}

}  // namespace infos
