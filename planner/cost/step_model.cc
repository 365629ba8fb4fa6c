// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/step_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace infos {
namespace {

constexpr double kActivationBytes = 2;  // activations are 16-bit
// Elementwise passes over the hidden state in a layer: two norms, two residual sums, the copies
// into and out of quantised form.
constexpr double kHiddenPasses = 8;
constexpr double kSmallKernels = 4;  // a layer's kernels that are none of the products

/// Experts of `experts` that `tokens` tokens reach when each picks `top_k`.
double reached(double experts, double top_k, double tokens) {
  return experts * (1 - std::pow(1 - top_k / experts, tokens));
}

}  // namespace

double bytes_per_weight(MathType type) {
  switch (type) {
    case MathType::bf16:
      return 2;
    case MathType::f8:
    case MathType::f8_block:
      return 1;
    case MathType::f4:
      return 0.5625;  // 4 bits, and an 8-bit scale for 16 weights
    case MathType::i4_weights:
      return 0.5625;
  }
  return 2;
}

StepModel::StepModel(ModelShape model, DeviceSpeed device, Parallelism parallel,
                     Precision precision, RooflineConstants constants)
    : model_(std::move(model)),
      device_(std::move(device)),
      parallel_(parallel),
      precision_(precision),
      constants_(constants) {
  const double group = parallel_.devices();
  weight_bytes_ = 2.0 * model_.vocab * model_.hidden * 2 / parallel_.tp;
  for (const LayerGroup& layer : model_.groups) {
    weight_bytes_ += layer.layers * dense_weights(layer, model_.hidden) *
                     bytes_per_weight(precision_.dense) / parallel_.tp;
    weight_bytes_ += layer.layers * layer.ffn.experts * expert_weights(layer, model_.hidden) *
                     bytes_per_weight(precision_.experts) / group;
    kv_bytes_per_token_ +=
        layer.layers * kv_bytes(layer.attention, parallel_.tp, precision_.kv_element_bytes);
  }
}

double StepModel::kv_tokens(double share, double other) const {
  const double room = device_.memory_bytes * share - other - weight_bytes_;
  return std::max(0.0, room / kv_bytes_per_token_);
}

double StepModel::flops(MathType type) const {
  switch (type) {
    case MathType::f8:
    case MathType::f8_block:
      return device_.flops_f8 > 0 ? device_.flops_f8 : device_.flops_bf16;
    case MathType::f4:
      if (device_.flops_f4 > 0) return device_.flops_f4;
      return device_.flops_bf16;  // weights are widened before the product
    default:
      return device_.flops_bf16;
  }
}

double StepModel::stream(double bytes) const {
  return bytes / (constants_.memory_efficiency * device_.memory_bytes_per_second);
}

double StepModel::gemm(MathType type, double m, double n, double k) const {
  if (m <= 0 || n <= 0 || k <= 0) return 0;
  if (device_.tables) {
    const MathType table = type == MathType::f8_block ? MathType::f8 : type;
    if (const auto known = device_.tables->gemm(table, {m, n, k})) return *known;
  }
  const double math = 2 * m * n * k / (constants_.math_efficiency * flops(type));
  const double bytes = n * k * bytes_per_weight(type) + m * (k + n) * kActivationBytes;
  return constants_.kernel_seconds + std::max(math, stream(bytes));
}

/// One product per head: [m, k] by [k, n], 16-bit.
double StepModel::batched_gemm(double batch, double m, double n, double k) const {
  const double math = 2 * batch * m * n * k / (constants_.math_efficiency * device_.flops_bf16);
  const double bytes = batch * (n * k + m * (k + n)) * kActivationBytes;
  return constants_.kernel_seconds + std::max(math, stream(bytes));
}

double StepModel::collective(Collective op, double devices, double bytes) const {
  if (devices <= 1) return 0;
  if (device_.tables) {
    if (const auto known = device_.tables->collective({op, devices, bytes})) return *known;
    // More devices than were measured: the same latency, the bytes cross slower links.
    if (const auto eight = device_.tables->collective({op, 8, bytes}); eight && devices > 8)
      return *eight * (op == Collective::all_to_all ? 2 : 1.5);
  }
  const double turns = op == Collective::all_reduce ? 2 : 1;
  const double part = (devices - 1) / devices;
  return constants_.link_seconds +
         turns * part * bytes / (constants_.link_efficiency * device_.link_bytes_per_second);
}

// ---- products ----

void StepModel::dense_layer(const LayerGroup& group, double tokens, Linear& sum) const {
  const AttentionShape& a = group.attention;
  const MathType type = precision_.dense;
  const double tp = parallel_.tp, hidden = model_.hidden;
  const double heads = a.heads / tp, width = heads * a.head_dim;
  double seconds = 0;
  switch (a.kind) {
    case AttentionKind::grouped: {
      const double kv = std::max(1.0, a.kv_heads / tp) * a.head_dim;
      seconds += gemm(type, tokens, (a.gated ? 2 : 1) * width + 2 * kv, hidden);
      break;
    }
    case AttentionKind::latent:
      seconds += gemm(type, tokens, a.q_rank + a.kv_rank + a.rope_dim, hidden);
      seconds += gemm(type, tokens, heads * (a.head_dim + a.rope_dim), a.q_rank);
      seconds += batched_gemm(heads, tokens, a.kv_rank, a.head_dim);  // q into the latent space
      seconds += batched_gemm(heads, tokens, a.head_dim, a.kv_rank);  // and v out of it
      break;
    case AttentionKind::linear:
      seconds += gemm(type, tokens, 2 * width + 2.0 * a.kv_heads / tp * a.head_dim, hidden);
      break;
  }
  seconds += gemm(type, tokens, hidden, width);
  sum.seconds_collectives +=
      collective(Collective::all_reduce, tp, tokens * hidden * kActivationBytes);
  const double inter = group.ffn.inter / tp;
  if (inter > 0) {
    seconds += gemm(type, tokens, 2 * inter, hidden) + gemm(type, tokens, hidden, inter);
    if (group.ffn.experts == 0)
      sum.seconds_collectives +=
          collective(Collective::all_reduce, tp, tokens * hidden * kActivationBytes);
  }
  sum.seconds_dense += seconds;
  sum.seconds_small += kSmallKernels * constants_.kernel_seconds +
                       stream(tokens * (kHiddenPasses * hidden + 3 * inter) * kActivationBytes);
}

/// `tokens` of the whole group.
double StepModel::experts(const LayerGroup& group, double tokens) const {
  const FfnShape& f = group.ffn;
  const double tp = parallel_.moe_tp, ep = parallel_.moe_ep;
  if (device_.tables) {
    const MoeSize size{tokens,
                       double(model_.hidden),
                       double(f.expert_inter),
                       double(f.top_k),
                       double(f.experts),
                       tp,
                       ep};
    if (const auto known = device_.tables->moe(precision_.experts, size)) return *known;
  }
  const double weights = expert_weights(group, model_.hidden);
  const double busiest = ep > 1 ? constants_.expert_imbalance : 1;
  const double touched = reached(f.experts, f.top_k, tokens) / ep * (ep > 1 ? 1.05 : 1);
  const double bytes = touched * weights / tp * bytes_per_weight(precision_.experts) +
                       tokens * f.top_k / ep * busiest * 2 * model_.hidden * kActivationBytes;
  // A tile of an expert's rows is padded to 16.
  const double rows = tokens * f.top_k / ep * busiest;
  const double padded = std::max(rows, 16 * std::min(touched, rows));
  const double math =
      2 * padded * weights / tp / (constants_.math_efficiency * flops(precision_.experts));
  return 3 * constants_.kernel_seconds + std::max(math, stream(bytes));
}

void StepModel::expert_layer(const LayerGroup& group, double tokens, Linear& sum) const {
  const double all = tokens * parallel_.dp;
  const double hidden = model_.hidden;
  sum.seconds_dense += gemm(MathType::bf16, tokens, group.ffn.experts, hidden);
  sum.seconds_experts += experts(group, all);
  if (parallel_.dp > 1) {
    // Tokens go to their experts and come back.
    const double bytes = tokens * group.ffn.top_k * hidden * kActivationBytes;
    sum.seconds_collectives += 2 * collective(Collective::all_to_all, parallel_.devices(), bytes);
  } else {
    sum.seconds_collectives +=
        collective(Collective::all_reduce, parallel_.tp, tokens * hidden * kActivationBytes);
  }
  sum.seconds_small += 2 * constants_.kernel_seconds;  // routing
}

StepModel::Linear StepModel::linear(double tokens) const {
  if (const auto known = linear_.find(tokens); known != linear_.end()) return known->second;
  Linear sum;
  for (const LayerGroup& group : model_.groups) {
    Linear one;
    dense_layer(group, tokens, one);
    if (group.ffn.experts > 0) expert_layer(group, tokens, one);
    sum.seconds_dense += group.layers * one.seconds_dense;
    sum.seconds_experts += group.layers * one.seconds_experts;
    sum.seconds_collectives += group.layers * one.seconds_collectives;
    sum.seconds_small += group.layers * one.seconds_small;
  }
  linear_.emplace(tokens, sum);
  return sum;
}

// ---- attention ----

double StepModel::generation(const AttentionShape& shape, double sequences, double context) const {
  const double heads = std::max(1.0, shape.heads / parallel_.tp);
  if (shape.window > 0) context = std::min<double>(context, shape.window);
  if (shape.kind == AttentionKind::linear) {
    const double state = heads * shape.head_dim * shape.head_dim * 4;
    return constants_.kernel_seconds + stream(2 * sequences * state);
  }
  if (shape.kind == AttentionKind::latent) {
    const double width = shape.kv_rank + shape.rope_dim;
    const double bytes = sequences * context * width * precision_.kv_element_bytes;
    const double math = 2 * sequences * context * heads * (width + shape.kv_rank) /
                        (constants_.math_efficiency * device_.flops_bf16);
    return 2 * constants_.kernel_seconds + std::max(math, stream(bytes));
  }
  const double kv_heads = std::max(1.0, shape.kv_heads / parallel_.tp);
  if (device_.tables && shape.head_dim == 128) {
    const AttentionSize size{sequences, std::max(1.0, context), heads, kv_heads};
    if (const auto known = device_.tables->generation_attention(size)) return *known;
  }
  const double bytes =
      sequences * context * 2 * kv_heads * shape.head_dim * precision_.kv_element_bytes;
  return 2 * constants_.kernel_seconds + stream(bytes);
}

double StepModel::prompt(const AttentionShape& shape, const PromptPiece& piece) const {
  const double heads = std::max(1.0, shape.heads / parallel_.tp);
  const double end = piece.tokens + piece.past;
  if (shape.kind == AttentionKind::linear) {
    const double math =
        6 * piece.tokens * heads * shape.head_dim * shape.head_dim / (0.3 * device_.flops_bf16);
    return 2 * constants_.kernel_seconds + math;
  }
  // Scores that are not masked.
  double scores = piece.tokens * (piece.past + end) / 2;
  if (shape.window > 0) scores = std::min(scores, piece.tokens * shape.window);
  if (shape.kind == AttentionKind::grouped && device_.tables && shape.head_dim == 128 &&
      shape.window == 0) {
    const double kv_heads = std::max(1.0, shape.kv_heads / parallel_.tp);
    const AttentionSize size{1, end, heads, kv_heads};
    if (const auto known = device_.tables->context_attention(size))
      return *known * std::min(1.0, 2 * scores / (end * end));
  }
  const double dims = shape.kind == AttentionKind::latent ? 2.0 * shape.head_dim + shape.rope_dim
                                                          : 2.0 * shape.head_dim;
  const double math = 2 * scores * heads * dims / (0.5 * device_.flops_bf16);
  return 2 * constants_.kernel_seconds + math;
}

double StepModel::attention(const LayerGroup& group, const StepWork& work) const {
  double seconds = 0;
  if (work.decoding > 0) seconds += generation(group.attention, work.decoding, work.context);
  for (const PromptPiece& piece : work.prompts) seconds += prompt(group.attention, piece);
  return seconds * group.layers;
}

StepTime StepModel::time(const StepWork& work) const {
  double tokens = work.decoding, rows = work.decoding;
  for (const PromptPiece& piece : work.prompts) tokens += piece.tokens, rows += 1;
  if (tokens <= 0) return {};
  // Attention replicas share the batch evenly.
  StepWork share = work;
  const double dp = parallel_.dp;
  share.decoding = std::ceil(work.decoding / dp);
  double mine = tokens;
  if (dp > 1) {
    mine = std::ceil(tokens / dp);
    for (PromptPiece& piece : share.prompts) piece.tokens = std::ceil(piece.tokens / dp);
  }
  const Linear products = linear(std::max(1.0, mine));
  StepTime time;
  time.dense = products.seconds_dense;
  time.experts = products.seconds_experts;
  time.collectives = products.seconds_collectives;
  time.small = products.seconds_small;
  for (const LayerGroup& group : model_.groups) time.attention += attention(group, share);
  time.head = gemm(MathType::bf16, std::max(1.0, std::ceil(rows / dp)), model_.vocab / parallel_.tp,
                   model_.hidden);
  return time;
}

}  // namespace infos
