// SPDX-License-Identifier: Apache-2.0
// Folding: a lane of 128 bits that stands D bits before the end of a message is worth its halves
// times x^(D+64) and x^D modulo the polynomial. In reflected bit order a carry-less product comes
// out multiplied by x once more, hence the exponents D+63 and D-1.
// Source: Gopal et al., Fast CRC Computation Using PCLMULQDQ, Intel 2009 (method).
#include "transports/tcp/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace infos {
namespace {

constexpr std::uint32_t kPolynomial = 0x1EDC6F41, kReflected = 0x82F63B78;

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ ((value & 1) != 0 ? kReflected : 0);
    table[i] = value;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kTable = make_table();

std::uint32_t by_table(std::uint32_t crc, const void* bytes, std::size_t size) {
  const auto* at = static_cast<const unsigned char*>(bytes);
  crc = ~crc;
  for (std::size_t i = 0; i < size; ++i) crc = kTable[(crc ^ at[i]) & 0xFF] ^ crc >> 8;
  return ~crc;
}

#if defined(__x86_64__)

/// x^n modulo the polynomial, reflected into the upper half of 64 bits.
constexpr std::uint64_t power(unsigned n) {
  std::uint32_t value = 1;
  for (unsigned i = 0; i < n; ++i)
    value = value << 1 ^ ((value & 0x8000'0000) != 0 ? kPolynomial : 0);
  std::uint32_t reflected = 0;
  for (int bit = 0; bit < 32; ++bit) reflected |= (value >> bit & 1) << (31 - bit);
  return std::uint64_t{reflected} << 32;
}

/// The factors that move a lane by so many bytes.
struct Factors {
  std::uint64_t low, high;
};
constexpr Factors factors(unsigned bytes) { return {power(8 * bytes + 63), power(8 * bytes - 1)}; }

constexpr Factors kBy16 = factors(16), kBy32 = factors(32), kBy48 = factors(48),
                  kBy64 = factors(64), kBy128 = factors(128), kBy192 = factors(192),
                  kBy256 = factors(256);

/// `crc` is inverted already, and so is what it returns.
__attribute__((target("sse4.2"))) std::uint32_t tail(std::uint32_t crc, const unsigned char* at,
                                                     std::size_t size) {
  std::uint64_t value = crc;
  for (; size >= 8; size -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    value = _mm_crc32_u64(value, word);
  }
  auto narrow = static_cast<std::uint32_t>(value);
  for (; size > 0; --size, ++at) narrow = _mm_crc32_u8(narrow, *at);
  return narrow;
}

__attribute__((target("pclmul,sse4.2"))) inline __m128i fold(__m128i lane, Factors by,
                                                             __m128i next) {
  const __m128i k = _mm_set_epi64x(static_cast<long long>(by.high), static_cast<long long>(by.low));
  const __m128i low = _mm_clmulepi64_si128(lane, k, 0x00);
  const __m128i high = _mm_clmulepi64_si128(lane, k, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

__attribute__((target("pclmul,sse4.2"))) std::uint32_t narrow(std::uint32_t crc, const void* bytes,
                                                              std::size_t size) {
  const auto* at = static_cast<const unsigned char*>(bytes);
  if (size < 128) return ~tail(~crc, at, size);
  const auto load = [&](std::size_t offset) __attribute__((target("pclmul,sse4.2"))) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + offset));
  };
  __m128i a = _mm_xor_si128(load(0), _mm_cvtsi32_si128(static_cast<int>(~crc)));
  __m128i b = load(16), c = load(32), d = load(48);
  for (at += 64, size -= 64; size >= 64; at += 64, size -= 64) {
    a = fold(a, kBy64, load(0));
    b = fold(b, kBy64, load(16));
    c = fold(c, kBy64, load(32));
    d = fold(d, kBy64, load(48));
  }
  const __m128i one = fold(a, kBy48, fold(b, kBy32, fold(c, kBy16, d)));
  std::array<unsigned char, 16> rest{};
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rest.data()), one);
  return ~tail(tail(0, rest.data(), rest.size()), at, size);
}

#define INFOS_WIDE __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2")))

INFOS_WIDE inline __m512i wide_factors(Factors by) {
  const auto low = static_cast<long long>(by.low), high = static_cast<long long>(by.high);
  return _mm512_set_epi64(high, low, high, low, high, low, high, low);
}

INFOS_WIDE inline __m512i fold(__m512i lanes, __m512i k, __m512i next) {
  const __m512i low = _mm512_clmulepi64_epi128(lanes, k, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(lanes, k, 0x11);
  return _mm512_ternarylogic_epi64(low, high, next, 0x96);  // all three xor'ed
}

INFOS_WIDE std::uint32_t wide(std::uint32_t crc, const void* bytes, std::size_t size) {
  const auto* at = static_cast<const unsigned char*>(bytes);
  if (size < 512) return narrow(crc, bytes, size);
  const auto load = [&](std::size_t offset) INFOS_WIDE { return _mm512_loadu_si512(at + offset); };
  const __m512i first =
      _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0, static_cast<long long>(~crc & 0xFFFF'FFFFu));
  __m512i a = _mm512_xor_si512(load(0), first), b = load(64), c = load(128), d = load(192);
  const __m512i k = wide_factors(kBy256);
  for (at += 256, size -= 256; size >= 256; at += 256, size -= 256) {
    // What is summed is cold at the sender, and the hardware does not look past a page.
    for (std::size_t line = 0; line < 256; line += 64)
      _mm_prefetch(reinterpret_cast<const char*>(at + 2048 + line), _MM_HINT_T0);
    a = fold(a, k, load(0));
    b = fold(b, k, load(64));
    c = fold(c, k, load(128));
    d = fold(d, k, load(192));
  }
  c = fold(c, wide_factors(kBy64), d);
  b = fold(b, wide_factors(kBy128), c);
  a = fold(a, wide_factors(kBy192), b);
  std::array<unsigned char, 64> rest{};
  _mm512_storeu_si512(rest.data(), a);
  return ~tail(tail(0, rest.data(), rest.size()), at, size);
}

#endif

Crc32c widest() {
  for (const Crc32c way : {crc32c_wide(), crc32c_narrow()})
    if (way != nullptr) return way;
  return crc32c_table();
}

}  // namespace

Crc32c crc32c_table() { return by_table; }

Crc32c crc32c_narrow() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2")) return narrow;
#endif
  return nullptr;
}

Crc32c crc32c_wide() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq")) return wide;
#endif
  return nullptr;
}

std::uint32_t crc32c(std::uint32_t crc, const void* bytes, std::size_t size) {
  static const Crc32c way = widest();
  return way(crc, bytes, size);
}

}  // namespace infos
