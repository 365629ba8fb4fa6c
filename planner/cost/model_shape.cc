// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/model_shape.h"

#include <algorithm>
#include <array>

namespace infos {
namespace {

AttentionShape grouped(std::uint32_t heads, std::uint32_t kv_heads, std::uint32_t dim,
                       std::uint32_t window = 0) {
  AttentionShape a;
  a.heads = heads, a.kv_heads = kv_heads, a.head_dim = dim, a.window = window;
  return a;
}

/// DeepSeek's: 128 + 64 dims a head for q and k, 128 for v.
AttentionShape latent(std::uint32_t heads, std::uint32_t q_rank) {
  AttentionShape a;
  a.kind = AttentionKind::latent;
  a.heads = heads, a.kv_heads = 1, a.head_dim = 128;
  a.q_rank = q_rank, a.kv_rank = 512, a.rope_dim = 64;
  return a;
}

FfnShape dense(std::uint32_t inter) { return {inter, 0, 0, 0}; }
FfnShape moe(std::uint32_t experts, std::uint32_t top_k, std::uint32_t inter,
             std::uint32_t shared = 0) {
  return {shared, experts, top_k, inter};
}

std::vector<ModelShape> make_shapes() {
  std::vector<ModelShape> all;
  const auto add = [&](const char* name, std::uint32_t hidden, std::uint32_t vocab,
                       std::vector<LayerGroup> groups) {
    all.push_back({name, hidden, vocab, std::move(groups)});
  };
  add("Llama-3.1-8B", 4096, 128256, {{32, grouped(32, 8, 128), dense(14336)}});
  add("Llama-3.1-70B", 8192, 128256, {{80, grouped(64, 8, 128), dense(28672)}});
  add("Llama-2-70B", 8192, 32000, {{80, grouped(64, 8, 128), dense(28672)}});
  add("OPT-13B", 5120, 50272, {{40, grouped(40, 40, 128), dense(13653)}});  // 2 x 5120 x 20480
  add("Qwen3-32B", 5120, 151936, {{64, grouped(64, 8, 128), dense(25600)}});
  add("Qwen3-30B-A3B", 2048, 151936, {{48, grouped(32, 4, 128), moe(128, 8, 768)}});
  add("Qwen3-235B-A22B", 4096, 151936, {{94, grouped(64, 4, 128), moe(128, 8, 1536)}});
  add("MiniMax-M2", 3072, 200064, {{62, grouped(48, 8, 128), moe(256, 8, 1536)}});
  add("gpt-oss-120b", 2880, 201088,
      {{18, grouped(64, 8, 64, 128), moe(128, 4, 2880)},
       {18, grouped(64, 8, 64), moe(128, 4, 2880)}});
  add("DeepSeek-V3", 7168, 129280,
      {{3, latent(128, 1536), dense(18432)}, {58, latent(128, 1536), moe(256, 8, 2048, 2048)}});
  add("Kimi-K2", 7168, 163840,
      {{1, latent(64, 1536), dense(18432)}, {60, latent(64, 1536), moe(384, 8, 2048, 2048)}});
  add("GLM-5", 6144, 154880,
      {{3, latent(64, 2048), dense(12288)}, {75, latent(64, 2048), moe(256, 8, 2048, 2048)}});
  AttentionShape full = grouped(32, 2, 256), delta = grouped(64, 16, 128);
  full.gated = true;
  delta.kind = AttentionKind::linear, delta.gated = true;
  add("Qwen3.5-397B-A17B", 4096, 248320,
      {{45, delta, moe(512, 10, 1024, 1024)}, {15, full, moe(512, 10, 1024, 1024)}});
  return all;
}

/// Other names of the same shapes: fine-tunes and later versions.
struct Alias {
  std::string_view part, name;
};
constexpr std::array kAliases = {
    Alias{"DeepSeek-R1", "DeepSeek-V3"},   Alias{"DeepSeek-V3", "DeepSeek-V3"},
    Alias{"Kimi-K2", "Kimi-K2"},           Alias{"MiniMax-M2", "MiniMax-M2"},
    Alias{"Llama-3.1-8B", "Llama-3.1-8B"}, Alias{"Llama-3.1-70B", "Llama-3.1-70B"},
};

}  // namespace

std::uint32_t ModelShape::layers() const {
  std::uint32_t sum = 0;
  for (const LayerGroup& group : groups) sum += group.layers;
  return sum;
}

ModelShape shape_of(const ModelConfig& config) {
  LayerGroup group{config.layers,
                   grouped(config.heads, config.kv_heads, config.head_dim, config.window),
                   dense(config.ffn_hidden)};
  if (config.experts > 0)
    group.ffn = moe(config.experts, config.experts_per_token, config.ffn_hidden);
  return {config.name, config.hidden, config.vocab, {group}};
}

std::span<const ModelShape> known_shapes() {
  static const std::vector<ModelShape> shapes = make_shapes();
  return shapes;
}

Result<ModelShape> find_shape(std::string_view name) {
  std::string_view wanted = name;
  for (const Alias& alias : kAliases)
    if (name.find(alias.part) != std::string_view::npos) wanted = alias.name;
  const ModelShape* best = nullptr;
  for (const ModelShape& shape : known_shapes())
    if (wanted.find(shape.name) != std::string_view::npos &&
        (!best || shape.name.size() > best->name.size()))
      best = &shape;
  if (best) return *best;
  std::string names;
  for (const ModelShape& shape : known_shapes()) names += (names.empty() ? "" : ", ") + shape.name;
  return Error{ErrorCode::not_found,
               "no shape '" + std::string(name.substr(0, 128)) + "'; known are " + names};
}

double dense_weights(const LayerGroup& group, std::uint32_t hidden) {
  const AttentionShape& a = group.attention;
  const double h = hidden, heads = double{1} * a.heads * a.head_dim;
  double weights = 0;
  switch (a.kind) {
    case AttentionKind::grouped:
      weights = h * (2 * heads + 2.0 * a.kv_heads * a.head_dim);
      break;
    case AttentionKind::latent:
      weights = h * (a.q_rank + a.kv_rank + a.rope_dim) +
                double{1} * a.q_rank * a.heads * (a.head_dim + a.rope_dim) +
                2.0 * a.kv_rank * heads + heads * h;
      break;
    case AttentionKind::linear:
      weights = h * (2.0 * a.kv_heads * a.head_dim + 2 * heads);
      break;
  }
  if (a.gated) weights += h * heads;
  weights += 3 * h * group.ffn.inter;
  return weights + h * group.ffn.experts;
}

double expert_weights(const LayerGroup& group, std::uint32_t hidden) {
  return 3.0 * hidden * group.ffn.expert_inter;
}

double kv_bytes(const AttentionShape& attention, double tp, double element_bytes) {
  switch (attention.kind) {
    case AttentionKind::grouped:
      return 2 * std::max(1.0, attention.kv_heads / tp) * attention.head_dim * element_bytes;
    case AttentionKind::latent:
      return (attention.kv_rank + attention.rope_dim) * element_bytes;
    case AttentionKind::linear:
      return 0;
  }
  return 0;
}

}  // namespace infos
