// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/reference/program.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <new>
#include <vector>

#include "devices/engine/reference/dequantise.h"
#include "devices/engine/reference/ops.h"
#include "topology/base/check.h"

namespace infos::reference {

namespace {

std::uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(t.tv_nsec);
}

template <typename Real>
class TypedProgram final : public Program {
 public:
  TypedProgram(const GraphCopy& graph, const infos_bucket& bucket, const infos_group* group)
      : g_(graph),
        bucket_(bucket),
        group_(group),
        weights_(graph.tensors.size()),
        values_(graph.tensors.size()) {
    for (std::uint32_t i = g_.layer_begin; i < g_.layer_end; ++i)
      if (g_.ops[i].kind == INFOS_OP_KV_APPEND) last_append_ = i;
  }

  Outcome load(infos_weight_source source, void* context) {
    for (const infos_op& op : g_.ops)
      if (op.kind == INFOS_OP_ALL_REDUCE && group_ == nullptr)
        return {INFOS_INVALID, "the graph has ALL_REDUCE: the device is no rank of a group"};
    for (std::uint32_t t = 0; t < g_.tensors.size(); ++t) {
      if (g_.tensors[t].role == INFOS_ROLE_ACTIVATION) continue;
      const std::uint32_t layers = g_.tensors[t].per_layer != 0 ? g_.n_layers : 1;
      for (std::uint32_t layer = 0; layer < layers; ++layer)
        if (Outcome o = load_one(source, context, t, layer); o.code != INFOS_OK) return o;
    }
    return {};
  }

  Outcome execute(const KvPoolMemory& kv, const infos_batch* batch,
                  const std::atomic<bool>& cancelled) override {
    if (std::string problem = check(kv, batch); !problem.empty()) return {INFOS_INVALID, problem};
    batch_ = read_struct(batch);
    kv_ = &kv;
    sequence_of_row();
    if (Outcome o = run_all(0, g_.layer_begin, 0); o.code != INFOS_OK) return o;
    for (std::uint32_t layer = 0; layer < g_.n_layers; ++layer) {
      if (cancelled) return {INFOS_CANCELLED, "execute was cancelled"};
      if (batch_.deadline_ns != 0 && now_ns() > batch_.deadline_ns)
        return {INFOS_DEADLINE,
                fmt::format("the deadline passed at layer {} of {}", layer, g_.n_layers)};
      if (Outcome o = run_all(g_.layer_begin, g_.layer_end, layer); o.code != INFOS_OK) return o;
    }
    const auto end = static_cast<std::uint32_t>(g_.ops.size());
    if (Outcome o = run_all(g_.layer_end, end, 0); o.code != INFOS_OK) return o;
    const auto& logits = values_[g_.ops.back().output];
    const std::size_t vocab = width(g_.ops.back().output);
    for (std::size_t i = 0; i < logits.size(); ++i)
      batch_.logits[i / vocab * logits_stride() + i % vocab] = static_cast<float>(logits[i]);
    return {};
  }

 private:
  using Span = std::span<const Real>;

  Outcome load_one(infos_weight_source source, void* context, std::uint32_t t,
                   std::uint32_t layer) {
    const infos_tensor& tensor = g_.tensors[t];
    infos_weight weight{};
    weight.struct_size = sizeof weight;
    if (const infos_code code = source(context, t, layer, &weight); code != INFOS_OK)
      return {code, fmt::format("weight {} of layer {} cannot be had", tensor.name, layer)};
    std::uint64_t elements = 1;
    for (std::uint32_t d = 0; d < tensor.rank; ++d)
      elements *= static_cast<std::uint64_t>(tensor.dims[d]);
    const Block block = block_of(weight.dtype);
    if (block.elements == 0)
      return {
          INFOS_UNSUPPORTED,
          fmt::format("weight {} has dtype {} ({}): want f32, f16, bf16, q8_0, q4_0, q4_k or q6_k",
                      tensor.name, dtype_name(weight.dtype), weight.dtype)};
    if (tensor.dims[tensor.rank - 1] % block.elements != 0)
      return {INFOS_INVALID,
              fmt::format("weight {} has rows of {}: {} wants a multiple of {}", tensor.name,
                          tensor.dims[tensor.rank - 1], dtype_name(weight.dtype), block.elements)};
    const std::uint64_t bytes = elements / block.elements * block.bytes;
    if (weight.data == nullptr || weight.bytes != bytes)
      return {INFOS_INVALID,
              fmt::format("weight {} has {} bytes: want {}", tensor.name, weight.bytes, bytes)};
    std::vector<double> wide(elements);
    dequantise(weight.dtype, {static_cast<const std::byte*>(weight.data), bytes}, wide);
    weights_[t].emplace_back(wide.begin(), wide.end());
    return {};
  }

  std::string check(const KvPoolMemory& kv, const infos_batch* batch) const {
    BatchLimits limits;
    limits.max_tokens = bucket_.max_tokens;
    limits.max_sequences = bucket_.max_sequences;
    limits.max_context = bucket_.max_context;
    limits.vocab = static_cast<std::uint32_t>(g_.tensors[g_.ops.front().inputs[0]].dims[0]);
    limits.block_tokens = kv.config.block_tokens;
    limits.n_blocks = kv.config.n_blocks;
    for (const infos_op& op : g_.ops)
      if (op.kind == INFOS_OP_KV_APPEND &&
          (kv.config.kv_heads != op.kv_heads || kv.config.head_dim != op.head_dim ||
           kv.config.layers != g_.n_layers))
        return fmt::format(
            "the KV pool has {} layers of {} heads of {}: the program wants {}, {} and {}",
            kv.config.layers, kv.config.kv_heads, kv.config.head_dim, g_.n_layers, op.kv_heads,
            op.head_dim);
    const std::uint64_t stride = read_struct(batch).logits_stride, vocab = logits_width();
    if (stride != 0 && stride < vocab)
      return fmt::format("logits_stride is {}: a row has {}", stride, vocab);
    return check_batch(batch, limits);
  }
  std::size_t logits_width() const { return width(g_.ops.back().output); }
  std::size_t logits_stride() const {
    return batch_.logits_stride != 0 ? batch_.logits_stride : logits_width();
  }

  void sequence_of_row() {
    sequence_.assign(batch_.n_tokens, 0);
    for (std::uint32_t s = 0; s < batch_.n_sequences; ++s)
      for (std::uint32_t r = batch_.row_begin[s]; r < batch_.row_begin[s + 1]; ++r)
        sequence_[r] = s;
  }

  KvView view(std::uint32_t row, std::uint32_t layer) const {
    const std::uint32_t begin = batch_.table_begin[sequence_[row]];
    const std::uint32_t end = batch_.table_begin[sequence_[row] + 1];
    return {
        kv_->layout, kv_->config.block_tokens, {batch_.block_table + begin, end - begin}, layer};
  }

  Span value(std::uint32_t tensor, std::uint32_t layer) const {
    if (g_.tensors[tensor].role == INFOS_ROLE_ACTIVATION) return values_[tensor];
    return weights_[tensor][g_.tensors[tensor].per_layer != 0 ? layer : 0];
  }
  std::size_t width(std::uint32_t tensor) const {
    return static_cast<std::size_t>(g_.tensors[tensor].dims[1]);
  }

  Outcome run_all(std::uint32_t begin, std::uint32_t end, std::uint32_t layer) {
    for (std::uint32_t i = begin; i < end; ++i) {
      if (g_.ops[i].kind == INFOS_OP_ALL_REDUCE) {
        if (const infos_code code = all_reduce(g_.ops[i]); code != INFOS_OK)
          return {code, "another rank of the group has failed, or ran another batch"};
      } else {
        run(g_.ops[i], layer);
      }
      if (i == last_append_ && batch_.layer_done != nullptr)
        batch_.layer_done(batch_.layer_context, layer);
    }
    return {};
  }

  /// Meets twice: when all sums are there, and when all have been read.
  infos_code all_reduce(const infos_op& op) {
    const std::vector<Real>& mine = values_[op.inputs[0]];
    std::vector<std::uint64_t> all(group_->ranks);
    const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&mine));
    if (const infos_code code = group_->exchange(group_->context, address, all.data());
        code != INFOS_OK)
      return code;
    std::vector<Real> sum(mine.size(), Real{0});
    for (const std::uint64_t other : all) {
      const auto& part = *reinterpret_cast<const std::vector<Real>*>(other);
      if (part.size() != sum.size()) return INFOS_INVALID;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    values_[op.output] = std::move(sum);
    return group_->exchange(group_->context, 0, all.data());
  }

  void run(const infos_op& op, std::uint32_t layer) {
    std::vector<Span> in;
    for (std::uint32_t i = 0; i < op.n_inputs; ++i) in.push_back(value(op.inputs[i], layer));
    std::size_t rows = batch_.n_tokens;
    std::vector<Real> y;
    if (op.kind != INFOS_OP_KV_APPEND) {
      if (g_.tensors[op.output].dims[0] == INFOS_DIM_ROWS) rows = batch_.n_logit_rows;
      y.assign(rows * width(op.output), Real{0});
    }
    if (op.kind == INFOS_OP_LINEAR)
      linear<Real>(in[0], in[1], op.n_inputs == 3 ? in[2] : Span{}, rows, y);
    else
      for (std::uint32_t row = 0; row < rows; ++row) run_row(op, layer, in, row, y);
    // Through a fresh buffer, so that an output may be one of the inputs (the residual stream).
    if (op.kind != INFOS_OP_KV_APPEND) values_[op.output] = std::move(y);
  }

  void run_row(const infos_op& op, std::uint32_t layer, const std::vector<Span>& in,
               std::uint32_t row, std::vector<Real>& out) {
    const auto part = [&](std::uint32_t i) {
      const std::size_t n = width(op.inputs[i]);
      return in[i].subspan(row * n, n);
    };
    if (op.kind == INFOS_OP_KV_APPEND)
      return kv_append<Real>(op, part(0), part(1), batch_.positions[row], view(row, layer));
    const std::size_t n = width(op.output);
    const std::span<Real> y(out.data() + row * n, n);
    switch (op.kind) {
      case INFOS_OP_EMBED:
        return copy(in[0].subspan(static_cast<std::size_t>(batch_.tokens[row]) * n, n), y);
      case INFOS_OP_RMS_NORM:
        return rms_norm<Real>(part(0), in[1], static_cast<Real>(op.epsilon), y);
      case INFOS_OP_ROPE:
        return rope<Real>(op, part(0), in[1], batch_.positions[row], y);
      case INFOS_OP_ATTENTION:
        return attention<Real>(op, part(0), batch_.positions[row], view(row, layer), y);
      case INFOS_OP_ADD:
        return add(part(0), part(1), y);
      case INFOS_OP_SILU_MUL:
        return silu_mul<Real>(part(0), part(1), y);
      case INFOS_OP_MOE_FFN:
        return moe_ffn<Real>(op, part(0), {in[1], in[2], in[3], in[4]}, y);
      case INFOS_OP_SELECT_ROWS:
        return copy(in[0].subspan(batch_.logit_rows[row] * n, n), y);
      default:
        INFOS_CHECK(false);
    }
  }

  static void copy(Span x, std::span<Real> y) { std::copy(x.begin(), x.end(), y.begin()); }
  static void add(Span a, Span b, std::span<Real> y) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = a[i] + b[i];
  }

  const GraphCopy g_;
  const infos_bucket bucket_;
  const infos_group* const group_;
  std::uint32_t last_append_ = UINT32_MAX;  // the op after which a layer's KV is written
  std::vector<std::vector<std::vector<Real>>> weights_;  // [tensor][layer][element]
  std::vector<std::vector<Real>> values_;                // [tensor][element]
  std::vector<std::uint32_t> sequence_;                  // of each row
  infos_batch batch_{};
  const KvPoolMemory* kv_ = nullptr;
};

template <typename Real>
Outcome load_typed(const GraphCopy& graph, const infos_bucket& bucket, const infos_group* group,
                   infos_weight_source source, void* context, std::unique_ptr<Program>* out) {
  auto program = std::make_unique<TypedProgram<Real>>(graph, bucket, group);
  Outcome outcome = program->load(source, context);
  if (outcome.code == INFOS_OK) *out = std::move(program);
  return outcome;
}

}  // namespace

Outcome KvPoolMemory::take() {
  if (config.allocate == nullptr) {
    bytes.reset(new (std::nothrow) std::byte[layout.bytes]());
    layout.base = bytes.get();
  } else if (config.release == nullptr) {
    return {INFOS_INVALID, "a KV pool with allocate and without release: want both"};
  } else {
    layout.base = config.allocate(config.allocate_context, layout.bytes);
  }
  if (layout.base == nullptr)
    return {INFOS_EXHAUSTED, fmt::format("no memory for {} bytes", layout.bytes)};
  return {};
}

KvPoolMemory::~KvPoolMemory() {
  if (bytes == nullptr && layout.base != nullptr)
    config.release(config.allocate_context, layout.base, layout.bytes);
}

Outcome load_program(const GraphCopy& graph, const infos_bucket& bucket, const RunOptions& options,
                     infos_weight_source source, void* context, std::unique_ptr<Program>* out) {
  if (options.precision == Precision::f64)
    return load_typed<double>(graph, bucket, options.group, source, context, out);
  return load_typed<float>(graph, bucket, options.group, source, context, out);
}

}  // namespace infos::reference
