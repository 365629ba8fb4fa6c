// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/reference/graph_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace infos::reference {

namespace {

constexpr std::uint32_t kTensorsMax = 1 << 16;
constexpr std::uint32_t kOpsMax = 1 << 16;
constexpr std::uint32_t kLayersMax = 1 << 12;
constexpr std::int64_t kDimMax = std::int64_t{1} << 32;

template <typename Struct>
void copy_array(const Struct* array, std::uint32_t count, std::vector<Struct>& out) {
  const std::uint32_t stride = array->struct_size;
  const auto* bytes = reinterpret_cast<const std::byte*>(array);
  for (std::uint32_t i = 0; i < count; ++i) {
    Struct one{};
    std::memcpy(&one, bytes + std::size_t{i} * stride,
                std::min<std::size_t>(stride, sizeof(Struct)));
    out.push_back(one);
  }
}

std::string check_tensor(const infos_tensor& t, std::size_t i) {
  if (std::memchr(t.name, 0, sizeof t.name) == nullptr)
    return fmt::format("tensor {}: the name does not end", i);
  if (t.role < INFOS_ROLE_ACTIVATION || t.role > INFOS_ROLE_CONSTANT)
    return fmt::format("tensor {} ({}): role {} is unknown: want 1 to 3", i, t.name, t.role);
  if (t.rank < 1 || t.rank > 4)
    return fmt::format("tensor {} ({}): rank is {}: want 1 to 4", i, t.name, t.rank);
  for (std::uint32_t d = 0; d < t.rank; ++d) {
    const bool symbol = d == 0 && t.role == INFOS_ROLE_ACTIVATION &&
                        (t.dims[0] == INFOS_DIM_TOKENS || t.dims[0] == INFOS_DIM_ROWS);
    if (!symbol && (t.dims[d] < 1 || t.dims[d] > kDimMax))
      return fmt::format("tensor {} ({}): dim {} is {}: want 1 to {}", i, t.name, d, t.dims[d],
                         kDimMax);
  }
  if (t.role == INFOS_ROLE_ACTIVATION && (t.rank != 2 || t.dims[0] > 0 || t.dtype != INFOS_F32))
    return fmt::format("tensor {} ({}): an activation is f32 [tokens or rows, width]", i, t.name);
  return {};
}

/// Checks one op against the tensors it names.
class OpCheck {
 public:
  OpCheck(const GraphCopy& graph, const infos_op& op) : g_(graph), op_(op) {}

  std::string run() {
    if (op_.n_inputs > INFOS_OP_INPUTS_MAX)
      return fmt::format("{} inputs, at most {}", op_.n_inputs, INFOS_OP_INPUTS_MAX);
    for (std::uint32_t i = 0; i < op_.n_inputs; ++i)
      if (op_.inputs[i] >= g_.tensors.size())
        return fmt::format("input {} is tensor {} of {}", i, op_.inputs[i], g_.tensors.size());
    const bool stores = op_.kind == INFOS_OP_KV_APPEND;
    if (!stores && op_.output >= g_.tensors.size())
      return fmt::format("output is tensor {} of {}", op_.output, g_.tensors.size());
    if (!stores && g_.tensors[op_.output].role != INFOS_ROLE_ACTIVATION)
      return "the output is not an activation";
    return kind();
  }

 private:
  const infos_tensor& in(std::uint32_t i) const { return g_.tensors[op_.inputs[i]]; }
  const infos_tensor& out() const { return g_.tensors[op_.output]; }
  static bool is(const infos_tensor& t, std::initializer_list<std::int64_t> dims) {
    return t.rank == dims.size() && std::equal(dims.begin(), dims.end(), t.dims);
  }
  static bool active(const infos_tensor& t) { return t.role == INFOS_ROLE_ACTIVATION; }
  bool same(std::uint32_t i) const {
    return active(in(i)) && is(in(i), {out().dims[0], out().dims[1]});
  }

  std::string kind() const {
    static constexpr const char* kShapes = "inputs or shapes do not fit the op";
    switch (op_.kind) {
      case INFOS_OP_EMBED:
        return op_.n_inputs == 1 && in(0).rank == 2 && !active(in(0)) &&
                       is(out(), {INFOS_DIM_TOKENS, in(0).dims[1]})
                   ? ""
                   : kShapes;
      case INFOS_OP_RMS_NORM:
        return op_.n_inputs == 2 && same(0) && in(1).rank == 1 && !active(in(1)) &&
                       out().dims[1] % in(1).dims[0] == 0
                   ? ""
                   : kShapes;
      case INFOS_OP_LINEAR:
        return linear_fits() ? "" : kShapes;
      case INFOS_OP_ROPE:
        return rope_fits() ? "" : kShapes;
      case INFOS_OP_KV_APPEND:
        return append_fits() ? "" : kShapes;
      case INFOS_OP_ATTENTION:
        return attention_fits() ? "" : kShapes;
      case INFOS_OP_ADD:
      case INFOS_OP_SILU_MUL:
        return op_.n_inputs == 2 && same(0) && same(1) ? "" : kShapes;
      case INFOS_OP_MOE_FFN:
        return experts_fit() ? "" : kShapes;
      case INFOS_OP_SELECT_ROWS:
        return op_.n_inputs == 1 && active(in(0)) && in(0).dims[0] == INFOS_DIM_TOKENS &&
                       is(out(), {INFOS_DIM_ROWS, in(0).dims[1]})
                   ? ""
                   : kShapes;
      case INFOS_OP_ALL_REDUCE:
        return op_.n_inputs == 1 && same(0) && op_.inputs[0] != op_.output ? "" : kShapes;
      default:
        return fmt::format("kind {} is unknown", op_.kind);
    }
  }

  bool linear_fits() const {
    if (op_.n_inputs < 2 || op_.n_inputs > 3 || !active(in(0)) || active(in(1))) return false;
    const std::int64_t n = out().dims[1];
    return in(0).dims[0] == out().dims[0] && is(in(1), {n, in(0).dims[1]}) &&
           (op_.n_inputs == 2 || (is(in(2), {n}) && !active(in(2))));
  }
  bool heads_fit(std::uint32_t heads, std::int64_t width) const {
    return heads > 0 && op_.head_dim > 0 && std::int64_t{heads} * op_.head_dim == width;
  }
  bool rope_fits() const {
    return op_.n_inputs == 2 && same(0) && out().dims[0] == INFOS_DIM_TOKENS &&
           heads_fit(op_.heads, out().dims[1]) && op_.rotary_dim % 2 == 0 && op_.rotary_dim > 0 &&
           op_.rotary_dim <= op_.head_dim && is(in(1), {op_.rotary_dim / 2}) && !active(in(1)) &&
           (op_.rope_style == INFOS_ROPE_HALVES || op_.rope_style == INFOS_ROPE_ADJACENT);
  }
  bool append_fits() const {
    return op_.n_inputs == 2 && active(in(0)) && active(in(1)) &&
           in(0).dims[0] == INFOS_DIM_TOKENS && heads_fit(op_.kv_heads, in(0).dims[1]) &&
           is(in(1), {INFOS_DIM_TOKENS, in(0).dims[1]});
  }
  bool attention_fits() const {
    const bool mask =
        op_.mask == INFOS_MASK_CAUSAL || (op_.mask == INFOS_MASK_WINDOW && op_.window > 0);
    return op_.n_inputs == 1 && same(0) && out().dims[0] == INFOS_DIM_TOKENS && mask &&
           heads_fit(op_.heads, out().dims[1]) && op_.kv_heads > 0 && op_.heads % op_.kv_heads == 0;
  }
  bool experts_fit() const {
    if (op_.n_inputs != 5 || !same(0) || op_.experts == 0 || in(2).rank != 3) return false;
    for (std::uint32_t i = 1; i < 5; ++i)
      if (active(in(i))) return false;
    const std::int64_t e = op_.experts, d = out().dims[1], f = in(2).dims[1];
    return op_.top_k >= 1 && op_.top_k <= op_.experts && is(in(1), {e, d}) &&
           is(in(2), {e, f, d}) && is(in(3), {e, f, d}) && is(in(4), {e, d, f});
  }

  const GraphCopy& g_;
  const infos_op& op_;
};

}  // namespace

std::string copy_graph(const infos_graph* graph, GraphCopy* out) {
  if (graph == nullptr) return "the graph is null";
  const infos_graph g = read_struct(graph);
  if (g.n_tensors == 0 || g.n_tensors > kTensorsMax || g.tensors == nullptr)
    return fmt::format("the graph has {} tensors: want 1 to {}", g.n_tensors, kTensorsMax);
  if (g.n_ops == 0 || g.n_ops > kOpsMax || g.ops == nullptr)
    return fmt::format("the graph has {} ops: want 1 to {}", g.n_ops, kOpsMax);
  if (g.tensors->struct_size < 16 || g.ops->struct_size < 16 || g.tensors->struct_size > 4096 ||
      g.ops->struct_size > 4096)
    return "the graph's tensors or ops have no struct_size";
  GraphCopy copy;
  copy_array(g.tensors, g.n_tensors, copy.tensors);
  copy_array(g.ops, g.n_ops, copy.ops);
  copy.layer_begin = g.layer_begin;
  copy.layer_end = g.layer_end;
  copy.n_layers = g.n_layers;
  std::string problem = check_graph(copy);
  if (problem.empty()) *out = std::move(copy);
  return problem;
}

std::string check_graph(const GraphCopy& graph) {
  for (std::size_t i = 0; i < graph.tensors.size(); ++i)
    if (std::string problem = check_tensor(graph.tensors[i], i); !problem.empty()) return problem;
  if (graph.ops.empty()) return "the graph has no ops";
  if (graph.layer_begin > graph.layer_end || graph.layer_end >= graph.ops.size() ||
      graph.n_layers > kLayersMax || (graph.n_layers == 0 && graph.layer_end > graph.layer_begin))
    return fmt::format("the layer is ops {} to {} of {}, {} times", graph.layer_begin,
                       graph.layer_end, graph.ops.size(), graph.n_layers);
  std::vector<bool> written(graph.tensors.size(), false);
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const infos_op& op = graph.ops[i];
    if (std::string problem = OpCheck(graph, op).run(); !problem.empty())
      return fmt::format("op {} (kind {}): {}", i, op.kind, problem);
    for (std::uint32_t j = 0; j < op.n_inputs; ++j) {
      const infos_tensor& t = graph.tensors[op.inputs[j]];
      if (t.role == INFOS_ROLE_ACTIVATION && !written[op.inputs[j]])
        return fmt::format("op {} reads {} before it is written", i, t.name);
      const bool in_layer = i >= graph.layer_begin && i < graph.layer_end;
      if (t.per_layer != 0 && !in_layer)
        return fmt::format("op {} is outside the layer and reads {}", i, t.name);
    }
    if (op.kind != INFOS_OP_KV_APPEND) written[op.output] = true;
  }
  if (graph.ops.front().kind != INFOS_OP_EMBED) return "the first op does not embed tokens";
  const infos_op& last = graph.ops.back();
  if (last.kind == INFOS_OP_KV_APPEND || graph.tensors[last.output].dims[0] != INFOS_DIM_ROWS)
    return "the last op's output is not logits[rows, vocab]";
  return {};
}

namespace {
std::string check_sequence(const infos_batch& b, std::uint32_t s, const BatchLimits& limits) {
  const std::uint32_t begin = b.row_begin[s], end = b.row_begin[s + 1];
  const std::uint32_t table = b.table_begin[s], table_end = b.table_begin[s + 1];
  if (begin >= end || end > b.n_tokens)
    return fmt::format("sequence {} has rows {} to {} of {}", s, begin, end, b.n_tokens);
  if (table > table_end) return fmt::format("sequence {} has blocks {} to {}", s, table, table_end);
  for (std::uint32_t r = begin; r < end; ++r) {
    const std::int64_t want = std::int64_t{b.positions[begin]} + (r - begin);
    if (b.positions[r] < 0 || b.positions[r] != want || want >= limits.max_context)
      return fmt::format("row {} is at position {}: want {}, below {}", r, b.positions[r], want,
                         limits.max_context);
    if (b.tokens[r] < 0 || static_cast<std::uint32_t>(b.tokens[r]) >= limits.vocab)
      return fmt::format("row {} is token {}: want 0 to {}", r, b.tokens[r], limits.vocab - 1);
  }
  const auto last = static_cast<std::uint32_t>(b.positions[end - 1]);
  const std::uint32_t want = last / limits.block_tokens + 1;
  if (table_end - table < want)
    return fmt::format("sequence {} has {} blocks: position {} needs {}", s, table_end - table,
                       last, want);
  for (std::uint32_t i = 0; i < want; ++i)
    if (b.block_table[table + i] >= limits.n_blocks)
      return fmt::format("sequence {} names block {} of {}", s, b.block_table[table + i],
                         limits.n_blocks);
  return {};
}
}  // namespace

std::string check_batch(const infos_batch* batch, const BatchLimits& limits) {
  if (batch == nullptr) return "the batch is null";
  const infos_batch b = read_struct(batch);
  if (b.n_tokens == 0 || b.n_tokens > limits.max_tokens)
    return fmt::format("the batch has {} tokens: want 1 to {}", b.n_tokens, limits.max_tokens);
  if (b.n_sequences == 0 || b.n_sequences > limits.max_sequences)
    return fmt::format("the batch has {} sequences: want 1 to {}", b.n_sequences,
                       limits.max_sequences);
  if (b.tokens == nullptr || b.positions == nullptr || b.row_begin == nullptr ||
      b.block_table == nullptr || b.table_begin == nullptr)
    return "the batch has a null array";
  if (b.n_logit_rows > b.n_tokens)
    return fmt::format("{} logit rows of {} tokens", b.n_logit_rows, b.n_tokens);
  if (b.n_logit_rows > 0 && (b.logit_rows == nullptr || b.logits == nullptr))
    return "logits are wanted and have no place";
  for (std::uint32_t i = 0; i < b.n_logit_rows; ++i)
    if (b.logit_rows[i] >= b.n_tokens)
      return fmt::format("logit row {} is token row {} of {}", i, b.logit_rows[i], b.n_tokens);
  if (b.row_begin[0] != 0 || b.row_begin[b.n_sequences] != b.n_tokens || b.table_begin[0] != 0)
    return "the sequences do not cover the batch's rows";
  for (std::uint32_t s = 0; s < b.n_sequences; ++s)
    if (std::string problem = check_sequence(b, s, limits); !problem.empty()) return problem;
  return {};
}

}  // namespace infos::reference
