// SPDX-License-Identifier: Apache-2.0
// Sixteen lanes as one AVX-512 register, integer dot products by VNNI. See simd_generic.h for what
// each operation means. Included by kernels_avx512.cc alone, inside its namespace.
#pragma once

#define SIMD [[gnu::always_inline, maybe_unused]] static inline

constexpr int kFloatRows = 6, kFloatPanels = 4, kIntRows = 6, kIntPanels = 2;

/// Asks for the line at p to come to the second-level cache.
SIMD void prefetch(const std::uint8_t* p) { __builtin_prefetch(p, 0, 2); }

struct F {
  __m512 v;
};
struct I {
  __m512i v;
};

SIMD __mmask16 first(int n) { return static_cast<__mmask16>((1U << n) - 1U); }

SIMD F set1(float x) { return {_mm512_set1_ps(x)}; }
SIMD F zero() { return {_mm512_setzero_ps()}; }
SIMD F load(const float* p) { return {_mm512_loadu_ps(p)}; }
SIMD void store(float* p, F a) { _mm512_storeu_ps(p, a.v); }
SIMD F load_n(const float* p, int n) { return {_mm512_maskz_loadu_ps(first(n), p)}; }
SIMD void store_n(float* p, F a, int n) { _mm512_mask_storeu_ps(p, first(n), a.v); }
SIMD F load_f16(const std::uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
SIMD F load_bf16(const std::uint16_t* p) {
  const __m512i wide =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
SIMD void store_f16(std::uint16_t* p, F a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
SIMD void store_bf16(std::uint16_t* p, F a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i out = _mm512_srli_epi32(
      _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  out = _mm512_mask_or_epi32(out, nan, _mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(out));
}
SIMD F load_u8(const std::uint8_t* p) {
  return {_mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
SIMD F load_s8(const std::uint8_t* p) {
  return {_mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}

SIMD F add(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
SIMD F sub(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
SIMD F mul(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
SIMD F div(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
SIMD F max(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }
SIMD F min(F a, F b) { return {_mm512_min_ps(a.v, b.v)}; }
SIMD F fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
SIMD F abs(F a) { return {_mm512_abs_ps(a.v)}; }
SIMD F select_lt(F a, F b, F x, F y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
SIMD F select_range(int lo, int hi, F x, F y) {
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(first(hi) & ~first(lo)), y.v, x.v)};
}
SIMD F swap_pairs(F a) { return {_mm512_permute_ps(a.v, 0xB1)}; }
SIMD F twice(const float* p) {
  const __m512i index = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
  return {_mm512_permutexvar_ps(index, _mm512_castps256_ps512(_mm256_loadu_ps(p)))};
}
SIMD F negate_even(F a) {
  return {_mm512_castsi512_ps(
      _mm512_mask_xor_epi32(_mm512_castps_si512(a.v), 0x5555, _mm512_castps_si512(a.v),
                            _mm512_set1_epi32(static_cast<int>(0x80000000U))))};
}

SIMD __m256 upper(__m512 a) {
  return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
}
SIMD float sum(F a) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a.v), upper(a.v));
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
SIMD float max_lane(F a) {
  const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a.v), upper(a.v));
  const __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}
SIMD void transpose(F (&m)[16]) {
  __m512 t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(m[i].v, m[i + 1].v);
    t[i + 1] = _mm512_unpackhi_ps(m[i].v, m[i + 1].v);
  }
  __m512 u[16];
  for (int i = 0; i < 16; i += 4) {
    u[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(t[i]), _mm512_castps_pd(t[i + 2])));
    u[i + 1] =
        _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(t[i]), _mm512_castps_pd(t[i + 2])));
    u[i + 2] = _mm512_castpd_ps(
        _mm512_unpacklo_pd(_mm512_castps_pd(t[i + 1]), _mm512_castps_pd(t[i + 3])));
    u[i + 3] = _mm512_castpd_ps(
        _mm512_unpackhi_pd(_mm512_castps_pd(t[i + 1]), _mm512_castps_pd(t[i + 3])));
  }
  // u[4g + c] holds, in 128-bit lane l, column 4l + c of rows 4g .. 4g+3.
  for (int c = 0; c < 4; ++c) {
    const __m512 a = _mm512_shuffle_f32x4(u[c], u[4 + c], 0x88),
                 b = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0x88);
    const __m512 d = _mm512_shuffle_f32x4(u[c], u[4 + c], 0xDD),
                 e = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0xDD);
    m[c].v = _mm512_shuffle_f32x4(a, b, 0x88);
    m[8 + c].v = _mm512_shuffle_f32x4(a, b, 0xDD);
    m[4 + c].v = _mm512_shuffle_f32x4(d, e, 0x88);
    m[12 + c].v = _mm512_shuffle_f32x4(d, e, 0xDD);
  }
}

SIMD I set1_i(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
SIMD I load_i(const void* p) { return {_mm512_loadu_si512(p)}; }
SIMD void store_i(void* p, I a) { _mm512_storeu_si512(p, a.v); }
SIMD I and_i(I a, std::int32_t mask) { return {_mm512_and_si512(a.v, _mm512_set1_epi32(mask))}; }
SIMD I or_i(I a, I b) { return {_mm512_or_si512(a.v, b.v)}; }
template <int N>
SIMD I shift_right(I a) {
  return {_mm512_srli_epi32(a.v, N)};
}
template <int N>
SIMD I shift_left(I a) {
  return {_mm512_slli_epi32(a.v, N)};
}
SIMD F to_float(I a) { return {_mm512_cvtepi32_ps(a.v)}; }
SIMD I round_to_int(F a) { return {_mm512_cvtps_epi32(a.v)}; }
SIMD F scale_exponent(F x, I n) {
  return {
      _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x.v), _mm512_slli_epi32(n.v, 23)))};
}
SIMD void store_s8(std::int8_t* p, I a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}
SIMD std::int32_t sum_i(I a) { return _mm512_reduce_add_epi32(a.v); }

SIMD I dot(I acc, I w, I a) { return {_mm512_dpbusd_epi32(acc.v, w.v, a.v)}; }
SIMD I dot_wide(I acc, I w, I a) { return dot(acc, w, a); }
SIMD I start_wide(std::int32_t comp) { return set1_i(comp); }
