// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/reference/ops.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "devices/engine/reference/dequantise.h"

namespace infos::reference {

template <typename Real>
void rms_norm(std::span<const Real> x, std::span<const Real> w, Real epsilon, std::span<Real> y) {
  for (std::size_t group = 0; group < x.size(); group += w.size()) {
    Real squares = 0;
    for (std::size_t i = 0; i < w.size(); ++i) squares += x[group + i] * x[group + i];
    const Real scale = 1 / std::sqrt(squares / static_cast<Real>(w.size()) + epsilon);
    for (std::size_t i = 0; i < w.size(); ++i) y[group + i] = x[group + i] * scale * w[i];
  }
}

template <typename Real>
void linear(std::span<const Real> x, std::span<const Real> w, std::span<const Real> bias,
            std::size_t rows, std::span<Real> y) {
  if (rows == 0) return;
  const std::size_t k = x.size() / rows;
  const std::size_t n = y.size() / rows;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t j = 0; j < n; ++j) {
      Real sum = 0;
      for (std::size_t i = 0; i < k; ++i) sum += x[r * k + i] * w[j * k + i];
      y[r * n + j] = bias.empty() ? sum : sum + bias[j];
    }
  }
}

template <typename Real>
void rope(const infos_op& op, std::span<const Real> x, std::span<const Real> inv_freq,
          std::int32_t position, std::span<Real> y) {
  std::copy(x.begin(), x.end(), y.begin());
  const std::size_t pairs = op.rotary_dim / 2;
  for (std::size_t head = 0; head < op.heads; ++head) {
    for (std::size_t i = 0; i < pairs; ++i) {
      const bool adjacent = op.rope_style == INFOS_ROPE_ADJACENT;
      const std::size_t a = head * op.head_dim + (adjacent ? 2 * i : i);
      const std::size_t b = adjacent ? a + 1 : a + pairs;
      const double angle = static_cast<double>(position) * static_cast<double>(inv_freq[i]);
      const auto cosine = static_cast<Real>(std::cos(angle));
      const auto sine = static_cast<Real>(std::sin(angle));
      y[a] = x[a] * cosine - x[b] * sine;
      y[b] = x[a] * sine + x[b] * cosine;
    }
  }
}

template <typename Real>
void silu_mul(std::span<const Real> gate, std::span<const Real> up, std::span<Real> y) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
}

namespace {
template <typename Real>
void softmax(std::vector<Real>& values) {
  const Real largest = *std::max_element(values.begin(), values.end());
  Real sum = 0;
  for (Real& value : values) sum += value = std::exp(value - largest);
  for (Real& value : values) value /= sum;
}
}  // namespace

template <typename Real>
void moe_ffn(const infos_op& op, std::span<const Real> x, const ExpertWeights<Real>& w,
             std::span<Real> y) {
  const std::size_t d = x.size();
  const std::size_t f = w.gate.size() / op.experts / d;
  std::vector<Real> weight(op.experts);
  linear<Real>(x, w.router, {}, 1, weight);
  softmax(weight);
  std::vector<std::uint32_t> order(op.experts);
  std::iota(order.begin(), order.end(), 0U);
  // Ties go to the lower expert.
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return weight[a] > weight[b]; });
  Real total = 0;
  for (std::size_t i = 0; i < op.top_k; ++i) total += weight[order[i]];
  std::vector<Real> gate(f), up(f), hidden(f), out(d);
  std::fill(y.begin(), y.end(), Real{0});
  for (std::size_t i = 0; i < op.top_k; ++i) {
    const std::size_t at = order[i] * f * d;
    linear<Real>(x, w.gate.subspan(at, f * d), {}, 1, gate);
    linear<Real>(x, w.up.subspan(at, f * d), {}, 1, up);
    silu_mul<Real>(gate, up, hidden);
    linear<Real>(hidden, w.down.subspan(at, f * d), {}, 1, out);
    const Real share = op.renormalise != 0 ? weight[order[i]] / total : weight[order[i]];
    for (std::size_t j = 0; j < d; ++j) y[j] += share * out[j];
  }
}

std::byte* KvView::k(std::uint32_t head, std::uint32_t position, std::uint32_t dim) const {
  const std::uint64_t block = blocks[position / block_tokens];
  return static_cast<std::byte*>(layout.base) + block * layout.s_block + layer * layout.s_layer +
         head * layout.s_head + (position % block_tokens) * layout.s_token +
         std::uint64_t{dim} * block_of(layout.dtype).bytes;
}

std::byte* KvView::v(std::uint32_t head, std::uint32_t position, std::uint32_t dim) const {
  return k(head, position, dim) + layout.v_offset;
}

template <typename Real>
void kv_append(const infos_op& op, std::span<const Real> k, std::span<const Real> v,
               std::int32_t position, const KvView& kv) {
  const auto p = static_cast<std::uint32_t>(position);
  for (std::uint32_t head = 0; head < op.kv_heads; ++head) {
    for (std::uint32_t i = 0; i < op.head_dim; ++i) {
      const std::size_t at = std::size_t{head} * op.head_dim + i;
      store_element(kv.layout.dtype, static_cast<double>(k[at]), kv.k(head, p, i));
      store_element(kv.layout.dtype, static_cast<double>(v[at]), kv.v(head, p, i));
    }
  }
}

template <typename Real>
void attention(const infos_op& op, std::span<const Real> q, std::int32_t position, const KvView& kv,
               std::span<Real> o) {
  const auto last = static_cast<std::uint32_t>(position);
  const bool windowed = op.mask == INFOS_MASK_WINDOW && last + 1 > op.window;
  const std::uint32_t first = windowed ? last + 1 - op.window : 0;
  std::fill(o.begin(), o.end(), Real{0});
  std::vector<Real> score(last - first + 1);
  for (std::uint32_t head = 0; head < op.heads; ++head) {
    const std::uint32_t kv_head = head / (op.heads / op.kv_heads);
    const std::size_t at = std::size_t{head} * op.head_dim;
    for (std::uint32_t p = first; p <= last; ++p) {
      Real dot = 0;
      for (std::uint32_t i = 0; i < op.head_dim; ++i)
        dot += q[at + i] * static_cast<Real>(load_element(kv.layout.dtype, kv.k(kv_head, p, i)));
      score[p - first] = dot * static_cast<Real>(op.scale);
    }
    softmax(score);
    for (std::uint32_t p = first; p <= last; ++p)
      for (std::uint32_t i = 0; i < op.head_dim; ++i)
        o[at + i] += score[p - first] *
                     static_cast<Real>(load_element(kv.layout.dtype, kv.v(kv_head, p, i)));
  }
}

#define INFOS_INSTANTIATE(Real)                                                                   \
  template void rms_norm<Real>(std::span<const Real>, std::span<const Real>, Real,                \
                               std::span<Real>);                                                  \
  template void linear<Real>(std::span<const Real>, std::span<const Real>, std::span<const Real>, \
                             std::size_t, std::span<Real>);                                       \
  template void rope<Real>(const infos_op&, std::span<const Real>, std::span<const Real>,         \
                           std::int32_t, std::span<Real>);                                        \
  template void silu_mul<Real>(std::span<const Real>, std::span<const Real>, std::span<Real>);    \
  template void moe_ffn<Real>(const infos_op&, std::span<const Real>, const ExpertWeights<Real>&, \
                              std::span<Real>);                                                   \
  template void kv_append<Real>(const infos_op&, std::span<const Real>, std::span<const Real>,    \
                                std::int32_t, const KvView&);                                     \
  template void attention<Real>(const infos_op&, std::span<const Real>, std::int32_t,             \
                                const KvView&, std::span<Real>);
INFOS_INSTANTIATE(float)
INFOS_INSTANTIATE(double)

}  // namespace infos::reference
