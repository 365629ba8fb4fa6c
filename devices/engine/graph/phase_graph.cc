// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/graph/phase_graph.h"

#include <fmt/format.h>

#include <algorithm>
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
  slices_.emplace_back();
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

/// How ranks share a matrix [out, in]: whole on each; by rows, each gives its part of the output;
/// by columns, each gives a partial sum of all of it.
enum class Share { whole, rows, columns };

/// A matrix of the whole model.
struct Matrix {
  const char* name;  ///< "attn_q"
  std::int64_t in, out;
  Share share;
  bool bias = false;
};

/// Builds one model's graph; the members are the sizes and tensors that several parts share.
class Builder {
 public:
  Builder(const ModelConfig& config, const ModelShard& shard) : c_(config), shard_(shard) {}

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

  /// A layer's weight of which this rank has an equal part along `axis`.
  std::uint32_t part_of_weight(const std::string& name, std::vector<std::int64_t> dims,
                               std::uint32_t axis) {
    const std::int64_t whole = dims[axis];
    dims[axis] = whole / shard_.ranks;
    const std::uint32_t weight = g_.add_layer_weight(name, dims);
    if (shard_.ranks > 1) g_.set_slice(weight, {axis, dims[axis] * shard_.rank, whole});
    return weight;
  }

  /// out = x w^T (+ bias), where w is blk.N.<name>.weight.
  std::uint32_t linear(std::uint32_t x, const Matrix& m) {
    const std::string name = std::string("blk.%d.") + m.name;
    const std::uint32_t axis = m.share == Share::columns ? 1 : 0;
    std::vector<std::uint32_t> inputs = {x, part_of_weight(name + ".weight", {m.out, m.in}, axis)};
    if (m.bias) inputs.push_back(part_of_weight(name + ".bias", {m.out}, 0));
    const std::uint32_t y = activation(m.name, g_.tensors()[inputs[1]].dims[0]);
    g_.add_op(INFOS_OP_LINEAR, inputs, y);
    return y;
  }

  /// The sum of the ranks' partial sums; itself when there is one rank.
  std::uint32_t sum_of_ranks(std::uint32_t x, const std::string& name) {
    if (shard_.ranks == 1) return x;
    const std::uint32_t y = activation(name, d_);
    g_.add_op(INFOS_OP_ALL_REDUCE, {x}, y);
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
    std::uint32_t q = linear(normed_, {"attn_q", d_, q_width, Share::rows, c_.qkv_bias});
    std::uint32_t k = linear(normed_, {"attn_k", d_, kv_width, Share::rows, c_.qkv_bias});
    const std::uint32_t v = linear(normed_, {"attn_v", d_, kv_width, Share::rows, c_.qkv_bias});
    const std::uint32_t heads = c_.heads / shard_.ranks, kv_heads = c_.kv_heads / shard_.ranks;
    q = position(q, "attn_q", heads);
    k = position(k, "attn_k", kv_heads);
    infos_op& append = g_.add_op(INFOS_OP_KV_APPEND, {k, v}, kNoOutput);
    append.kv_heads = kv_heads;
    append.head_dim = c_.head_dim;
    const std::uint32_t o = activation("attention", std::int64_t{heads} * c_.head_dim);
    infos_op& attention = g_.add_op(INFOS_OP_ATTENTION, {q}, o);
    attention.heads = heads;
    attention.kv_heads = kv_heads;
    attention.head_dim = c_.head_dim;
    attention.mask = c_.window > 0 ? INFOS_MASK_WINDOW : INFOS_MASK_CAUSAL;
    attention.window = c_.window;
    attention.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c_.head_dim)));
    const std::uint32_t y = linear(o, {"attn_output", q_width, d_, Share::columns});
    g_.add_op(INFOS_OP_ADD, {residual_, sum_of_ranks(y, "attn_sum")}, residual_);
  }

  void add_ffn() {
    norm(residual_, g_.add_layer_weight("blk.%d.ffn_norm.weight", {d_}), normed_);
    const std::uint32_t y = c_.experts > 0 ? experts() : dense();
    g_.add_op(INFOS_OP_ADD, {residual_, sum_of_ranks(y, "ffn_sum")}, residual_);
  }

  std::uint32_t dense() {
    const std::int64_t f = c_.ffn_hidden;
    const std::uint32_t gate = linear(normed_, {"ffn_gate", d_, f, Share::rows});
    const std::uint32_t up = linear(normed_, {"ffn_up", d_, f, Share::rows});
    const std::uint32_t hidden = activation("ffn_hidden", f / shard_.ranks);
    g_.add_op(INFOS_OP_SILU_MUL, {gate, up}, hidden);
    return linear(hidden, {"ffn_down", f, d_, Share::columns});
  }

  std::uint32_t experts() {
    const std::int64_t e = c_.experts;
    const std::int64_t f = c_.ffn_hidden;
    const std::uint32_t router = g_.add_layer_weight("blk.%d.ffn_gate_inp.weight", {e, d_});
    const std::uint32_t gate = part_of_weight("blk.%d.ffn_gate_exps.weight", {e, f, d_}, 1);
    const std::uint32_t up = part_of_weight("blk.%d.ffn_up_exps.weight", {e, f, d_}, 1);
    const std::uint32_t down = part_of_weight("blk.%d.ffn_down_exps.weight", {e, d_, f}, 2);
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
    const std::uint32_t begin = vocab_begin(c_.vocab, shard_.rank, shard_.ranks);
    const std::int64_t rows = vocab_begin(c_.vocab, shard_.rank + 1, shard_.ranks) - begin;
    const std::uint32_t logits = activation("logits", rows, INFOS_DIM_ROWS);
    g_.add_op(INFOS_OP_SELECT_ROWS, {residual_}, selected);
    norm(selected, g_.add_tensor(INFOS_ROLE_WEIGHT, "output_norm.weight", {d_}), normed);
    std::uint32_t head = embedding;
    if (!c_.tied_embeddings || shard_.ranks > 1)
      head = g_.add_tensor(INFOS_ROLE_WEIGHT,
                           c_.tied_embeddings ? "token_embd.weight" : "output.weight", {rows, d_});
    if (shard_.ranks > 1) g_.set_slice(head, {0, begin, c_.vocab});
    g_.add_op(INFOS_OP_LINEAR, {normed, head}, logits);
  }

  const ModelConfig& c_;
  const ModelShard shard_;
  const std::int64_t d_ = c_.hidden;
  PhaseGraph g_;
  std::uint32_t residual_ = 0;
  std::uint32_t normed_ = 0;
  std::uint32_t inv_freq_ = 0;
};

}  // namespace

Result<PhaseGraph> build_phase_graph(const ModelConfig& config, const ModelShard& shard) {
  INFOS_TRY(config.validate());
  INFOS_TRY(check_shard(config, shard));
  return Builder(config, shard).build();
}

Status check_shard(const ModelConfig& config, const ModelShard& shard) {
  const auto divides = [&](std::uint32_t n) {
    return n != 0 && config.heads % n == 0 && config.kv_heads % n == 0 &&
           config.ffn_hidden % n == 0 && config.vocab >= n;
  };
  if (divides(shard.ranks) && shard.rank < shard.ranks) return {};
  std::string allowed = "1";
  for (std::uint32_t n = 2; n <= config.kv_heads; ++n)
    if (divides(n)) allowed += fmt::format(", {}", n);
  return Error{
      ErrorCode::invalid_argument,
      fmt::format("tensor_parallel is {}: it must divide the model's {} heads, {} KV heads "
                  "and FFN width {}; {} would",
                  shard.ranks, config.heads, config.kv_heads, config.ffn_hidden, allowed)};
}

std::uint32_t vocab_begin(std::uint32_t vocab, std::uint32_t rank, std::uint32_t ranks) {
  return static_cast<std::uint32_t>(std::uint64_t{vocab} * rank / ranks);
}

}  // namespace infos
