// SPDX-License-Identifier: Apache-2.0
#include "topology/model/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

namespace infos {
namespace {

constexpr std::array kFormats = {WeightFormat::f32,  WeightFormat::f16,  WeightFormat::bf16,
                                 WeightFormat::f8,   WeightFormat::i8,   WeightFormat::q8_0,
                                 WeightFormat::q4_0, WeightFormat::q4_k, WeightFormat::q6_k};

/// A matrix [rows, columns] that exists `count` times.
struct Matrix {
  std::uint64_t count, rows, columns;
  std::uint64_t weights() const { return count * rows * columns; }
  std::uint64_t bytes(WeightFormat format) const {
    const WeightBlock block = weight_block(format);
    return count * rows * ((columns + block.weights - 1) / block.weights) * block.bytes;
  }
};

/// The matrices of one layer, those of one expert apart.
struct LayerMatrices {
  Matrix q, kv, o, gate_up, down;
  explicit LayerMatrices(const ModelConfig& c)
      : q{1, std::uint64_t{c.heads} * c.head_dim, c.hidden},
        kv{2, std::uint64_t{c.kv_heads} * c.head_dim, c.hidden},
        o{1, c.hidden, std::uint64_t{c.heads} * c.head_dim},
        gate_up{2, c.ffn_hidden, c.hidden},
        down{1, c.hidden, c.ffn_hidden} {}
  std::uint64_t attention() const { return q.weights() + kv.weights() + o.weights(); }
  std::uint64_t attention_bytes(WeightFormat f) const {
    return q.bytes(f) + kv.bytes(f) + o.bytes(f);
  }
  std::uint64_t expert() const { return gate_up.weights() + down.weights(); }
  std::uint64_t expert_bytes(WeightFormat f) const { return gate_up.bytes(f) + down.bytes(f); }
};

std::uint64_t experts_held(const ModelConfig& c) { return std::max<std::uint64_t>(c.experts, 1); }
std::uint64_t experts_used(const ModelConfig& c) { return c.experts > 0 ? c.experts_per_token : 1; }

}  // namespace

const char* to_string(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32:
      return "f32";
    case WeightFormat::f16:
      return "f16";
    case WeightFormat::bf16:
      return "bf16";
    case WeightFormat::f8:
      return "f8";
    case WeightFormat::i8:
      return "i8";
    case WeightFormat::q8_0:
      return "q8_0";
    case WeightFormat::q4_0:
      return "q4_0";
    case WeightFormat::q4_k:
      return "q4_k";
    case WeightFormat::q6_k:
      return "q6_k";
  }
  return "unknown";
}

Result<WeightFormat> parse_weight_format(std::string_view word) {
  std::string words;
  for (const WeightFormat format : kFormats) {
    if (word == to_string(format)) return format;
    words += (words.empty() ? "" : ", ") + std::string(to_string(format));
  }
  return Error{
      ErrorCode::invalid_argument,
      fmt::format("'{}' is not a weight format: want one of {}", word.substr(0, 64), words)};
}

WeightBlock weight_block(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32:
      return {1, 4};
    case WeightFormat::f16:
    case WeightFormat::bf16:
      return {1, 2};
    case WeightFormat::f8:
    case WeightFormat::i8:
      return {1, 1};
    case WeightFormat::q8_0:
      return {32, 34};
    case WeightFormat::q4_0:
      return {32, 18};
    case WeightFormat::q4_k:
      return {256, 144};
    case WeightFormat::q6_k:
      return {256, 210};
  }
  return {};
}

WeightCounts weight_counts(const ModelConfig& c) {
  const LayerMatrices layer(c);
  WeightCounts out;
  out.embedding = std::uint64_t{c.vocab} * c.hidden;
  out.output = c.tied_embeddings ? 0 : out.embedding;
  out.attention = c.layers * layer.attention();
  out.ffn = c.layers * experts_held(c) * layer.expert();
  out.router = std::uint64_t{c.layers} * c.experts * c.hidden;
  std::uint64_t per_layer = 2 * std::uint64_t{c.hidden};
  if (c.qkv_bias)
    per_layer += (std::uint64_t{c.heads} + 2 * std::uint64_t{c.kv_heads}) * c.head_dim;
  if (c.qk_norm) per_layer += 2 * std::uint64_t{c.head_dim};
  out.vectors = c.layers * per_layer + c.hidden;
  return out;
}

Bytes weight_bytes(const ModelConfig& c, WeightFormat format) {
  const LayerMatrices layer(c);
  const WeightCounts counts = weight_counts(c);
  const Matrix vocabulary{c.tied_embeddings ? 1U : 2U, c.vocab, c.hidden};
  const std::uint64_t layers =
      c.layers * (layer.attention_bytes(format) + experts_held(c) * layer.expert_bytes(format));
  return Bytes{layers + vocabulary.bytes(format) + 4 * (counts.vectors + counts.router)};
}

Bytes kv_bytes_per_token(const ModelConfig& c, std::uint32_t element_bytes) {
  return Bytes{2 * std::uint64_t{c.layers} * c.kv_heads * c.head_dim * element_bytes};
}

double experts_touched(const ModelConfig& c, std::uint64_t tokens) {
  if (c.experts == 0 || tokens == 0) return 0;
  const double missed = 1.0 - static_cast<double>(c.experts_per_token) / c.experts;
  return c.experts * (1.0 - std::pow(missed, static_cast<double>(tokens)));
}

double sequence_flops(const ModelConfig& c, const SequenceWork& work) {
  const LayerMatrices layer(c);
  const auto tokens = static_cast<double>(work.tokens);
  const double active = static_cast<double>(layer.attention() + experts_used(c) * layer.expert()) +
                        static_cast<double>(c.experts) * c.hidden;
  const double matrices = 2.0 * tokens * c.layers * active;
  const double output = 2.0 * static_cast<double>(work.logit_rows) * c.vocab * c.hidden;
  // Token i of the new ones sees context + i + 1 positions, itself included, or the window.
  double seen = 0;
  const auto first = static_cast<double>(work.context) + 1;
  const double last = first + tokens - 1;
  const double window = c.window > 0 ? c.window : INFINITY;
  if (last <= window) {
    seen = tokens * (first + last) / 2;
  } else if (first >= window) {
    seen = tokens * window;
  } else {
    const double below = window - first;  // tokens that see less than the window
    seen = below * (first + window - 1) / 2 + (tokens - below) * window;
  }
  const double attention = 4.0 * c.layers * c.heads * c.head_dim * seen;
  return matrices + output + attention;
}

double decode_step_bytes(const ModelConfig& c, const DecodeStep& step) {
  const LayerMatrices layer(c);
  const double experts = c.experts > 0 ? experts_touched(c, step.sequences) : 1.0;
  const WeightCounts counts = weight_counts(c);
  const double weights =
      c.layers * (static_cast<double>(layer.attention_bytes(step.format)) +
                  experts * static_cast<double>(layer.expert_bytes(step.format))) +
      static_cast<double>(Matrix{1, c.vocab, c.hidden}.bytes(step.format)) +
      4.0 * static_cast<double>(counts.vectors + counts.router);
  const std::uint64_t seen =
      c.window > 0 ? std::min<std::uint64_t>(step.context, c.window) : step.context;
  const double kv = static_cast<double>(step.sequences * seen) *
                    static_cast<double>(kv_bytes_per_token(c, step.kv_element_bytes).value);
  return weights + kv;
}

MemoryNeed memory_need(const ModelConfig& c, const MemoryPlan& plan) {
  INFOS_CHECK(plan.block_tokens > 0);
  MemoryNeed need;
  need.weights = weight_bytes(c, plan.format);
  const std::uint64_t blocks = (plan.context + plan.block_tokens - 1) / plan.block_tokens;
  need.kv =
      kv_bytes_per_token(c, plan.kv_element_bytes) * (blocks * plan.block_tokens * plan.sequences);
  const std::uint64_t qkv = (std::uint64_t{c.heads} + 2 * std::uint64_t{c.kv_heads}) * c.head_dim;
  const std::uint64_t ffn = 2 * experts_used(c) * std::uint64_t{c.ffn_hidden};
  const std::uint64_t row = 3 * std::uint64_t{c.hidden} + std::max(2 * qkv, ffn);
  need.scratch = Bytes{4 * (plan.max_step_tokens * row + plan.sequences * c.vocab)};
  return need;
}

}  // namespace infos
