// SPDX-License-Identifier: Apache-2.0
// Sixteen lanes in plain C++: the meaning of every operation that simd_avx2.h and simd_avx512.h do
// in hardware. Included by kernels_generic.cc alone, inside its namespace.
#pragma once

#define SIMD [[gnu::always_inline, maybe_unused]] static inline

// Register tiles: rows x panels, for float and for integer weights.
constexpr int kFloatRows = 2, kFloatPanels = 1, kIntRows = 2, kIntPanels = 1;

/// Asks for the line at p to come to the second-level cache.
SIMD void prefetch(const std::uint8_t* p) { __builtin_prefetch(p, 0, 2); }

struct F {
  float v[16];
};
struct I {
  std::int32_t v[16];
};

#define EACH for (int i = 0; i < 16; ++i)

SIMD F set1(float x) {
  F r;
  EACH r.v[i] = x;
  return r;
}
SIMD F zero() { return set1(0.0F); }
SIMD F load(const float* p) {
  F r;
  EACH r.v[i] = p[i];
  return r;
}
SIMD void store(float* p, F a) { EACH p[i] = a.v[i]; }
SIMD F load_n(const float* p, int n) {
  F r;
  EACH r.v[i] = i < n ? p[i] : 0.0F;
  return r;
}
SIMD void store_n(float* p, F a, int n) {
  for (int i = 0; i < n; ++i) p[i] = a.v[i];
}
SIMD F load_f16(const std::uint16_t* p) {
  F r;
  EACH r.v[i] = from_f16(p[i]);
  return r;
}
SIMD F load_bf16(const std::uint16_t* p) {
  F r;
  EACH r.v[i] = from_bf16(p[i]);
  return r;
}
SIMD void store_f16(std::uint16_t* p, F a) { EACH p[i] = to_f16(a.v[i]); }
SIMD void store_bf16(std::uint16_t* p, F a) { EACH p[i] = to_bf16(a.v[i]); }
SIMD F load_u8(const std::uint8_t* p) {
  F r;
  EACH r.v[i] = static_cast<float>(p[i]);
  return r;
}
SIMD F load_s8(const std::uint8_t* p) {
  F r;
  EACH r.v[i] = static_cast<float>(static_cast<std::int8_t>(p[i]));
  return r;
}

SIMD F add(F a, F b) {
  F r;
  EACH r.v[i] = a.v[i] + b.v[i];
  return r;
}
SIMD F sub(F a, F b) {
  F r;
  EACH r.v[i] = a.v[i] - b.v[i];
  return r;
}
SIMD F mul(F a, F b) {
  F r;
  EACH r.v[i] = a.v[i] * b.v[i];
  return r;
}
SIMD F div(F a, F b) {
  F r;
  EACH r.v[i] = a.v[i] / b.v[i];
  return r;
}
SIMD F max(F a, F b) {
  F r;
  EACH r.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return r;
}
SIMD F min(F a, F b) {
  F r;
  EACH r.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return r;
}
SIMD F fma(F a, F b, F c) {
  F r;
  EACH r.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return r;
}
SIMD F abs(F a) {
  F r;
  EACH r.v[i] = __builtin_fabsf(a.v[i]);
  return r;
}
/// a < b ? x : y
SIMD F select_lt(F a, F b, F x, F y) {
  F r;
  EACH r.v[i] = a.v[i] < b.v[i] ? x.v[i] : y.v[i];
  return r;
}
/// Lanes [lo, hi) of x, y elsewhere.
SIMD F select_range(int lo, int hi, F x, F y) {
  F r;
  EACH r.v[i] = i >= lo && i < hi ? x.v[i] : y.v[i];
  return r;
}
/// Lanes 0 and 1, 2 and 3, ... exchanged.
SIMD F swap_pairs(F a) {
  F r;
  EACH r.v[i] = a.v[i ^ 1];
  return r;
}
/// Each of the lower 8 lanes twice: a0 a0 a1 a1 ...
SIMD F twice(const float* p) {
  F r;
  EACH r.v[i] = p[i / 2];
  return r;
}
/// -a in even lanes, a in odd ones.
SIMD F negate_even(F a) {
  F r;
  EACH r.v[i] = i % 2 == 0 ? -a.v[i] : a.v[i];
  return r;
}

SIMD float sum(F a) {
  for (int w = 8; w > 0; w /= 2)
    for (int i = 0; i < w; ++i) a.v[i] = a.v[i] + a.v[i + w];
  return a.v[0];
}
SIMD float max_lane(F a) {
  for (int w = 8; w > 0; w /= 2)
    for (int i = 0; i < w; ++i) a.v[i] = a.v[i] > a.v[i + w] ? a.v[i] : a.v[i + w];
  return a.v[0];
}
SIMD void transpose(F (&m)[16]) {
  for (int r = 0; r < 16; ++r)
    for (int c = 0; c < r; ++c) {
      const float t = m[r].v[c];
      m[r].v[c] = m[c].v[r];
      m[c].v[r] = t;
    }
}

SIMD I set1_i(std::int32_t x) {
  I r;
  EACH r.v[i] = x;
  return r;
}
SIMD I load_i(const void* p) {
  I r;
  std::memcpy(&r, p, 64);
  return r;
}
SIMD void store_i(void* p, I a) { std::memcpy(p, &a, 64); }
SIMD I and_i(I a, std::int32_t mask) {
  I r;
  EACH r.v[i] = a.v[i] & mask;
  return r;
}
SIMD I or_i(I a, I b) {
  I r;
  EACH r.v[i] = a.v[i] | b.v[i];
  return r;
}
template <int N>
SIMD I shift_right(I a) {
  I r;
  EACH r.v[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(a.v[i]) >> N);
  return r;
}
template <int N>
SIMD I shift_left(I a) {
  I r;
  EACH r.v[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(a.v[i]) << N);
  return r;
}
SIMD F to_float(I a) {
  F r;
  EACH r.v[i] = static_cast<float>(a.v[i]);
  return r;
}
/// To the nearest integer, ties to even. Requires: in range.
SIMD I round_to_int(F a) {
  I r;
  EACH r.v[i] = static_cast<std::int32_t>(__builtin_rintf(a.v[i]));
  return r;
}
/// x * 2^n for x in [0.5, 2) and n such that the result is normal.
SIMD F scale_exponent(F x, I n) {
  F r;
  EACH r.v[i] = float_from_bits(bits_of(x.v[i]) + (static_cast<std::uint32_t>(n.v[i]) << 23));
  return r;
}
/// 16 integers in [-128, 127] as bytes; returns nothing else.
SIMD void store_s8(std::int8_t* p, I a) { EACH p[i] = static_cast<std::int8_t>(a.v[i]); }
SIMD std::int32_t sum_i(I a) {
  std::int32_t s = 0;
  EACH s += a.v[i];
  return s;
}

/// acc + sum over the four bytes of each lane of unsigned w times signed a. Requires: w <= 63.
SIMD I dot(I acc, I w, I a) {
  EACH {
    for (int b = 0; b < 32; b += 8) {
      const auto u = static_cast<std::int32_t>((static_cast<std::uint32_t>(w.v[i]) >> b) & 0xFFU);
      acc.v[i] += u * static_cast<std::int8_t>((static_cast<std::uint32_t>(a.v[i]) >> b) & 0xFFU);
    }
  }
  return acc;
}
/// The same for any w that stands for w - 128; start_wide gives what the sum starts from.
SIMD I dot_wide(I acc, I w, I a) { return dot(acc, w, a); }
SIMD I start_wide(std::int32_t comp) { return set1_i(comp); }

#undef EACH
