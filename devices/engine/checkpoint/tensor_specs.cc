// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/tensor_specs.h"

#include <fmt/format.h>

namespace infos {
namespace {

using Visit = std::function<Status(const TensorSpec&)>;

class Walk {
 public:
  Walk(const ModelConfig& config, const Visit& visit)
      : config_(config),
        visit_(visit),
        d_(config.hidden),
        f_(config.ffn_hidden),
        n_(config.experts) {}

  Status attention(const std::string& prefix) const {
    const std::int64_t q = std::int64_t{config_.heads} * config_.head_dim,
                       kv = std::int64_t{config_.kv_heads} * config_.head_dim;
    INFOS_TRY(visit_({prefix + "attn_norm.weight", TensorRole::norm, {d_}}));
    INFOS_TRY(visit_({prefix + "attn_q.weight", TensorRole::matrix, {q, d_}}));
    INFOS_TRY(visit_({prefix + "attn_k.weight", TensorRole::matrix, {kv, d_}}));
    INFOS_TRY(visit_({prefix + "attn_v.weight", TensorRole::matrix, {kv, d_}}));
    INFOS_TRY(visit_({prefix + "attn_output.weight", TensorRole::matrix, {d_, q}}));
    if (config_.qkv_bias) {
      INFOS_TRY(visit_({prefix + "attn_q.bias", TensorRole::bias, {q}}));
      INFOS_TRY(visit_({prefix + "attn_k.bias", TensorRole::bias, {kv}}));
      INFOS_TRY(visit_({prefix + "attn_v.bias", TensorRole::bias, {kv}}));
    }
    if (config_.qk_norm) {
      INFOS_TRY(visit_({prefix + "attn_q_norm.weight", TensorRole::norm, {config_.head_dim}}));
      INFOS_TRY(visit_({prefix + "attn_k_norm.weight", TensorRole::norm, {config_.head_dim}}));
    }
    return visit_({prefix + "ffn_norm.weight", TensorRole::norm, {d_}});
  }

  Status dense_ffn(const std::string& prefix) const {
    INFOS_TRY(visit_({prefix + "ffn_gate.weight", TensorRole::matrix, {f_, d_}}));
    INFOS_TRY(visit_({prefix + "ffn_up.weight", TensorRole::matrix, {f_, d_}}));
    return visit_({prefix + "ffn_down.weight", TensorRole::matrix, {d_, f_}});
  }

  Status expert_ffn(const std::string& prefix, ExpertForm form) const {
    INFOS_TRY(visit_({prefix + "ffn_gate_inp.weight", TensorRole::router, {n_, d_}}));
    if (form == ExpertForm::stacked) {
      INFOS_TRY(visit_({prefix + "ffn_gate_exps.weight", TensorRole::matrix, {n_, f_, d_}}));
      INFOS_TRY(visit_({prefix + "ffn_up_exps.weight", TensorRole::matrix, {n_, f_, d_}}));
      return visit_({prefix + "ffn_down_exps.weight", TensorRole::matrix, {n_, d_, f_}});
    }
    for (std::int64_t e = 0; e < n_; ++e) {
      INFOS_TRY(
          visit_({fmt::format("{}ffn_gate.{}.weight", prefix, e), TensorRole::matrix, {f_, d_}}));
      INFOS_TRY(
          visit_({fmt::format("{}ffn_up.{}.weight", prefix, e), TensorRole::matrix, {f_, d_}}));
      INFOS_TRY(
          visit_({fmt::format("{}ffn_down.{}.weight", prefix, e), TensorRole::matrix, {d_, f_}}));
    }
    return {};
  }

 private:
  const ModelConfig& config_;
  const Visit& visit_;
  std::int64_t d_, f_, n_;
};

}  // namespace

Status visit_tensors(const ModelConfig& config, ExpertForm form, const Visit& visit) {
  const Walk walk(config, visit);
  const std::int64_t d = config.hidden;
  INFOS_TRY(visit({"token_embd.weight", TensorRole::matrix, {config.vocab, d}}));
  for (std::uint32_t layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    INFOS_TRY(walk.attention(prefix));
    INFOS_TRY(config.experts > 0 ? walk.expert_ffn(prefix, form) : walk.dense_ffn(prefix));
  }
  INFOS_TRY(visit({"output_norm.weight", TensorRole::norm, {d}}));
  if (!config.tied_embeddings)
    INFOS_TRY(visit({"output.weight", TensorRole::matrix, {config.vocab, d}}));
  return {};
}

}  // namespace infos
