// SPDX-License-Identifier: Apache-2.0
// Sixteen lanes as two AVX2 registers, with AVX-VNNI dot products where kVnni says so. See
// simd_generic.h for what each operation means. Included by kernels_avx2.cc and kernels_avxvnni.cc,
// inside their namespaces.
#pragma once

#define SIMD [[gnu::always_inline, maybe_unused]] static inline

constexpr int kFloatRows = 6, kFloatPanels = 1, kIntRows = 3, kIntPanels = 1;

/// Asks for the line at p to come to the second-level cache.
SIMD void prefetch(const std::uint8_t* p) { __builtin_prefetch(p, 0, 2); }

struct F {
  __m256 a, b;
};
struct I {
  __m256i a, b;
};

SIMD __m256i lanes() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
SIMD __m256i first(int n) { return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lanes()); }

SIMD F set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
SIMD F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
SIMD F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
SIMD void store(float* p, F x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
SIMD F load_n(const float* p, int n) {
  return {_mm256_maskload_ps(p, first(n)),
          n > 8 ? _mm256_maskload_ps(p + 8, first(n - 8)) : _mm256_setzero_ps()};
}
SIMD void store_n(float* p, F x, int n) {
  _mm256_maskstore_ps(p, first(n), x.a);
  if (n > 8) _mm256_maskstore_ps(p + 8, first(n - 8), x.b);
}
SIMD __m128i load_128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
SIMD void store_128(void* p, __m128i x) { _mm_storeu_si128(static_cast<__m128i*>(p), x); }
SIMD F load_f16(const std::uint16_t* p) {
  return {_mm256_cvtph_ps(load_128(p)), _mm256_cvtph_ps(load_128(p + 8))};
}
SIMD __m256 widen_bf16(__m128i x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
SIMD F load_bf16(const std::uint16_t* p) {
  return {widen_bf16(load_128(p)), widen_bf16(load_128(p + 8))};
}
SIMD void store_f16(std::uint16_t* p, F x) {
  store_128(p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  store_128(p + 8, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
SIMD __m128i narrow_bf16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i even = _mm256_srli_epi32(
      _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd), 16);
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i out = _mm256_blendv_epi8(even, quiet, nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(out), _mm256_extracti128_si256(out, 1));
}
SIMD void store_bf16(std::uint16_t* p, F x) {
  store_128(p, narrow_bf16(x.a));
  store_128(p + 8, narrow_bf16(x.b));
}
SIMD F load_u8(const std::uint8_t* p) {
  const __m128i x = load_128(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(x)),
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(x, 8)))};
}
SIMD F load_s8(const std::uint8_t* p) {
  const __m128i x = load_128(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)))};
}

SIMD F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
SIMD F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
SIMD F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
SIMD F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
SIMD F max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
SIMD F min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
SIMD F fma(F x, F y, F z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
SIMD F abs(F x) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
SIMD F select_lt(F p, F q, F x, F y) {
  return {_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(p.a, q.a, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(p.b, q.b, _CMP_LT_OQ))};
}
SIMD F select_range(int lo, int hi, F x, F y) {
  const __m256i ma = _mm256_andnot_si256(first(lo), first(hi)),
                mb = _mm256_andnot_si256(first(lo - 8), first(hi - 8));
  return {_mm256_blendv_ps(y.a, x.a, _mm256_castsi256_ps(ma)),
          _mm256_blendv_ps(y.b, x.b, _mm256_castsi256_ps(mb))};
}
SIMD F swap_pairs(F x) { return {_mm256_permute_ps(x.a, 0xB1), _mm256_permute_ps(x.b, 0xB1)}; }
SIMD F twice(const float* p) {
  const __m256 x = _mm256_loadu_ps(p);
  return {_mm256_permutevar8x32_ps(x, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
          _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))};
}
SIMD F negate_even(F x) {
  const __m256 sign = _mm256_setr_ps(-0.0F, 0.0F, -0.0F, 0.0F, -0.0F, 0.0F, -0.0F, 0.0F);
  return {_mm256_xor_ps(x.a, sign), _mm256_xor_ps(x.b, sign)};
}

SIMD float sum(F x) {
  const __m256 h = _mm256_add_ps(x.a, x.b);
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
SIMD float max_lane(F x) {
  const __m256 h = _mm256_max_ps(x.a, x.b);
  const __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}
SIMD void transpose8(__m256 (&m)[8]) {
  __m256 t[8], u[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(m[i], m[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(m[i], m[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    m[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    m[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}
SIMD void transpose(F (&m)[16]) {
  __m256 q[4][8];  // quadrants: upper left, upper right, lower left, lower right
  for (int i = 0; i < 8; ++i) {
    q[0][i] = m[i].a;
    q[1][i] = m[i].b;
    q[2][i] = m[8 + i].a;
    q[3][i] = m[8 + i].b;
  }
  for (auto& quadrant : q) transpose8(quadrant);
  for (int i = 0; i < 8; ++i) {
    m[i].a = q[0][i];
    m[i].b = q[2][i];
    m[8 + i].a = q[1][i];
    m[8 + i].b = q[3][i];
  }
}

SIMD I set1_i(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
SIMD I load_i(const void* p) {
  const auto* v = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
}
SIMD void store_i(void* p, I x) {
  auto* v = static_cast<__m256i*>(p);
  _mm256_storeu_si256(v, x.a);
  _mm256_storeu_si256(v + 1, x.b);
}
SIMD I and_i(I x, std::int32_t mask) {
  const __m256i m = _mm256_set1_epi32(mask);
  return {_mm256_and_si256(x.a, m), _mm256_and_si256(x.b, m)};
}
SIMD I or_i(I x, I y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
template <int N>
SIMD I shift_right(I x) {
  return {_mm256_srli_epi32(x.a, N), _mm256_srli_epi32(x.b, N)};
}
template <int N>
SIMD I shift_left(I x) {
  return {_mm256_slli_epi32(x.a, N), _mm256_slli_epi32(x.b, N)};
}
SIMD F to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
SIMD I round_to_int(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
SIMD F scale_exponent(F x, I n) {
  return {
      _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x.a), _mm256_slli_epi32(n.a, 23))),
      _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x.b), _mm256_slli_epi32(n.b, 23)))};
}
SIMD void store_s8(std::int8_t* p, I x) {
  const __m128i a = _mm_packs_epi32(_mm256_castsi256_si128(x.a), _mm256_extracti128_si256(x.a, 1));
  const __m128i b = _mm_packs_epi32(_mm256_castsi256_si128(x.b), _mm256_extracti128_si256(x.b, 1));
  store_128(p, _mm_packs_epi16(a, b));
}
SIMD std::int32_t sum_i(I x) {
  const __m256i h = _mm256_add_epi32(x.a, x.b);
  __m128i q = _mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
  q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xB1)));
}

#ifdef __AVXVNNI__
SIMD I dot(I acc, I w, I a) {
  return {_mm256_dpbusd_avx_epi32(acc.a, w.a, a.a), _mm256_dpbusd_avx_epi32(acc.b, w.b, a.b)};
}
SIMD I dot_wide(I acc, I w, I a) { return dot(acc, w, a); }
SIMD I start_wide(std::int32_t comp) { return set1_i(comp); }
#else
// Pairs are summed in 16 bits: 2 * 63 * 127 does not saturate.
SIMD __m256i dot_half(__m256i acc, __m256i w, __m256i a) {
  return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(w, a), _mm256_set1_epi16(1)));
}
SIMD I dot(I acc, I w, I a) { return {dot_half(acc.a, w.a, a.a), dot_half(acc.b, w.b, a.b)}; }
// 2 * 255 * 127 would saturate: multiply |w - 128| by a with the sign of w - 128; 2 * 128 * 127
// fits. The zero point is gone then, so sums start at zero.
SIMD __m256i dot_wide_half(__m256i acc, __m256i w, __m256i a) {
  const __m256i s = _mm256_xor_si256(w, _mm256_set1_epi8(static_cast<char>(0x80)));
  return dot_half(acc, _mm256_abs_epi8(s), _mm256_sign_epi8(a, s));
}
SIMD I dot_wide(I acc, I w, I a) {
  return {dot_wide_half(acc.a, w.a, a.a), dot_wide_half(acc.b, w.b, a.b)};
}
SIMD I start_wide(std::int32_t) { return set1_i(0); }
#endif
