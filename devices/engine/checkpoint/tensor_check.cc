// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/tensor_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <string_view>
#include <unordered_map>

namespace infos {
namespace {

using Dims = std::vector<std::int64_t>;

class TensorCheck {
 public:
  TensorCheck(const ModelConfig& config, std::span<const TensorView> tensors, const std::string& label)
      : config_(config), label_(label) {
    for (const auto& tensor : tensors) by_name_.emplace(tensor.name, &tensor);
  }

  Status run() {
    const std::int64_t d = config_.hidden;
    INFOS_TRY(matrix("token_embd.weight", {config_.vocab, d}));
    INFOS_TRY(vector("output_norm.weight", d));
    if (!config_.tied_embeddings) INFOS_TRY(matrix("output.weight", {config_.vocab, d}));
    for (std::uint32_t layer = 0; layer < config_.layers; ++layer) {
      const std::string prefix = fmt::format("blk.{}.", layer);
      INFOS_TRY(attention(prefix));
      INFOS_TRY(config_.experts > 0 ? expert_ffn(prefix) : dense_ffn(prefix));
    }
    by_name_.erase("rope_freqs.weight");  // already read into the configuration
    if (!by_name_.empty()) return left_over();
    return {};
  }

 private:
  Status attention(const std::string& prefix) {
    const std::int64_t d = config_.hidden, q = std::int64_t{config_.heads} * config_.head_dim,
                       kv = std::int64_t{config_.kv_heads} * config_.head_dim;
    INFOS_TRY(vector(prefix + "attn_norm.weight", d));
    INFOS_TRY(matrix(prefix + "attn_q.weight", {q, d}));
    INFOS_TRY(matrix(prefix + "attn_k.weight", {kv, d}));
    INFOS_TRY(matrix(prefix + "attn_v.weight", {kv, d}));
    INFOS_TRY(matrix(prefix + "attn_output.weight", {d, q}));
    if (config_.qkv_bias) {
      INFOS_TRY(vector(prefix + "attn_q.bias", q));
      INFOS_TRY(vector(prefix + "attn_k.bias", kv));
      INFOS_TRY(vector(prefix + "attn_v.bias", kv));
    }
    if (config_.qk_norm) {
      INFOS_TRY(vector(prefix + "attn_q_norm.weight", config_.head_dim));
      INFOS_TRY(vector(prefix + "attn_k_norm.weight", config_.head_dim));
    }
    return vector(prefix + "ffn_norm.weight", d);
  }

  Status dense_ffn(const std::string& prefix) {
    const std::int64_t d = config_.hidden, f = config_.ffn_hidden;
    INFOS_TRY(matrix(prefix + "ffn_gate.weight", {f, d}));
    INFOS_TRY(matrix(prefix + "ffn_up.weight", {f, d}));
    return matrix(prefix + "ffn_down.weight", {d, f});
  }

  Status expert_ffn(const std::string& prefix) {
    const std::int64_t d = config_.hidden, f = config_.ffn_hidden, n = config_.experts;
    INFOS_TRY(matrix(prefix + "ffn_gate_inp.weight", {n, d}));
    if (by_name_.count(prefix + "ffn_gate_exps.weight")) {
      INFOS_TRY(matrix(prefix + "ffn_gate_exps.weight", {n, f, d}));
      INFOS_TRY(matrix(prefix + "ffn_up_exps.weight", {n, f, d}));
      return matrix(prefix + "ffn_down_exps.weight", {n, d, f});
    }
    for (std::int64_t e = 0; e < n; ++e) {
      INFOS_TRY(matrix(fmt::format("{}ffn_gate.{}.weight", prefix, e), {f, d}));
      INFOS_TRY(matrix(fmt::format("{}ffn_up.{}.weight", prefix, e), {f, d}));
      INFOS_TRY(matrix(fmt::format("{}ffn_down.{}.weight", prefix, e), {d, f}));
    }
    return {};
  }

  Error error(ErrorCode code, const std::string& name, const std::string& what) const {
    return {code, fmt::format("{}: tensor \"{}\": {}", label_, name, what)};
  }

  Result<DType> take(const std::string& name, const Dims& dims) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return error(ErrorCode::corrupt, name, "is missing");
    const TensorView& tensor = *found->second;
    if (tensor.dims != dims)
      return error(ErrorCode::corrupt, name, fmt::format("shape is {}: want {}", tensor.dims, dims));
    by_name_.erase(found);
    return tensor.dtype;
  }

  Status matrix(const std::string& name, const Dims& dims) {
    const DType dtype = INFOS_TRY(take(name, dims));
    if (dtype == DType::i8 || dtype == DType::i32 || dtype == DType::f64)
      return error(ErrorCode::unsupported, name,
                   fmt::format("dtype is {}: want f32, f16, bf16, q8_0, q4_0, q4_k or q6_k", to_string(dtype)));
    return {};
  }

  Status vector(const std::string& name, std::int64_t length) {
    const DType dtype = INFOS_TRY(take(name, {length}));
    if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16)
      return error(ErrorCode::unsupported, name, fmt::format("dtype is {}: want f32, f16 or bf16", to_string(dtype)));
    return {};
  }

  Status left_over() const {
    std::set<std::string_view> names;
    for (const auto& [name, tensor] : by_name_) names.insert(name);
    return error(ErrorCode::unsupported, std::string(*names.begin()),
                 fmt::format("is not a weight of a {} model{}", to_string(config_.family),
                             names.size() > 1 ? fmt::format(" (nor are {} others)", names.size() - 1) : ""));
  }

  const ModelConfig& config_;
  const std::string& label_;
  std::unordered_map<std::string_view, const TensorView*> by_name_;
};

}  // namespace

Status check_tensors(const ModelConfig& config, std::span<const TensorView> tensors, const std::string& label) {
  return TensorCheck(config, tensors, label).run();
}

}  // namespace infos
