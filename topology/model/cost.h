// SPDX-License-Identifier: Apache-2.0
// What a model costs: weights, arithmetic, KV bytes and memory, from its config alone. Exact counts
// of the tensors that the engine loads; expected values where routing decides. Pure; any thread.
// Never measures: that is a profile's.
#pragma once

#include <cstdint>

#include "topology/base/result.h"
#include "topology/base/units.h"
#include "topology/model/model_config.h"

namespace infos {

/// How matrices are stored. The q formats are GGUF's block formats.
enum class WeightFormat { f32, f16, bf16, f8, i8, q8_0, q4_0, q4_k, q6_k };
const char* to_string(WeightFormat format);
/// Errors: invalid_argument, naming the words allowed.
Result<WeightFormat> parse_weight_format(std::string_view word);

/// Weights of one block and the bytes they take; 1 weight for plain formats.
struct WeightBlock {
  std::uint32_t weights = 1;
  std::uint32_t bytes = 4;
};
WeightBlock weight_block(WeightFormat format);

/// Numbers of weights, over all layers.
struct WeightCounts {
  std::uint64_t embedding = 0;
  std::uint64_t output = 0;     ///< 0 when tied to the embedding
  std::uint64_t attention = 0;  ///< q, k, v, o matrices
  std::uint64_t ffn = 0;        ///< gate, up, down matrices of all experts
  std::uint64_t router = 0;
  std::uint64_t vectors = 0;  ///< norms and biases
  std::uint64_t total() const { return embedding + output + attention + ffn + router + vectors; }
};
WeightCounts weight_counts(const ModelConfig& config);

/// Bytes of all tensors: matrices in `format` (each row a whole number of blocks), norms, biases
/// and routers in f32.
Bytes weight_bytes(const ModelConfig& config, WeightFormat format);

/// Bytes of one token's keys and values in all layers. `element_bytes`: 2 for f16 and bf16, 4 for
/// f32.
Bytes kv_bytes_per_token(const ModelConfig& config, std::uint32_t element_bytes);

/// How many different experts of a layer `tokens` tokens reach, if each picks its own uniformly.
/// Returns: expected value in [experts_per_token, experts]; 0 for a dense model or no tokens.
double experts_touched(const ModelConfig& config, std::uint64_t tokens);

/// A piece of one sequence: `tokens` new ones after `context` old ones.
struct SequenceWork {
  std::uint64_t tokens = 1;
  std::uint64_t context = 0;
  std::uint64_t logit_rows = 1;  ///< for how many of the new tokens the vocabulary is scored
};
/// Multiplications and additions of the matrices and of attention (a multiply-add counts two;
/// norms, activations and softmax, below 1 %, count nothing). Prefill of n: {n, 0, 1}; one decode
/// step: {1, context, 1}.
double sequence_flops(const ModelConfig& config, const SequenceWork& work);

/// Bytes that one decode step reads: the weights once (of the experts touched), and the KV of each
/// sequence.
struct DecodeStep {
  std::uint64_t sequences = 1;
  std::uint64_t context = 0;  ///< mean tokens of a sequence
  WeightFormat format = WeightFormat::bf16;
  std::uint32_t kv_element_bytes = 2;
};
double decode_step_bytes(const ModelConfig& config, const DecodeStep& step);

/// Memory of a worker that holds the whole model.
struct MemoryPlan {
  WeightFormat format = WeightFormat::bf16;
  std::uint32_t kv_element_bytes = 2;
  std::uint64_t sequences = 1;
  std::uint64_t context = 0;  ///< tokens of each sequence
  std::uint32_t block_tokens = 16;
  std::uint64_t max_step_tokens = 512;
};
struct MemoryNeed {
  Bytes weights;
  Bytes kv;       ///< whole blocks
  Bytes scratch;  ///< activations of one step and logits, in f32: an upper estimate
  Bytes total() const { return weights + kv + scratch; }
};
MemoryNeed memory_need(const ModelConfig& config, const MemoryPlan& plan);

}  // namespace infos
