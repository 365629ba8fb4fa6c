// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace infos {
namespace {

enum class Output { tied, own };

struct Shape {
  const char* name;
  ModelFamily family;
  std::uint32_t layers, hidden, ffn_hidden, heads, kv_heads, head_dim, vocab, max_context;
  double norm_epsilon, rope_theta;
  double llama3_factor;  ///< 0: RoPE is not scaled
  Output output;
  std::uint32_t experts, experts_per_token;
};

constexpr auto kLlama = ModelFamily::llama, kMistral = ModelFamily::mistral,
               kQwen2 = ModelFamily::qwen2, kQwen3 = ModelFamily::qwen3;

// Source: config.json of, in order, Qwen/Qwen2.5-0.5B, Qwen/Qwen2.5-1.5B, meta-llama/Llama-3.2-1B,
// meta-llama/Llama-3.1-8B, mistralai/Mistral-7B-v0.3, Qwen/Qwen3-0.6B on huggingface.co. The rest
// is ours: rows of whole 256-element blocks, so that every dtype fits.
constexpr Shape kShapes[] = {
    // layers, width, ffn, heads, kv heads, head dim, vocabulary, context, epsilon, theta, llama3
    // factor, output, experts
    {"qwen2.5-0.5b", kQwen2, 24, 896, 4864, 14, 2, 64, 151936, 32768, 1e-6, 1e6, 0, Output::tied, 0,
     0},
    {"qwen2.5-1.5b", kQwen2, 28, 1536, 8960, 12, 2, 128, 151936, 131072, 1e-6, 1e6, 0, Output::tied,
     0, 0},
    {"llama-3.2-1b", kLlama, 16, 2048, 8192, 32, 8, 64, 128256, 131072, 1e-5, 5e5, 32, Output::tied,
     0, 0},
    {"llama-3.1-8b", kLlama, 32, 4096, 14336, 32, 8, 128, 128256, 131072, 1e-5, 5e5, 8, Output::own,
     0, 0},
    {"mistral-7b", kMistral, 32, 4096, 14336, 32, 8, 128, 32768, 32768, 1e-5, 1e6, 0, Output::own,
     0, 0},
    {"qwen3-0.6b", kQwen3, 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e-6, 1e6, 0, Output::tied, 0,
     0},
    {"mixtral-tiny", kMistral, 4, 512, 1024, 8, 2, 64, 2048, 2048, 1e-5, 1e6, 0, Output::own, 8, 2},
    {"tiny-llama", kLlama, 2, 256, 512, 4, 2, 64, 512, 512, 1e-5, 5e5, 8, Output::tied, 0, 0},
    {"tiny-mistral", kMistral, 2, 256, 512, 4, 2, 64, 512, 512, 1e-5, 1e4, 0, Output::own, 0, 0},
    {"tiny-qwen2", kQwen2, 2, 256, 512, 4, 2, 64, 512, 512, 1e-6, 1e6, 0, Output::tied, 0, 0},
    {"tiny-qwen3", kQwen3, 2, 256, 512, 4, 2, 128, 512, 512, 1e-6, 1e6, 0, Output::tied, 0, 0},
    {"tiny-mixtral", kMistral, 2, 256, 512, 4, 2, 64, 512, 512, 1e-5, 1e6, 0, Output::own, 4, 2},
    {"tiny-qwen3-moe", kQwen3, 2, 256, 256, 4, 2, 64, 512, 512, 1e-6, 1e6, 0, Output::own, 8, 3},
};

ModelConfig config_of(const Shape& shape) {
  ModelConfig config;
  config.name = shape.name;
  config.family = shape.family;
  config.layers = shape.layers;
  config.hidden = shape.hidden;
  config.ffn_hidden = shape.ffn_hidden;
  config.heads = shape.heads;
  config.kv_heads = shape.kv_heads;
  config.head_dim = shape.head_dim;
  config.vocab = shape.vocab;
  config.max_context = shape.max_context;
  config.norm_epsilon = shape.norm_epsilon;
  config.rope_theta = shape.rope_theta;
  if (shape.llama3_factor > 0) {
    config.rope_scaling.kind = RopeScaling::Kind::llama3;
    config.rope_scaling.factor = shape.llama3_factor;
  }
  config.rope_adjacent_pairs = shape.family == kLlama || shape.family == kMistral;
  config.qkv_bias = shape.family == kQwen2;
  config.qk_norm = shape.family == kQwen3;
  config.tied_embeddings = shape.output == Output::tied;
  config.experts = shape.experts;
  config.experts_per_token = shape.experts_per_token;
  return config;
}

}  // namespace

std::vector<std::string> shape_names() {
  std::vector<std::string> out;
  for (const auto& shape : kShapes) out.emplace_back(shape.name);
  return out;
}

Result<ModelConfig> named_shape(std::string_view name) {
  for (const auto& shape : kShapes)
    if (name == shape.name) return config_of(shape);
  return Error{ErrorCode::not_found, fmt::format("shape \"{}\" is not known: want one of {}", name,
                                                 fmt::join(shape_names(), ", "))};
}

}  // namespace infos
