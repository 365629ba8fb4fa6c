// SPDX-License-Identifier: Apache-2.0
#include "devices/cpu/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace infos::cpu {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;
constexpr std::uint32_t kTensorsMax = 4096, kOpsMax = 4096, kLayersMax = 4096;
constexpr std::int64_t kDimMax = std::int64_t{1} << 26;

const char* name_of(std::uint32_t kind) {
  static constexpr const char* kNames[] = {"NONE",     "EMBED",     "RMS_NORM",    "LINEAR",
                                           "ROPE",     "KV_APPEND", "ATTENTION",   "ADD",
                                           "SILU_MUL", "MOE_FFN",   "SELECT_ROWS", "ALL_REDUCE"};
  return kind < std::size(kNames) ? kNames[kind] : "unknown";
}

/// Checks one op of a plan against the shapes of its tensors.
class OpCheck {
 public:
  OpCheck(Plan& plan, std::uint32_t index) : plan_(plan), op_(plan.ops[index]), index_(index) {}

  Status run() {
    if (op_.accumulator != INFOS_F32 && op_.accumulator != INFOS_DTYPE_NONE) {
      return unsupported(fmt::format("accumulator dtype {}; this backend accumulates in f32 ({})",
                                     op_.accumulator, +INFOS_F32));
    }
    switch (op_.kind) {
      case INFOS_OP_EMBED:
        return embed();
      case INFOS_OP_RMS_NORM:
        return rms_norm();
      case INFOS_OP_LINEAR:
        return linear();
      case INFOS_OP_ROPE:
        return rope();
      case INFOS_OP_KV_APPEND:
        return kv_append();
      case INFOS_OP_ATTENTION:
        return attention();
      case INFOS_OP_ADD:
        return same_shapes(2);
      case INFOS_OP_SILU_MUL:
        return same_shapes(2);
      case INFOS_OP_MOE_FFN:
        return moe();
      case INFOS_OP_SELECT_ROWS:
        return select_rows();
      case INFOS_OP_ALL_REDUCE:
        return all_reduce();
      default:
        return unsupported("no such op kind in this backend");
    }
  }

 private:
  Error error(ErrorCode code, const std::string& text) const {
    return {code, fmt::format("op {} ({}): {}", index_, name_of(op_.kind), text)};
  }
  Error invalid(const std::string& text) const { return error(ErrorCode::invalid_argument, text); }
  Error unsupported(const std::string& text) const { return error(ErrorCode::unsupported, text); }
  const infos_tensor& in(int i) const { return plan_.tensors[op_.inputs[i]]; }
  const infos_tensor& out() const { return plan_.tensors[op_.output]; }

  Status inputs(std::uint32_t least, std::uint32_t most, bool with_output) {
    if (op_.n_inputs < least || op_.n_inputs > most) {
      return invalid(fmt::format("{} inputs, allowed {} to {}", op_.n_inputs, least, most));
    }
    for (std::uint32_t i = 0; i < op_.n_inputs; ++i) {
      if (op_.inputs[i] >= plan_.tensors.size()) {
        return invalid(fmt::format("input {} is tensor {}, there are {}", i, op_.inputs[i],
                                   plan_.tensors.size()));
      }
    }
    if (!with_output) {
      if (op_.output != kNone) return invalid("has an output, allowed: none (UINT32_MAX)");
      return {};
    }
    if (op_.output >= plan_.tensors.size()) {
      return invalid(
          fmt::format("output is tensor {}, there are {}", op_.output, plan_.tensors.size()));
    }
    if (out().role != INFOS_ROLE_ACTIVATION) return invalid("the output is not an activation");
    return {};
  }

  /// Input i is an activation of rows with `values` values each (0: any).
  Status activation(int i, std::uint64_t values, const infos_tensor& like) const {
    if (in(i).role != INFOS_ROLE_ACTIVATION)
      return invalid(fmt::format("input {} is not an activation", i));
    if (in(i).dims[0] != like.dims[0]) {
      return invalid(
          fmt::format("input {} has {} as rows, the output {}", i, in(i).dims[0], like.dims[0]));
    }
    if (values && row_values(in(i)) != values) {
      return invalid(
          fmt::format("input {} has {} values a row, expected {}", i, row_values(in(i)), values));
    }
    return {};
  }

  Status weight(int i, std::uint32_t rank) const {
    const infos_tensor& w = in(i);
    if (w.role != INFOS_ROLE_WEIGHT && w.role != INFOS_ROLE_CONSTANT)
      return invalid(fmt::format("input {} is not a weight", i));
    if (w.rank != rank)
      return invalid(fmt::format("weight {} has rank {}, expected {}", i, w.rank, rank));
    const bool in_layers = index_ >= plan_.layer_begin && index_ < plan_.layer_end;
    if (w.per_layer && !in_layers)
      return invalid(fmt::format("weight {} is per layer outside the layers", i));
    return {};
  }

  Status dims(int i, std::initializer_list<std::int64_t> expected) const {
    int at = 0;
    for (const std::int64_t d : expected) {
      if (in(i).dims[at] != d) {
        return invalid(
            fmt::format("input {} has {} in dim {}, expected {}", i, in(i).dims[at], at, d));
      }
      ++at;
    }
    return {};
  }

  Status not_in_place() const {
    if (op_.inputs[0] == op_.output)
      return unsupported("the output is the input; allowed: another tensor");
    return {};
  }

  std::int64_t row(const infos_tensor& t) const { return static_cast<std::int64_t>(row_values(t)); }

  Status embed() {
    INFOS_TRY(inputs(1, 1, true));
    INFOS_TRY(weight(0, 2));
    if (out().dims[0] != INFOS_DIM_TOKENS)
      return invalid("the output's rows are not the batch's tokens");
    if (in(0).dims[1] != row(out()))
      return invalid(fmt::format("table rows of {}, output rows of {}", in(0).dims[1], row(out())));
    const auto vocab = static_cast<std::uint32_t>(in(0).dims[0]);
    plan_.token_limit = plan_.token_limit ? std::min(plan_.token_limit, vocab) : vocab;
    return {};
  }

  Status rms_norm() {
    INFOS_TRY(inputs(2, 2, true));
    INFOS_TRY(activation(0, row_values(out()), out()));
    INFOS_TRY(weight(1, 1));
    if (row(out()) % in(1).dims[0] != 0) {
      return invalid(
          fmt::format("weight of {} does not divide rows of {}", in(1).dims[0], row(out())));
    }
    if (!std::isfinite(op_.epsilon) || op_.epsilon < 0)
      return invalid(fmt::format("epsilon {}, allowed >= 0", op_.epsilon));
    return {};
  }

  Status linear() {
    INFOS_TRY(inputs(2, 3, true));
    INFOS_TRY(activation(0, 0, out()));
    INFOS_TRY(weight(1, 2));
    INFOS_TRY(dims(1, {row(out()), row(in(0))}));
    if (op_.n_inputs == 3) {
      INFOS_TRY(weight(2, 1));
      INFOS_TRY(dims(2, {row(out())}));
    }
    return not_in_place();
  }

  Status heads(std::uint64_t values, std::uint32_t count) const {
    if (op_.head_dim == 0 || count == 0 || std::uint64_t{count} * op_.head_dim != values) {
      return invalid(
          fmt::format("{} heads of {} do not make rows of {}", count, op_.head_dim, values));
    }
    if (op_.head_dim > 1024)
      return unsupported(fmt::format("head_dim {}, allowed up to 1024", op_.head_dim));
    return {};
  }

  Status rope() {
    INFOS_TRY(inputs(2, 2, true));
    INFOS_TRY(activation(0, row_values(out()), out()));
    if (out().dims[0] != INFOS_DIM_TOKENS) return invalid("rows are not the batch's tokens");
    INFOS_TRY(weight(1, 1));
    INFOS_TRY(heads(row_values(out()), op_.heads));
    if (op_.rotary_dim == 0 || op_.rotary_dim % 2 || op_.rotary_dim > op_.head_dim) {
      return invalid(
          fmt::format("rotary_dim {}, allowed: even, 2 to {}", op_.rotary_dim, op_.head_dim));
    }
    if (op_.rope_style != INFOS_ROPE_HALVES && op_.rope_style != INFOS_ROPE_ADJACENT) {
      return invalid(fmt::format("rope_style {}, allowed 1 or 2", op_.rope_style));
    }
    return dims(1, {op_.rotary_dim / 2});
  }

  Status kv_shape() {
    if (op_.kv_heads == 0 || op_.head_dim == 0) return invalid("kv_heads and head_dim must be set");
    if (plan_.kv_heads && (plan_.kv_heads != op_.kv_heads || plan_.head_dim != op_.head_dim)) {
      return unsupported(fmt::format("KV heads {} x {} after {} x {}: one shape per graph",
                                     op_.kv_heads, op_.head_dim, plan_.kv_heads, plan_.head_dim));
    }
    if (index_ < plan_.layer_begin || index_ >= plan_.layer_end)
      return invalid("stands outside the layers");
    plan_.kv_heads = op_.kv_heads;
    plan_.head_dim = op_.head_dim;
    return {};
  }

  Status kv_append() {
    INFOS_TRY(inputs(2, 2, false));
    for (int i = 0; i < 2; ++i) {
      INFOS_TRY(activation(i, std::uint64_t{op_.kv_heads} * op_.head_dim, in(0)));
      if (in(i).dims[0] != INFOS_DIM_TOKENS) return invalid("rows are not the batch's tokens");
    }
    INFOS_TRY(heads(row_values(in(0)), op_.kv_heads));
    return kv_shape();
  }

  Status attention() {
    INFOS_TRY(inputs(1, 1, true));
    INFOS_TRY(activation(0, row_values(out()), out()));
    if (out().dims[0] != INFOS_DIM_TOKENS) return invalid("rows are not the batch's tokens");
    INFOS_TRY(heads(row_values(out()), op_.heads));
    if (op_.kv_heads == 0 || op_.heads % op_.kv_heads) {
      return invalid(
          fmt::format("{} heads over {} KV heads: not a multiple", op_.heads, op_.kv_heads));
    }
    if (op_.mask > INFOS_MASK_WINDOW)
      return invalid(fmt::format("mask {}, allowed 0 to 2", op_.mask));
    if (op_.mask == INFOS_MASK_WINDOW && op_.window == 0) return invalid("window 0, allowed >= 1");
    if (!std::isfinite(op_.scale)) return invalid("scale is not finite");
    INFOS_TRY(kv_shape());
    return not_in_place();
  }

  Status same_shapes(std::uint32_t count) {
    INFOS_TRY(inputs(count, count, true));
    for (std::uint32_t i = 0; i < count; ++i)
      INFOS_TRY(activation(static_cast<int>(i), row_values(out()), out()));
    return {};
  }

  Status moe() {
    INFOS_TRY(inputs(5, 5, true));
    INFOS_TRY(activation(0, row_values(out()), out()));
    INFOS_TRY(weight(1, 2));
    for (int i = 2; i < 5; ++i) INFOS_TRY(weight(i, 3));
    const std::int64_t d = row(out()), e = op_.experts, f = in(2).dims[1];
    INFOS_TRY(dims(1, {e, d}));
    INFOS_TRY(dims(2, {e, f, d}));
    INFOS_TRY(dims(3, {e, f, d}));
    INFOS_TRY(dims(4, {e, d, f}));
    if (op_.top_k == 0 || op_.top_k > op_.experts || op_.top_k > 64) {
      return invalid(fmt::format("top_k {}, allowed 1 to {}", op_.top_k,
                                 std::min<std::uint32_t>(op_.experts, 64)));
    }
    return not_in_place();
  }

  Status select_rows() {
    INFOS_TRY(inputs(1, 1, true));
    if (in(0).role != INFOS_ROLE_ACTIVATION || in(0).dims[0] != INFOS_DIM_TOKENS)
      return invalid("input 0 has no token rows");
    if (out().dims[0] != INFOS_DIM_ROWS)
      return invalid("the output's rows are not the selected rows");
    if (row(in(0)) != row(out()))
      return invalid(fmt::format("rows of {} from rows of {}", row(out()), row(in(0))));
    return not_in_place();
  }

  Status all_reduce() {
    INFOS_TRY(same_shapes(1));
    return not_in_place();
  }

  Plan& plan_;
  const infos_op& op_;
  std::uint32_t index_;
};

Status check_tensor(const infos_tensor& t, std::size_t index) {
  const auto invalid = [&](const std::string& text) {
    return Error{ErrorCode::invalid_argument, fmt::format("tensor {}: {}", index, text)};
  };
  if (t.role < INFOS_ROLE_ACTIVATION || t.role > INFOS_ROLE_CONSTANT)
    return invalid(fmt::format("role {}, allowed 1 to 3", t.role));
  if (t.rank < 1 || t.rank > 4) return invalid(fmt::format("rank {}, allowed 1 to 4", t.rank));
  const bool activation = t.role == INFOS_ROLE_ACTIVATION;
  if (activation && t.dtype != INFOS_F32 && t.dtype != INFOS_DTYPE_NONE) {
    return Error{ErrorCode::unsupported,
                 fmt::format("tensor {}: activation dtype {}, allowed f32 ({})", index, t.dtype,
                             +INFOS_F32)};
  }
  std::int64_t values = 1;
  for (std::uint32_t i = 0; i < t.rank; ++i) {
    if (activation && i == 0) {
      if (t.dims[0] != INFOS_DIM_TOKENS && t.dims[0] != INFOS_DIM_ROWS)
        return invalid("an activation's rows must be symbolic (-1 or -2)");
      continue;
    }
    if (t.dims[i] < 1 || t.dims[i] > kDimMax)
      return invalid(fmt::format("dim {} is {}, allowed 1 to {}", i, t.dims[i], kDimMax));
    values *= t.dims[i];
    if (values > (std::int64_t{1} << 36)) return invalid("more than 2^36 values");
  }
  return {};
}

Status check_plan(Plan& plan) {
  const auto invalid = [](const std::string& text) {
    return Error{ErrorCode::invalid_argument, text};
  };
  const infos_bucket& b = plan.bucket;
  if (b.max_tokens == 0 || b.max_tokens > (1U << 20))
    return invalid(fmt::format("max_tokens {}, allowed 1 to {}", b.max_tokens, 1U << 20));
  if (b.max_sequences == 0 || b.max_sequences > (1U << 20))
    return invalid(fmt::format("max_sequences {}, allowed 1 to {}", b.max_sequences, 1U << 20));
  if (b.max_context == 0 || b.max_context > (1U << 28))
    return invalid(fmt::format("max_context {}, allowed 1 to {}", b.max_context, 1U << 28));
  if (plan.layer_begin > plan.layer_end || plan.layer_end > plan.ops.size()) {
    return invalid(
        fmt::format("layer ops [{}, {}) of {}", plan.layer_begin, plan.layer_end, plan.ops.size()));
  }
  if (plan.layers > kLayersMax)
    return invalid(fmt::format("{} layers, allowed up to {}", plan.layers, kLayersMax));
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) INFOS_TRY(check_tensor(plan.tensors[i], i));
  for (std::uint32_t i = 0; i < plan.ops.size(); ++i) INFOS_TRY(OpCheck(plan, i).run());
  const infos_op& last = plan.ops.back();
  if (last.output == kNone || plan.tensors[last.output].dims[0] != INFOS_DIM_ROWS) {
    return invalid("the last op does not give logits: its rows are not the selected rows");
  }
  plan.vocab = static_cast<std::uint32_t>(row_values(plan.tensors[last.output]));
  return {};
}

// ---- bytes
// ---- bytes ----
// "IFCPUPL1", then little-endian: u32 sizes of the two records, compat, bucket, counts, tensors,
// ops, FNV-1a of all before.

constexpr char kMagic[8] = {'I', 'F', 'C', 'P', 'U', 'P', 'L', '1'};

std::uint64_t fnv1a(std::span<const std::uint8_t> bytes) {
  std::uint64_t h = 14695981039346656037ULL;
  for (const std::uint8_t b : bytes) h = (h ^ b) * 1099511628211ULL;
  return h;
}

template <typename T>
void put(std::vector<std::uint8_t>& out, const T& value) {
  const auto* p = reinterpret_cast<const std::uint8_t*>(&value);
  out.insert(out.end(), p, p + sizeof value);
}

class Reader {
 public:
  explicit Reader(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  template <typename T>
  bool get(T& value) {
    if (bytes_.size() < sizeof value) return false;
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    return true;
  }
  std::size_t left() const { return bytes_.size(); }

 private:
  std::span<const std::uint8_t> bytes_;
};

Error corrupt(const char* what) {
  return {ErrorCode::corrupt, fmt::format("CPU artifact: {}", what)};
}

/// The caller's struct, zero beyond what it filled.
template <typename T>
T known_part(const T& from) {
  T to{};
  std::memcpy(&to, &from, std::min<std::size_t>(from.struct_size, sizeof to));
  to.struct_size = sizeof to;
  return to;
}

}  // namespace

std::uint64_t row_values(const infos_tensor& tensor) {
  std::uint64_t values = 1;
  for (std::uint32_t i = 1; i < tensor.rank; ++i)
    values *= static_cast<std::uint64_t>(tensor.dims[i]);
  return values;
}

Result<Plan> make_plan(const infos_graph& graph, const infos_bucket& bucket) {
  if (!graph.tensors || !graph.ops || graph.n_tensors == 0 || graph.n_ops == 0 ||
      graph.n_tensors > kTensorsMax || graph.n_ops > kOpsMax) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("a graph of {} tensors and {} ops, allowed 1 to {} each",
                             graph.n_tensors, graph.n_ops, kOpsMax)};
  }
  Plan plan;
  // Arrays of structs of another version: the first element's struct_size is the stride.
  const auto* tensor = reinterpret_cast<const std::uint8_t*>(graph.tensors);
  const auto* op = reinterpret_cast<const std::uint8_t*>(graph.ops);
  const std::uint32_t tensor_stride = graph.tensors->struct_size,
                      op_stride = graph.ops->struct_size;
  if (tensor_stride < offsetof(infos_tensor, name) || op_stride < offsetof(infos_op, accumulator)) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("struct sizes of {} (tensor) and {} (op) are too small", tensor_stride,
                             op_stride)};
  }
  for (std::uint32_t i = 0; i < graph.n_tensors; ++i) {
    plan.tensors.push_back(known_part(
        *reinterpret_cast<const infos_tensor*>(tensor + std::size_t{i} * tensor_stride)));
    plan.tensors.back().name[sizeof plan.tensors.back().name - 1] = 0;
  }
  for (std::uint32_t i = 0; i < graph.n_ops; ++i) {
    plan.ops.push_back(
        known_part(*reinterpret_cast<const infos_op*>(op + std::size_t{i} * op_stride)));
  }
  plan.layer_begin = graph.layer_begin;
  plan.layer_end = graph.layer_end;
  plan.layers = graph.n_layers;
  plan.bucket = known_part(bucket);
  INFOS_TRY(check_plan(plan));
  return plan;
}

std::vector<std::uint8_t> serialize(const Plan& plan, std::string_view compat) {
  std::vector<std::uint8_t> out(kMagic, kMagic + sizeof kMagic);
  put(out, static_cast<std::uint32_t>(sizeof(infos_tensor)));
  put(out, static_cast<std::uint32_t>(sizeof(infos_op)));
  char name[64] = {};
  std::memcpy(name, compat.data(), std::min(compat.size(), sizeof name - 1));
  put(out, name);
  put(out, plan.bucket);
  put(out, static_cast<std::uint32_t>(plan.tensors.size()));
  put(out, static_cast<std::uint32_t>(plan.ops.size()));
  put(out, plan.layer_begin);
  put(out, plan.layer_end);
  put(out, plan.layers);
  for (const infos_tensor& t : plan.tensors) put(out, t);
  for (const infos_op& o : plan.ops) put(out, o);
  put(out, fnv1a(out));
  return out;
}

Result<StoredPlan> deserialize(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < sizeof kMagic + 8) return corrupt("too short");
  std::uint64_t sum = 0;
  std::memcpy(&sum, bytes.data() + bytes.size() - 8, 8);
  bytes = bytes.first(bytes.size() - 8);
  if (std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
    return corrupt("not an artifact of this backend and version");
  if (fnv1a(bytes) != sum) return corrupt("checksum does not match");
  Reader in(bytes.subspan(sizeof kMagic));
  std::uint32_t tensor_size = 0, op_size = 0, tensors = 0, ops = 0;
  char name[64] = {};
  StoredPlan stored;
  Plan& plan = stored.plan;
  if (!in.get(tensor_size) || !in.get(op_size) || !in.get(name) || !in.get(plan.bucket) ||
      !in.get(tensors) || !in.get(ops) || !in.get(plan.layer_begin) || !in.get(plan.layer_end) ||
      !in.get(plan.layers)) {
    return corrupt("ends within its header");
  }
  if (tensor_size != sizeof(infos_tensor) || op_size != sizeof(infos_op))
    return corrupt("records of another ABI");
  if (tensors == 0 || ops == 0 || tensors > kTensorsMax || ops > kOpsMax ||
      in.left() != tensors * sizeof(infos_tensor) + ops * sizeof(infos_op)) {
    return corrupt("its counts do not match its size");
  }
  plan.tensors.resize(tensors);
  plan.ops.resize(ops);
  for (infos_tensor& t : plan.tensors) {
    if (!in.get(t)) return corrupt("ends within its tensors");
    t.name[sizeof t.name - 1] = 0;
  }
  for (infos_op& o : plan.ops) {
    if (!in.get(o)) return corrupt("ends within its ops");
  }
  INFOS_TRY(check_plan(plan));
  name[sizeof name - 1] = 0;
  stored.compat = name;
  return stored;
}

}  // namespace infos::cpu
