// SPDX-License-Identifier: Apache-2.0
// Every operation of the phase graph, one row or one matrix at a time, written as its definition
// reads. Instantiated for double (the oracle) and float (what plain f32 sums would give). Pure; any
// thread; never fast.
#pragma once

#include <cstdint>
#include <span>

#include "devices/abi/infos_device.h"

namespace infos::reference {

/// y = x / sqrt(mean(x^2) + epsilon) * w, over each group of w.size() elements.
template <typename Real>
void rms_norm(std::span<const Real> x, std::span<const Real> w, Real epsilon, std::span<Real> y);

/// y[r, n] = sum_k x[r, k] w[n, k] (+ bias[n]); bias may be empty. Sums run over k upwards.
template <typename Real>
void linear(std::span<const Real> x, std::span<const Real> w, std::span<const Real> bias,
            std::size_t rows, std::span<Real> y);

/// Rotates the first rotary_dim elements of each head of one row by position * inv_freq.
template <typename Real>
void rope(const infos_op& op, std::span<const Real> x, std::span<const Real> inv_freq,
          std::int32_t position, std::span<Real> y);

template <typename Real>
void silu_mul(std::span<const Real> gate, std::span<const Real> up, std::span<Real> y);

/// One row through a mixture of experts.
template <typename Real>
struct ExpertWeights {
  std::span<const Real> router, gate, up, down;
};
template <typename Real>
void moe_ffn(const infos_op& op, std::span<const Real> x, const ExpertWeights<Real>& w,
             std::span<Real> y);

/// A sequence's part of a paged pool.
struct KvView {
  infos_kv_layout layout;
  std::uint32_t block_tokens;
  std::span<const std::uint32_t> blocks;
  std::uint32_t layer;

  std::byte* k(std::uint32_t head, std::uint32_t position, std::uint32_t dim) const;
  std::byte* v(std::uint32_t head, std::uint32_t position, std::uint32_t dim) const;
};

template <typename Real>
void kv_append(const infos_op& op, std::span<const Real> k, std::span<const Real> v,
               std::int32_t position, const KvView& kv);

/// One query row at `position`: softmax(scale q.k) v over the positions that the mask lets it see.
template <typename Real>
void attention(const infos_op& op, std::span<const Real> q, std::int32_t position, const KvView& kv,
               std::span<Real> o);

}  // namespace infos::reference
