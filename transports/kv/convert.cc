// SPDX-License-Identifier: Apache-2.0
#include "transports/kv/convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "topology/base/check.h"

namespace infos {
namespace {

constexpr float kF16Max = 65504.0F;
constexpr float kBf16Max = 0x1.FEp127F;
constexpr std::size_t kChunk = 256;  ///< elements that go through f32 at a time

template <typename T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
template <typename T>
void store(std::byte* p, T value) {
  std::memcpy(p, &value, sizeof value);
}

// ---- one value ----

float widen_f16(std::uint16_t h) {
  const std::uint32_t sign = (h & 0x8000U) << 16;
  const std::uint32_t exponent = (h >> 10) & 0x1FU;
  const std::uint32_t mantissa = h & 0x3FFU;
  if (exponent == 0)
    return std::bit_cast<float>(
        sign | std::bit_cast<std::uint32_t>(static_cast<float>(mantissa) * 0x1p-24F));
  if (exponent == 31)  // NaN becomes quiet, as in hardware
    return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13) | (mantissa ? 0x400000U : 0));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

std::uint16_t narrow_f16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U)
    return static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU));
  if (magnitude >= std::bit_cast<std::uint32_t>(kF16Max))
    return static_cast<std::uint16_t>(sign | 0x7BFFU);
  if (magnitude < 0x38800000U) {  // subnormal: the float adder rounds at 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U));
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

std::uint16_t narrow_bf16(float x) {
  const auto bits = std::bit_cast<std::int32_t>(x);
  const std::int32_t magnitude = bits & 0x7FFFFFFF;
  const std::int32_t finite = std::min(magnitude, std::bit_cast<std::int32_t>(kBf16Max));
  const std::int32_t rounded = (finite + 0x7FFF + ((finite >> 16) & 1)) >> 16;
  const std::int32_t nan = (magnitude >> 16) | 0x40;
  const std::int32_t is_nan = -static_cast<std::int32_t>(magnitude > 0x7F800000);
  const std::int32_t out = (nan & is_nan) | (rounded & ~is_nan);
  return static_cast<std::uint16_t>(out | ((bits >> 16) & 0x8000));
}

// ---- runs, to and from f32; without branches, so that the compiler makes vectors of them ----

void bf16_to_f32(const std::byte* from, std::byte* to, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    store(to + 4 * i, std::uint32_t{load<std::uint16_t>(from + 2 * i)} << 16);
}

void f32_to_bf16_plain(const std::byte* from, std::byte* to, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) store(to + 2 * i, narrow_bf16(load<float>(from + 4 * i)));
}

void f16_to_f32_plain(const std::byte* from, std::byte* to, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    store(to + 4 * i, widen_f16(load<std::uint16_t>(from + 2 * i)));
}

void f32_to_f16_plain(const std::byte* from, std::byte* to, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) store(to + 2 * i, narrow_f16(load<float>(from + 4 * i)));
}

#if defined(__x86_64__)

__attribute__((target("avx,f16c"))) void f16_to_f32_f16c(const std::byte* from, std::byte* to,
                                                         std::size_t n) {
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i));
    _mm256_storeu_ps(reinterpret_cast<float*>(to + 4 * i), _mm256_cvtph_ps(halves));
  }
  f16_to_f32_plain(from + 2 * i, to + 4 * i, n - i);
}

__attribute__((target("avx,f16c"))) void f32_to_f16_f16c(const std::byte* from, std::byte* to,
                                                         std::size_t n) {
  const __m256 most = _mm256_set1_ps(kF16Max), least = _mm256_set1_ps(-kF16Max);
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 x = _mm256_loadu_ps(reinterpret_cast<const float*>(from + 4 * i));
    // The second operand is taken when either is NaN: NaN passes.
    const __m256 bounded = _mm256_max_ps(least, _mm256_min_ps(most, x));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i),
                     _mm256_cvtps_ph(bounded, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  f32_to_f16_plain(from + 4 * i, to + 2 * i, n - i);
}

/// Eight floats as bfloat16 in the low halves of eight words.
__attribute__((target("avx2"))) inline __m256i narrow_bf16_avx2(const std::byte* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF));
  const __m256i most = _mm256_set1_epi32(std::bit_cast<std::int32_t>(kBf16Max));
  const __m256i finite = _mm256_min_epi32(magnitude, most);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(finite, 16), _mm256_set1_epi32(1));
  const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(finite, bias), 16);
  const __m256i nan = _mm256_or_si256(_mm256_srli_epi32(magnitude, 16), _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7F800000));
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x8000));
  return _mm256_or_si256(_mm256_blendv_epi8(rounded, nan, is_nan), sign);
}

__attribute__((target("avx2"))) void f32_to_bf16_avx2(const std::byte* from, std::byte* to,
                                                      std::size_t n) {
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i low = narrow_bf16_avx2(from + 4 * i);
    const __m256i high = narrow_bf16_avx2(from + 4 * i + 32);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 2 * i), packed);
  }
  f32_to_bf16_plain(from + 4 * i, to + 2 * i, n - i);
}

void f32_to_bf16(const std::byte* from, std::byte* to, std::size_t n) {
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  has_avx2 ? f32_to_bf16_avx2(from, to, n) : f32_to_bf16_plain(from, to, n);
}

bool has_f16c() {
  static const bool has = __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c");
  return has;
}

void f16_to_f32(const std::byte* from, std::byte* to, std::size_t n) {
  has_f16c() ? f16_to_f32_f16c(from, to, n) : f16_to_f32_plain(from, to, n);
}
void f32_to_f16(const std::byte* from, std::byte* to, std::size_t n) {
  has_f16c() ? f32_to_f16_f16c(from, to, n) : f32_to_f16_plain(from, to, n);
}

#else

void f16_to_f32(const std::byte* from, std::byte* to, std::size_t n) {
  f16_to_f32_plain(from, to, n);
}
void f32_to_f16(const std::byte* from, std::byte* to, std::size_t n) {
  f32_to_f16_plain(from, to, n);
}
void f32_to_bf16(const std::byte* from, std::byte* to, std::size_t n) {
  f32_to_bf16_plain(from, to, n);
}

#endif

/// 16 bits to 16 bits through a small piece of f32 that stays in the cache.
template <KvConvert Widen, KvConvert Narrow>
void through_f32(const std::byte* from, std::byte* to, std::size_t n) {
  std::byte wide[kChunk * 4];
  for (std::size_t i = 0; i < n; i += kChunk) {
    const std::size_t count = std::min(kChunk, n - i);
    Widen(from + 2 * i, wide, count);
    Narrow(wide, to + 2 * i, count);
  }
}

void copy_f32(const std::byte* from, std::byte* to, std::size_t n) { std::memcpy(to, from, 4 * n); }

KvConvert widening(KvDType from) {
  return from == KvDType::f32 ? copy_f32 : from == KvDType::f16 ? f16_to_f32 : bf16_to_f32;
}
KvConvert narrowing(KvDType to) {
  return to == KvDType::f32 ? copy_f32 : to == KvDType::f16 ? f32_to_f16 : f32_to_bf16;
}

float largest_finite(const std::byte* row, std::size_t n) {
  float most = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const float x = std::fabs(load<float>(row + 4 * i));
    most = x > most && x <= std::numeric_limits<float>::max() ? x : most;
  }
  return most;
}

/// `step` is above 0. Adding and taking away 1.5 * 2^23 rounds to nearest even without a call, so
/// that the compiler makes vectors of it.
std::int8_t quantise(float x, float step) {
  constexpr float kRounder = 0x1.8p23F;
  const float q = std::min(std::max(x / step, -127.0F), 127.0F);
  const float whole = (x == x ? q : 0.0F) + kRounder;
  return static_cast<std::int8_t>(static_cast<std::int32_t>(whole - kRounder));
}

}  // namespace

KvConvert float_conversion(KvDType from, KvDType to) {
  INFOS_CHECK(from != KvDType::i8);
  INFOS_CHECK(to != KvDType::i8);
  INFOS_CHECK(from != to);
  if (to == KvDType::f32) return widening(from);
  if (from == KvDType::f32) return narrowing(to);
  return from == KvDType::f16 ? through_f32<f16_to_f32, f32_to_bf16>
                              : through_f32<bf16_to_f32, f32_to_f16>;
}

void dequantise_row(const std::byte* from, const std::byte* scale, KvDType to, std::byte* out,
                    std::size_t n) {
  const auto factor = load<float>(scale);
  const KvConvert narrow = narrowing(to);
  std::byte wide[kChunk * 4];
  for (std::size_t i = 0; i < n; i += kChunk) {
    const std::size_t count = std::min(kChunk, n - i);
    for (std::size_t j = 0; j < count; ++j)
      store(wide + 4 * j, static_cast<float>(load<std::int8_t>(from + i + j)) * factor);
    narrow(wide, out + kv_element_bytes(to) * i, count);
  }
}

void quantise_row(const std::byte* from, KvDType dtype, std::byte* out, std::byte* scale,
                  std::size_t n) {
  const KvConvert widen = widening(dtype);
  const std::size_t element = kv_element_bytes(dtype);
  std::byte wide[kChunk * 4];
  float most = 0;
  for (std::size_t i = 0; i < n; i += kChunk) {
    const std::size_t count = std::min(kChunk, n - i);
    widen(from + element * i, wide, count);
    most = std::max(most, largest_finite(wide, count));
  }
  const float step = most / 127.0F;
  store(scale, step);
  for (std::size_t i = 0; i < n; i += kChunk) {
    const std::size_t count = std::min(kChunk, n - i);
    widen(from + element * i, wide, count);
    for (std::size_t j = 0; j < count; ++j)
      store(out + i + j, step > 0 ? quantise(load<float>(wide + 4 * j), step) : std::int8_t{0});
  }
}

}  // namespace infos
