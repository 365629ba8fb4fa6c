// SPDX-License-Identifier: Apache-2.0
// ModelShape: what the cost of a model depends on, wider than what the engine serves: latent and
// linear attention, shared experts, layers that differ. Plain values; a few published models by
// name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/base/result.h"
#include "topology/model/model_config.h"

namespace infos {

enum class AttentionKind : std::uint8_t {
  grouped,  ///< multi-head with shared KV heads (GQA, MQA)
  latent,   ///< MLA: one compressed KV for all heads
  linear,   ///< a state of fixed size instead of KV (gated delta rule)
};

struct AttentionShape {
  AttentionKind kind = AttentionKind::grouped;
  std::uint32_t heads = 1;
  std::uint32_t kv_heads = 1;  ///< linear: heads of q and k
  std::uint32_t head_dim = 128;
  std::uint32_t window = 0;                             ///< tokens; 0: all
  std::uint32_t q_rank = 0, kv_rank = 0, rope_dim = 0;  ///< latent
  bool gated = false;  ///< the output is multiplied by a gate as wide as the heads
};

struct FfnShape {
  std::uint32_t inter = 0;  ///< of the dense part: the only one, or that of shared experts
  std::uint32_t experts = 0, top_k = 0, expert_inter = 0;
};

/// Layers alike.
struct LayerGroup {
  std::uint32_t layers = 1;
  AttentionShape attention;
  FfnShape ffn;
};

struct ModelShape {
  std::string name;
  std::uint32_t hidden = 0, vocab = 0;
  std::vector<LayerGroup> groups;
  std::uint32_t layers() const;
};

/// What the engine can serve.
ModelShape shape_of(const ModelConfig& config);

/// Published models that plans are made for before a checkpoint is there.
/// Source: config.json of each repository, read by hand; see the .cc.
std::span<const ModelShape> known_shapes();
/// By name or repository ("meta-llama/Llama-3.1-70B"). Errors: not_found.
Result<ModelShape> find_shape(std::string_view name);

/// Weights of one layer that every token meets, and of one expert.
double dense_weights(const LayerGroup& group, std::uint32_t hidden);
double expert_weights(const LayerGroup& group, std::uint32_t hidden);
/// Bytes of KV that a token adds in one layer on one of `tp` devices.
double kv_bytes(const AttentionShape& attention, double tp, double element_bytes);

}  // namespace infos
