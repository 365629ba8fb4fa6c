// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/quant.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "devices/engine/checkpoint/quant_blocks.h"

namespace infos {
namespace {

/// Applies `convert` to each element of a plain type.
template <typename T, typename Convert>
void plain_to_f32(std::span<const std::byte> in, std::span<float> out, Convert convert) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T raw;
    std::memcpy(&raw, in.data() + i * sizeof(T), sizeof(T));
    out[i] = convert(raw);
  }
}

template <typename T, typename Convert>
void f32_to_plain(std::span<const float> in, std::span<std::byte> out, Convert convert) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    const T raw = convert(in[i]);
    std::memcpy(out.data() + i * sizeof(T), &raw, sizeof(T));
  }
}

template <typename Block>
void blocks_to_f32(std::span<const std::byte> in, std::span<float> out, std::size_t elements) {
  for (std::size_t b = 0; b * elements < out.size(); ++b) {
    Block block;
    std::memcpy(&block, in.data() + b * sizeof(Block), sizeof block);
    dequantise_block(block, out.data() + b * elements);
  }
}

template <typename Block>
void f32_to_blocks(std::span<const float> in, std::span<std::byte> out, std::size_t elements) {
  for (std::size_t b = 0; b * elements < in.size(); ++b) {
    Block block{};
    quantise_block(in.data() + b * elements, block);
    std::memcpy(out.data() + b * sizeof(Block), &block, sizeof block);
  }
}

}  // namespace

float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = bits >> 15, exponent = (bits >> 10) & 0x1F, mantissa = bits & 0x3FF;
  float magnitude = 0;
  if (exponent == 0)
    magnitude = std::ldexp(static_cast<float>(mantissa), -24);  // subnormal: multiples of 2^-24
  else if (exponent == 31)
    magnitude = std::bit_cast<float>(0x7F800000U | (mantissa << 13));
  else
    magnitude = std::ldexp(static_cast<float>(mantissa + 1024), static_cast<int>(exponent) - 25);
  return sign ? -magnitude : magnitude;
}

std::uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7E00);
  if (magnitude >= 65520.0F)
    return static_cast<std::uint16_t>(sign | 0x7C00);  // halfway above the largest, 65504
  if (magnitude < 0x1p-14F)  // subnormal, or rounds up to the smallest normal: the encoding goes on
                             // without a gap
    return static_cast<std::uint16_t>(
        sign | static_cast<std::uint16_t>(std::nearbyint(std::ldexp(magnitude, 24))));
  int exponent = 0;
  const float fraction = std::frexp(magnitude, &exponent);  // in [0.5, 1)
  const auto mantissa =
      static_cast<std::uint32_t>(std::nearbyint(std::ldexp(fraction, 11)));  // 1024 to 2048
  // A mantissa that rounds up to 2048 carries into the exponent by the addition.
  return static_cast<std::uint16_t>(
      sign | ((static_cast<std::uint32_t>(exponent + 14) << 10) + (mantissa - 1024)));
}

float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  const std::uint32_t even = (bits >> 16) & 1;
  return static_cast<std::uint16_t>((bits + 0x7FFF + even) >> 16);
}

std::uint64_t bytes_of(DType dtype, std::uint64_t elements) {
  const auto block = block_shape(dtype);
  INFOS_CHECK(elements % block.elements == 0);
  return elements / block.elements * block.bytes;
}

void dequantise(DType dtype, std::span<const std::byte> in, std::span<float> out) {
  INFOS_CHECK(dtype != DType::none);
  INFOS_CHECK(in.size() == bytes_of(dtype, out.size()));
  switch (dtype) {
    case DType::f32:
      return plain_to_f32<float>(in, out, [](float v) { return v; });
    case DType::f64:
      return plain_to_f32<double>(in, out, [](double v) { return static_cast<float>(v); });
    case DType::i8:
      return plain_to_f32<std::int8_t>(in, out,
                                       [](std::int8_t v) { return static_cast<float>(v); });
    case DType::i32:
      return plain_to_f32<std::int32_t>(in, out,
                                        [](std::int32_t v) { return static_cast<float>(v); });
    case DType::f16:
      return plain_to_f32<std::uint16_t>(in, out, f16_to_f32);
    case DType::bf16:
      return plain_to_f32<std::uint16_t>(in, out, bf16_to_f32);
    case DType::q8_0:
      return blocks_to_f32<BlockQ8_0>(in, out, 32);
    case DType::q4_0:
      return blocks_to_f32<BlockQ4_0>(in, out, 32);
    case DType::q4_k:
      return blocks_to_f32<BlockQ4_K>(in, out, 256);
    case DType::q6_k:
      return blocks_to_f32<BlockQ6_K>(in, out, 256);
    case DType::none:
      break;
  }
}

void quantise(DType dtype, std::span<const float> in, std::span<std::byte> out) {
  INFOS_CHECK(out.size() == bytes_of(dtype, in.size()));
  switch (dtype) {
    case DType::f32:
      return f32_to_plain<float>(in, out, [](float v) { return v; });
    case DType::f16:
      return f32_to_plain<std::uint16_t>(in, out, f32_to_f16);
    case DType::bf16:
      return f32_to_plain<std::uint16_t>(in, out, f32_to_bf16);
    case DType::q8_0:
      return f32_to_blocks<BlockQ8_0>(in, out, 32);
    case DType::q4_0:
      return f32_to_blocks<BlockQ4_0>(in, out, 32);
    case DType::q4_k:
      return f32_to_blocks<BlockQ4_K>(in, out, 256);
    case DType::q6_k:
      return f32_to_blocks<BlockQ6_K>(in, out, 256);
    default:
      break;
  }
  INFOS_CHECK(dtype == DType::f32);  // no quantiser for the others
}

}  // namespace infos
