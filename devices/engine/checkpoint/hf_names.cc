// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/hf_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace infos {
namespace {

struct Pair {
  std::string_view hugging_face;
  std::string_view canonical;
};

constexpr Pair kModel[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
};

/// After "model.layers.N." and "blk.N.".
constexpr Pair kLayer[] = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.k_proj.weight", "attn_k.weight"},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"self_attn.q_proj.bias", "attn_q.bias"},
    {"self_attn.k_proj.bias", "attn_k.bias"},
    {"self_attn.v_proj.bias", "attn_v.bias"},
    {"self_attn.q_norm.weight", "attn_q_norm.weight"},
    {"self_attn.k_norm.weight", "attn_k_norm.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
};

/// The routing matrix and the experts: Mixtral's names, Qwen3-MoE's names.
constexpr std::string_view kMixtralRouter = "block_sparse_moe.gate.weight",
                           kQwenRouter = "mlp.gate.weight", kRouter = "ffn_gate_inp.weight";
constexpr std::string_view kMixtralExperts = "block_sparse_moe.experts.",
                           kQwenExperts = "mlp.experts.";
constexpr Pair kMixtralExpert[] = {{"w1", "ffn_gate"}, {"w2", "ffn_down"}, {"w3", "ffn_up"}};
constexpr Pair kQwenExpert[] = {
    {"gate_proj", "ffn_gate"}, {"down_proj", "ffn_down"}, {"up_proj", "ffn_up"}};

/// Cuts a decimal number and the dot after it from the front; empty when there is none.
std::string_view take_number(std::string_view& text) {
  const auto dot = text.find('.');
  if (dot == 0 || dot == std::string_view::npos || dot > 6) return {};
  const auto digits = text.substr(0, dot);
  if (!std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return {};
  if (digits.size() > 1 && digits[0] == '0') return {};
  text.remove_prefix(dot + 1);
  return digits;
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::optional<std::string> expert_to_canonical(std::string_view rest, std::span<const Pair> names) {
  const auto expert = take_number(rest);
  if (expert.empty()) return std::nullopt;
  for (const auto& pair : names)
    if (rest == fmt::format("{}.weight", pair.hugging_face))
      return fmt::format("{}.{}.weight", pair.canonical, expert);
  return std::nullopt;
}

std::optional<std::string> layer_to_canonical(std::string_view rest) {
  for (const auto& pair : kLayer)
    if (rest == pair.hugging_face) return std::string(pair.canonical);
  if (rest == kMixtralRouter || rest == kQwenRouter) return std::string(kRouter);
  if (take_prefix(rest, kMixtralExperts)) return expert_to_canonical(rest, kMixtralExpert);
  if (take_prefix(rest, kQwenExperts)) return expert_to_canonical(rest, kQwenExpert);
  return std::nullopt;
}

std::optional<std::string> layer_to_hugging_face(std::string_view rest, ModelFamily family) {
  const bool qwen = family == ModelFamily::qwen3;
  for (const auto& pair : kLayer)
    if (rest == pair.canonical) return std::string(pair.hugging_face);
  if (rest == kRouter) return std::string(qwen ? kQwenRouter : kMixtralRouter);
  for (const auto& pair : qwen ? kQwenExpert : kMixtralExpert) {
    auto part = rest;
    if (!take_prefix(part, fmt::format("{}.", pair.canonical))) continue;
    const auto expert = take_number(part);
    if (expert.empty() || part != "weight") return std::nullopt;
    return fmt::format("{}{}.{}.weight", qwen ? kQwenExperts : kMixtralExperts, expert,
                       pair.hugging_face);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> canonical_name(std::string_view name) {
  for (const auto& pair : kModel)
    if (name == pair.hugging_face) return std::string(pair.canonical);
  if (!take_prefix(name, "model.layers.")) return std::nullopt;
  const auto layer = take_number(name);
  if (layer.empty()) return std::nullopt;
  const auto rest = layer_to_canonical(name);
  if (!rest) return std::nullopt;
  return fmt::format("blk.{}.{}", layer, *rest);
}

std::optional<std::string> hugging_face_name(std::string_view name, ModelFamily family) {
  for (const auto& pair : kModel)
    if (name == pair.canonical) return std::string(pair.hugging_face);
  if (!take_prefix(name, "blk.")) return std::nullopt;
  const auto layer = take_number(name);
  if (layer.empty()) return std::nullopt;
  const auto rest = layer_to_hugging_face(name, family);
  if (!rest) return std::nullopt;
  return fmt::format("model.layers.{}.{}", layer, *rest);
}

}  // namespace infos
