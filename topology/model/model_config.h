// SPDX-License-Identifier: Apache-2.0
// What a transformer is, as far as planning and building its phase graph need to know. Filled by
// the checkpoint reader (config.json or GGUF metadata) or by a named shape; checked by validate().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/base/result.h"

namespace infos {

/// Families whose graphs differ. Mixtral and Qwen3-MoE are `mistral`/`qwen3` with experts > 0.
enum class ModelFamily { llama, mistral, qwen2, qwen3 };
const char* to_string(ModelFamily family);

/// How rotary frequencies are stretched for long contexts.
struct RopeScaling {
  enum class Kind { none, linear, llama3, table };
  Kind kind = Kind::none;
  double factor = 1.0;
  double low_freq_factor = 1.0;    ///< llama3
  double high_freq_factor = 4.0;   ///< llama3
  double original_context = 8192;  ///< llama3, tokens
  std::vector<float> divisors;     ///< table [head_dim / 2]: frequency i is divided by divisors[i]
};

struct ModelConfig {
  std::string name;
  ModelFamily family = ModelFamily::llama;
  std::uint32_t layers = 0;
  std::uint32_t hidden = 0;      ///< model width d
  std::uint32_t ffn_hidden = 0;  ///< per expert when experts > 0
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t vocab = 0;
  std::uint32_t max_context = 0;  ///< tokens
  double norm_epsilon = 1e-5;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  bool rope_adjacent_pairs = false;  ///< true for GGUF's permuted Llama and Mistral tensors
  bool qkv_bias = false;             ///< Qwen2
  bool qk_norm = false;              ///< Qwen3: RMSNorm on each head of q and k
  bool tied_embeddings = false;      ///< the output matrix is the embedding table
  std::uint32_t window = 0;          ///< sliding window in tokens, 0: none
  std::uint32_t experts = 0;         ///< 0: dense
  std::uint32_t experts_per_token = 0;
  bool renormalise_experts = true;  ///< top-k weights are scaled to sum 1
  std::int32_t bos = -1;            ///< token ids, -1: none
  std::vector<std::int32_t> eos;    ///< every token that ends an answer

  /// Errors: invalid_argument, naming the field, its value and the values allowed.
  Status validate() const;
};

}  // namespace infos
