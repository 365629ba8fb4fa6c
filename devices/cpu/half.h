// SPDX-License-Identifier: Apache-2.0
// 16-bit float conversions in plain C++, rounding to nearest even like the hardware. For load-time
// code and the generic kernels; each file gets its own copy, so that no instruction set leaks into
// another.
#pragma once

#include <cstdint>
#include <cstring>

namespace infos::cpu {
namespace {

[[maybe_unused]] inline float float_from_bits(std::uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

[[maybe_unused]] inline std::uint32_t bits_of(float f) {
  std::uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return bits;
}

[[maybe_unused]] inline float from_bf16(std::uint16_t h) {
  return float_from_bits(std::uint32_t{h} << 16);
}

[[maybe_unused]] inline std::uint16_t to_bf16(float f) {
  const std::uint32_t bits = bits_of(f);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U)
    return static_cast<std::uint16_t>((bits >> 16) | 0x40U);  // quiet NaN
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

[[maybe_unused]] inline float from_f16(std::uint16_t h) {
  const std::uint32_t sign = (h & 0x8000U) << 16;
  const std::uint32_t exponent = (h >> 10) & 0x1FU;
  const std::uint32_t mantissa = h & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return float_from_bits(sign | bits_of(magnitude));
  }
  if (exponent == 31) {
    return float_from_bits(sign | 0x7F800000U | (mantissa << 13) | (mantissa ? 0x400000U : 0U));
  }
  return float_from_bits(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

[[maybe_unused]] inline std::uint16_t to_f16(float f) {
  const std::uint32_t bits = bits_of(f);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {  // NaN: quiet, payload kept
    return static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU));
  }
  if (magnitude >= 0x477FF000U) return sign | 0x7C00U;  // rounds to 65536 or beyond: infinity
  if (magnitude < 0x38800000U) {  // subnormal or zero: the float adder rounds at 2^-24
    const float scaled = float_from_bits(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (bits_of(scaled) - 0x3F000000U));
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

}  // namespace
}  // namespace infos::cpu
