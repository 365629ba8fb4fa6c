// SPDX-License-Identifier: Apache-2.0
// What the checks compute with: a small random model on a device, sequences over a KV pool, and the
// same on the reference.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "devices/engine/graph/phase_graph.h"
#include "devices/host/device.h"

namespace infos::conformance {

/// A small model config of each graph shape: "llama", "mistral", "qwen2", "qwen3", "mixtral".
/// Widths are multiples of 256 when `dtype` has blocks of 256.
ModelConfig tiny_config(const std::string& name, std::uint32_t dtype);

/// Random weights for every weight and constant of a graph; the same for the same config, dtype and
/// seed.
class RandomWeights {
 public:
  RandomWeights(const PhaseGraph& graph, const ModelConfig& config, std::uint32_t dtype,
                std::uint64_t seed);
  /// An infos_weight_source; `context` is a RandomWeights.
  static infos_code source(void* context, std::uint32_t tensor, std::uint32_t layer,
                           infos_weight* out);
  infos_weight& weight(std::uint32_t tensor, std::uint32_t layer) {
    return weights_[tensor][layer];
  }

 private:
  std::vector<std::vector<infos_weight>> weights_;
  std::vector<std::vector<std::byte>> bytes_;
};

/// One sequence's rows in a batch.
struct Rows {
  std::uint32_t sequence = 0;  ///< has blocks [sequence * kBlocksEach, ...) of the pool
  std::uint32_t start = 0;
  std::vector<std::int32_t> tokens;
};

/// A batch's arrays; every row's logits are wanted. The arrays may be changed before use.
struct Batch {
  std::vector<std::int32_t> tokens, positions;
  std::vector<std::uint32_t> row_begin, table, table_begin, logit_rows;
  std::vector<float> logits;
  infos_batch view();
};

inline constexpr std::uint32_t kBlockTokens = 4;
inline constexpr std::uint32_t kBlocksEach = 8;
inline constexpr std::uint32_t kSequences = 4;
inline constexpr infos_bucket kBucket = {sizeof(infos_bucket), 64, kSequences,
                                         kBlockTokens* kBlocksEach};

Batch make_batch(const std::vector<Rows>& rows, std::uint32_t vocab);
/// Tokens of a sequence, the same for the same seed.
std::vector<std::int32_t> random_tokens(std::uint32_t n, std::uint32_t vocab, std::uint64_t seed);

infos_kv_config kv_config(const ModelConfig& config);

/// A loaded model. Members go in the order in which they were made.
struct TinyModel {
  ModelConfig config;
  PhaseGraph graph;
  std::unique_ptr<RandomWeights> weights;
  Device device;
  Artifact artifact;
  Program program;
  KvPool kv;

  /// Errors: what the plugin says.
  static Result<TinyModel> load(const Plugin& plugin, const std::string& options,
                                const ModelConfig& config, std::uint32_t dtype,
                                std::uint32_t threads = 2);
  /// Logits of every row, [rows, vocab].
  Result<std::vector<float>> run(const std::vector<Rows>& rows);
};

}  // namespace infos::conformance
