// SPDX-License-Identifier: Apache-2.0
// Row kernels over the sixteen lanes: quantisation of activations, norms, RoPE, activations, KV
// stores. Included by each kernels_<isa>.cc inside its namespace. Sums run over lanes first and are
// folded in one fixed order at the end.
#pragma once

/// e^x with about 1.5 ulp; 0 below -87.3, finite above.
SIMD F exponential(F x) {
  const F low = set1(-87.33654F), high = set1(88.37626F);
  const F t = min(max(x, low), high);
  const I n = round_to_int(mul(t, set1(1.44269504F)));
  const F nf = to_float(n);
  F r = fma(nf, set1(-0.693359375F), t);
  r = fma(nf, set1(2.12194440e-4F), r);
  F p = set1(1.9875691500e-4F);  // Source: Cephes expf, minimax on [-ln2/2, ln2/2]
  p = fma(p, r, set1(1.3981999507e-3F));
  p = fma(p, r, set1(8.3334519073e-3F));
  p = fma(p, r, set1(4.1665795894e-2F));
  p = fma(p, r, set1(1.6666665459e-1F));
  p = fma(p, r, set1(5.0000001201e-1F));
  const F y = add(fma(p, mul(r, r), r), set1(1.0F));
  return select_lt(x, low, zero(), scale_exponent(y, n));
}

static int zero_point(WeightKind kind) {
  switch (kind) {
    case WeightKind::q8_0:
      return 128;
    case WeightKind::q4_0:
      return 8;
    case WeightKind::q6_k:
      return 32;
    default:
      return 0;
  }
}

static void quantise(const float* x, ActBlock* out, std::size_t k, WeightKind kind) {
  const int zero_of = zero_point(kind);
  for (std::size_t i = 0; i < k; i += kBlock, ++out) {
    const F a = load(x + i), b = load(x + i + kLanes);
    const float top = max_lane(max(abs(a), abs(b)));
    const float scale = top / 127.0F;
    const float inverse = top > 1e-36F ? 127.0F / top : 0.0F;
    const I qa = round_to_int(mul(a, set1(inverse))), qb = round_to_int(mul(b, set1(inverse)));
    store_s8(out->q, qa);
    store_s8(out->q + kLanes, qb);
    const std::int32_t sa = sum_i(qa), sb = sum_i(qb);
    out->scale = scale;
    const bool halves = kind == WeightKind::q6_k;
    out->comp[0] = -zero_of * (halves ? sa : sa + sb);
    out->comp[1] = halves ? -zero_of * sb : 0;
    out->neg_sum = -scale * static_cast<float>(sa + sb);
  }
}

static void rms_norm(const float* x, const float* w, float* y, std::size_t n, std::size_t m,
                     float epsilon) {
  for (std::size_t g = 0; g < n; g += m) {
    F squares = zero();
    std::size_t i = 0;
    for (; i + kLanes <= m; i += kLanes) {
      const F v = load(x + g + i);
      squares = fma(v, v, squares);
    }
    const int rest = static_cast<int>(m - i);
    if (rest) {
      const F v = load_n(x + g + i, rest);
      squares = fma(v, v, squares);
    }
    const float mean = sum(squares) / static_cast<float>(m);
    const F factor = set1(1.0F / __builtin_sqrtf(mean + epsilon));
    for (i = 0; i + kLanes <= m; i += kLanes)
      store(y + g + i, mul(mul(load(x + g + i), factor), load(w + i)));
    if (rest)
      store_n(y + g + i, mul(mul(load_n(x + g + i, rest), factor), load_n(w + i, rest)), rest);
  }
}

static void rope_halves(const float* x, float* y, const float* c, const float* s,
                        std::size_t half) {
  std::size_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const F a = load(x + i), b = load(x + half + i), cos = load(c + i), sin = load(s + i);
    store(y + i, sub(mul(a, cos), mul(b, sin)));
    store(y + half + i, add(mul(b, cos), mul(a, sin)));
  }
  const int rest = static_cast<int>(half - i);
  if (!rest) return;
  const F a = load_n(x + i, rest), b = load_n(x + half + i, rest), cos = load_n(c + i, rest),
          sin = load_n(s + i, rest);
  store_n(y + i, sub(mul(a, cos), mul(b, sin)), rest);
  store_n(y + half + i, add(mul(b, cos), mul(a, sin)), rest);
}

static void rope_adjacent(const float* x, float* y, const float* c, const float* s,
                          std::size_t half) {
  std::size_t i = 0;
  for (; i + 8 <= half; i += 8) {
    const F a = load(x + 2 * i);
    store(y + 2 * i, add(mul(a, twice(c + i)), mul(swap_pairs(a), negate_even(twice(s + i)))));
  }
  for (; i < half; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    y[2 * i] = a * c[i] - b * s[i];
    y[2 * i + 1] = b * c[i] + a * s[i];
  }
}

static void rope(const float* x, float* y, const float* cos_sin, std::size_t heads,
                 std::size_t head_dim, std::size_t rotary_dim, std::uint32_t style) {
  const std::size_t half = rotary_dim / 2;
  for (std::size_t h = 0; h < heads; ++h, x += head_dim, y += head_dim) {
    if (style == 1) {
      rope_halves(x, y, cos_sin, cos_sin + half, half);
    } else {
      rope_adjacent(x, y, cos_sin, cos_sin + half, half);
    }
    for (std::size_t i = rotary_dim; i < head_dim; ++i) y[i] = x[i];
  }
}

static void add_rows(const float* a, const float* b, float* y, std::size_t n) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, add(load(a + i), load(b + i)));
  const int rest = static_cast<int>(n - i);
  if (rest) store_n(y + i, add(load_n(a + i, rest), load_n(b + i, rest)), rest);
}

SIMD F silu_times(F g, F u) { return mul(div(g, add(set1(1.0F), exponential(sub(zero(), g)))), u); }

static void silu_mul(const float* gate, const float* up, float* y, std::size_t n) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, silu_times(load(gate + i), load(up + i)));
  const int rest = static_cast<int>(n - i);
  if (rest) store_n(y + i, silu_times(load_n(gate + i, rest), load_n(up + i, rest)), rest);
}

static void add_scaled(const float* x, float factor, float* y, std::size_t n) {
  const F f = set1(factor);
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, fma(load(x + i), f, load(y + i)));
  const int rest = static_cast<int>(n - i);
  if (rest) store_n(y + i, fma(load_n(x + i, rest), f, load_n(y + i, rest)), rest);
}

static void softmax(float* x, std::size_t n) {
  float top = x[0];
  for (std::size_t i = 1; i < n; ++i) top = x[i] > top ? x[i] : top;
  F total = zero();
  for (std::size_t i = 0; i < n; i += kLanes) {
    const int count = static_cast<int>(n - i < kLanes ? n - i : kLanes);
    const F e = select_range(0, count, exponential(sub(load_n(x + i, count), set1(top))), zero());
    store_n(x + i, e, count);
    total = add(total, e);
  }
  const float all = sum(total);
  for (std::size_t i = 0; i < n; ++i) x[i] = x[i] / all;
}

static void store_kv(const float* x, void* out, std::size_t n, KvType type) {
  if (type == KvType::f32) {
    __builtin_memcpy(out, x, n * sizeof(float));
    return;
  }
  auto* p = static_cast<std::uint16_t*>(out);
  std::uint16_t last[kLanes];
  for (std::size_t i = 0; i < n; i += kLanes) {
    const bool whole = i + kLanes <= n;
    const F v = whole ? load(x + i) : load_n(x + i, static_cast<int>(n - i));
    std::uint16_t* to = whole ? p + i : last;
    if (type == KvType::f16) {
      store_f16(to, v);
    } else {
      store_bf16(to, v);
    }
    if (!whole) __builtin_memcpy(p + i, last, (n - i) * sizeof(std::uint16_t));
  }
}
