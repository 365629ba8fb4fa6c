// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/graph/phase_graph.h"

#include <cmath>
#include <cstring>

#include "topology/base/check.h"

namespace infos {

std::uint32_t PhaseGraph::add_tensor(infos_role role, const std::string& name,
                                     std::vector<std::int64_t> dims) {
  infos_tensor tensor{};
  tensor.struct_size = sizeof(infos_tensor);
  tensor.role = role;
  tensor.dtype = role == INFOS_ROLE_WEIGHT ? INFOS_DTYPE_NONE : INFOS_F32;
  tensor.rank = static_cast<std::uint32_t>(dims.size());
  INFOS_CHECK(dims.size() <= 4);
  INFOS_CHECK(name.size() < sizeof(tensor.name));
  for (std::size_t i = 0; i < dims.size(); ++i) tensor.dims[i] = dims[i];
  std::memcpy(tensor.name, name.c_str(), name.size() + 1);
  tensors_.push_back(tensor);
  return static_cast<std::uint32_t>(tensors_.size() - 1);
}

std::uint32_t PhaseGraph::add_layer_weight(const std::string& name,
                                           std::vector<std::int64_t> dims) {
  const std::uint32_t index = add_tensor(INFOS_ROLE_WEIGHT, name, std::move(dims));
  tensors_[index].per_layer = 1;
  return index;
}

infos_op& PhaseGraph::add_op(infos_op_kind kind, const std::vector<std::uint32_t>& inputs,
                             std::uint32_t out) {
  infos_op op{};
  op.struct_size = sizeof(infos_op);
  op.kind = kind;
  INFOS_CHECK(inputs.size() <= INFOS_OP_INPUTS_MAX);
  op.n_inputs = static_cast<std::uint32_t>(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) op.inputs[i] = inputs[i];
  op.output = out;
  op.accumulator = INFOS_F32;
  ops_.push_back(op);
  return ops_.back();
}

void PhaseGraph::begin_layers(std::uint32_t n_layers) {
  layer_begin_ = static_cast<std::uint32_t>(ops_.size());
  n_layers_ = n_layers;
}

void PhaseGraph::end_layers() { layer_end_ = static_cast<std::uint32_t>(ops_.size()); }

infos_graph PhaseGraph::view() const {
  infos_graph graph{};
  graph.struct_size = sizeof(infos_graph);
  graph.n_tensors = static_cast<std::uint32_t>(tensors_.size());
  graph.tensors = tensors_.data();
  graph.n_ops = static_cast<std::uint32_t>(ops_.size());
  graph.layer_begin = layer_begin_;
  graph.layer_end = layer_end_;
  graph.n_layers = n_layers_;
  graph.ops = ops_.data();
  return graph;
}

std::string weight_name(const infos_tensor& tensor, std::uint32_t layer) {
  std::string name = tensor.name;
  if (const auto at = name.find("%d"); at != std::string::npos)
    name.replace(at, 2, std::to_string(layer));
  return name;
}

namespace {

constexpr std::uint32_t kNoOutput = UINT32_MAX;

/// Builds one model's graph; the members are the sizes and tensors that several parts share.
class Builder {
 public:
  explicit Builder(const ModelConfig& config) : c_(config) {}

  PhaseGraph build() {
    const std::uint32_t embedding =
        g_.add_tensor(INFOS_ROLE_WEIGHT, "token_embd.weight", {c_.vocab, d_});
    residual_ = activation("residual", d_);
    normed_ = activation("normed", d_);
    inv_freq_ = g_.add_tensor(INFOS_ROLE_CONSTANT, kRopeFrequencies, {c_.head_dim / 2});
    g_.add_op(INFOS_OP_EMBED, {embedding}, residual_);
    g_.begin_layers(c_.layers);
    add_attention();
    add_ffn();
    g_.end_layers();
    add_head(embedding);
    return std::move(g_);
  }

 private:
  std::uint32_t activation(const std::string& name, std::int64_t width,
                           std::int64_t rows = INFOS_DIM_TOKENS) {
    return g_.add_tensor(INFOS_ROLE_ACTIVATION, name, {rows, width});
  }

  void norm(std::uint32_t x, std::uint32_t weight, std::uint32_t out) {
    g_.add_op(INFOS_OP_RMS_NORM, {x, weight}, out).epsilon = static_cast<float>(c_.norm_epsilon);
  }

  /// out = x w^T (+ bias), where w is blk.N.<name>.weight.
  std::uint32_t linear(std::uint32_t x, const std::string& name, std::int64_t in, std::int64_t out,
                       bool with_bias) {
    std::vector<std::uint32_t> inputs = {
        x, g_.add_layer_weight("blk.%d." + name + ".weight", {out, in})};
    if (with_bias) inputs.push_back(g_.add_layer_weight("blk.%d." + name + ".bias", {out}));
    const std::uint32_t y = activation(name, out);
    g_.add_op(INFOS_OP_LINEAR, inputs, y);
    return y;
  }

  /// Per-head norm (Qwen3) and rotation of a query or key.
  std::uint32_t position(std::uint32_t x, const std::string& name, std::uint32_t heads) {
    const std::int64_t width = std::int64_t{heads} * c_.head_dim;
    if (c_.qk_norm) {
      const std::uint32_t w = g_.add_layer_weight("blk.%d." + name + "_norm.weight", {c_.head_dim});
      const std::uint32_t y = activation(name + "_norm", width);
      norm(x, w, y);
      x = y;
    }
    const std::uint32_t y = activation(name + "_rope", width);
    infos_op& op = g_.add_op(INFOS_OP_ROPE, {x, inv_freq_}, y);
    op.heads = heads;
    op.head_dim = op.rotary_dim = c_.head_dim;
    op.rope_style = c_.rope_adjacent_pairs ? INFOS_ROPE_ADJACENT : INFOS_ROPE_HALVES;
    return y;
  }

  void add_attention() {
    const std::int64_t q_width = std::int64_t{c_.heads} * c_.head_dim;
    const std::int64_t kv_width = std::int64_t{c_.kv_heads} * c_.head_dim;
    norm(residual_, g_.add_layer_weight("blk.%d.attn_norm.weight", {d_}), normed_);
    std::uint32_t q = linear(normed_, "attn_q", d_, q_width, c_.qkv_bias);
    std::uint32_t k = linear(normed_, "attn_k", d_, kv_width, c_.qkv_bias);
    const std::uint32_t v = linear(normed_, "attn_v", d_, kv_width, c_.qkv_bias);
    q = position(q, "attn_q", c_.heads);
    k = position(k, "attn_k", c_.kv_heads);
    infos_op& append = g_.add_op(INFOS_OP_KV_APPEND, {k, v}, kNoOutput);
    append.kv_heads = c_.kv_heads;
    append.head_dim = c_.head_dim;
    const std::uint32_t o = activation("attention", q_width);
    infos_op& attention = g_.add_op(INFOS_OP_ATTENTION, {q}, o);
    attention.heads = c_.heads;
    attention.kv_heads = c_.kv_heads;
    attention.head_dim = c_.head_dim;
    attention.mask = c_.window > 0 ? INFOS_MASK_WINDOW : INFOS_MASK_CAUSAL;
    attention.window = c_.window;
    attention.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c_.head_dim)));
    const std::uint32_t y = linear(o, "attn_output", q_width, d_, false);
    g_.add_op(INFOS_OP_ADD, {residual_, y}, residual_);
  }

  void add_ffn() {
    norm(residual_, g_.add_layer_weight("blk.%d.ffn_norm.weight", {d_}), normed_);
    const std::uint32_t y = c_.experts > 0 ? experts() : dense();
    g_.add_op(INFOS_OP_ADD, {residual_, y}, residual_);
  }

  std::uint32_t dense() {
    const std::int64_t f = c_.ffn_hidden;
    const std::uint32_t gate = linear(normed_, "ffn_gate", d_, f, false);
    const std::uint32_t up = linear(normed_, "ffn_up", d_, f, false);
    const std::uint32_t hidden = activation("ffn_hidden", f);
    g_.add_op(INFOS_OP_SILU_MUL, {gate, up}, hidden);
    return linear(hidden, "ffn_down", f, d_, false);
  }

  std::uint32_t experts() {
    const std::int64_t e = c_.experts;
    const std::int64_t f = c_.ffn_hidden;
    const std::uint32_t router = g_.add_layer_weight("blk.%d.ffn_gate_inp.weight", {e, d_});
    const std::uint32_t gate = g_.add_layer_weight("blk.%d.ffn_gate_exps.weight", {e, f, d_});
    const std::uint32_t up = g_.add_layer_weight("blk.%d.ffn_up_exps.weight", {e, f, d_});
    const std::uint32_t down = g_.add_layer_weight("blk.%d.ffn_down_exps.weight", {e, d_, f});
    const std::uint32_t y = activation("moe", d_);
    infos_op& op = g_.add_op(INFOS_OP_MOE_FFN, {normed_, router, gate, up, down}, y);
    op.experts = c_.experts;
    op.top_k = c_.experts_per_token;
    op.renormalise = c_.renormalise_experts ? 1 : 0;
    return y;
  }

  /// Only the rows whose logits are wanted go through the last norm and the vocabulary matrix.
  void add_head(std::uint32_t embedding) {
    const std::uint32_t selected = activation("selected", d_, INFOS_DIM_ROWS);
    const std::uint32_t normed = activation("selected_normed", d_, INFOS_DIM_ROWS);
    const std::uint32_t logits = activation("logits", c_.vocab, INFOS_DIM_ROWS);
    g_.add_op(INFOS_OP_SELECT_ROWS, {residual_}, selected);
    norm(selected, g_.add_tensor(INFOS_ROLE_WEIGHT, "output_norm.weight", {d_}), normed);
    const std::uint32_t head =
        c_.tied_embeddings ? embedding
                           : g_.add_tensor(INFOS_ROLE_WEIGHT, "output.weight", {c_.vocab, d_});
    g_.add_op(INFOS_OP_LINEAR, {normed, head}, logits);
  }

  const ModelConfig& c_;
  const std::int64_t d_ = c_.hidden;
  PhaseGraph g_;
  std::uint32_t residual_ = 0;
  std::uint32_t normed_ = 0;
  std::uint32_t inv_freq_ = 0;
};

}  // namespace

Result<PhaseGraph> build_phase_graph(const ModelConfig& config) {
  INFOS_TRY(config.validate());
  return Builder(config).build();
}

}  // namespace infos
