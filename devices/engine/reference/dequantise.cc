// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/reference/dequantise.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "topology/base/check.h"

namespace infos::reference {

Block block_of(std::uint32_t dtype) {
  switch (dtype) {
    case INFOS_F32:
      return {1, 4};
    case INFOS_F16:
    case INFOS_BF16:
      return {1, 2};
    case INFOS_Q8_0:
      return {32, 34};
    case INFOS_Q4_0:
      return {32, 18};
    case INFOS_Q4_K:
      return {256, 144};
    case INFOS_Q6_K:
      return {256, 210};
    default:
      return {0, 0};
  }
}

const char* dtype_name(std::uint32_t dtype) {
  switch (dtype) {
    case INFOS_F32:
      return "f32";
    case INFOS_F16:
      return "f16";
    case INFOS_BF16:
      return "bf16";
    case INFOS_I8:
      return "i8";
    case INFOS_I32:
      return "i32";
    case INFOS_F64:
      return "f64";
    case INFOS_Q8_0:
      return "q8_0";
    case INFOS_Q4_0:
      return "q4_0";
    case INFOS_Q4_K:
      return "q4_k";
    case INFOS_Q6_K:
      return "q6_k";
    default:
      return "unknown";
  }
}

std::uint64_t dtype_bytes(std::uint32_t dtype, std::uint64_t elements) {
  const Block block = block_of(dtype);
  if (block.elements == 0 || elements % block.elements != 0) return 0;
  return elements / block.elements * block.bytes;
}

double f16_to_double(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  double value = 0;
  if (exponent == 31)
    value = fraction != 0 ? std::nan("") : INFINITY;
  else if (exponent == 0)
    value = std::ldexp(fraction, -24);
  else
    value = std::ldexp(fraction + 1024, exponent - 25);
  return (bits & 0x8000) != 0 ? -value : value;
}

double bf16_to_double(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t double_to_f16(double value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  if (std::isnan(value)) return sign | 0x7e00;
  const double magnitude = std::fabs(value);
  if (magnitude >= 65520.0) return sign | 0x7c00;  // rounds beyond the largest, 65504
  if (magnitude < std::ldexp(1.0, -14))            // subnormal: a whole number of 2^-24
    return sign | static_cast<std::uint16_t>(std::nearbyint(std::ldexp(magnitude, 24)));
  const int exponent = std::ilogb(magnitude);
  const auto fraction = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  // fraction is 1024..2048; 2048 carries into the exponent by itself.
  return sign | static_cast<std::uint16_t>(((exponent + 15) << 10) + (fraction - 1024));
}

std::uint16_t double_to_bf16(double value) {
  if (std::isnan(value)) return 0x7fc0;
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

namespace {

std::uint8_t u8(const std::byte* at) { return std::to_integer<std::uint8_t>(*at); }
std::int8_t i8(const std::byte* at) { return static_cast<std::int8_t>(u8(at)); }
std::uint16_t u16(const std::byte* at) {
  return static_cast<std::uint16_t>(u8(at) | (u8(at + 1) << 8));
}
double half(const std::byte* at) { return f16_to_double(u16(at)); }

void block_q8_0(const std::byte* b, double* out) {
  for (int i = 0; i < 32; ++i) out[i] = half(b) * i8(b + 2 + i);
}

void block_q4_0(const std::byte* b, double* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = half(b) * ((u8(b + 2 + i) & 15) - 8);
    out[i + 16] = half(b) * ((u8(b + 2 + i) >> 4) - 8);
  }
}

/// Scale and minimum of group j of 8: 6 bits each, packed into 12 bytes.
struct ScaleMin {
  int scale, minimum;
};
ScaleMin scale_min(const std::byte* s, int j) {
  if (j < 4) return {u8(s + j) & 63, u8(s + j + 4) & 63};
  return {(u8(s + j + 4) & 15) | ((u8(s + j - 4) >> 6) << 4),
          (u8(s + j + 4) >> 4) | ((u8(s + j) >> 6) << 4)};
}

void block_q4_k(const std::byte* b, double* out) {
  const double d = half(b);
  const double dmin = half(b + 2);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 32;
    const std::uint8_t pair = u8(b + 16 + group / 2 * 32 + i % 32);
    const int quant = group % 2 == 0 ? pair & 15 : pair >> 4;
    const ScaleMin sm = scale_min(b + 4, group);
    out[i] = d * sm.scale * quant - dmin * sm.minimum;
  }
}

void block_q6_k(const std::byte* b, double* out) {
  const double d = half(b + 208);
  for (int i = 0; i < 256; ++i) {
    const int part = i / 128;  // halves of the block
    const int quarter = i % 128 / 32;
    const int l = i % 32;
    const std::uint8_t low = u8(b + part * 64 + (quarter % 2) * 32 + l);
    const std::uint8_t high = u8(b + 128 + part * 32 + l);
    const int quant =
        ((quarter < 2 ? low & 15 : low >> 4) | (((high >> (2 * quarter)) & 3) << 4)) - 32;
    out[i] = d * i8(b + 192 + i / 16) * quant;
  }
}

}  // namespace

void dequantise(std::uint32_t dtype, std::span<const std::byte> bytes, std::span<double> out) {
  const Block block = block_of(dtype);
  INFOS_CHECK(block.elements != 0);
  INFOS_CHECK(bytes.size() == dtype_bytes(dtype, out.size()));
  const std::byte* at = bytes.data();
  for (std::size_t i = 0; i < out.size(); i += block.elements, at += block.bytes) {
    switch (dtype) {
      case INFOS_Q8_0:
        block_q8_0(at, &out[i]);
        break;
      case INFOS_Q4_0:
        block_q4_0(at, &out[i]);
        break;
      case INFOS_Q4_K:
        block_q4_k(at, &out[i]);
        break;
      case INFOS_Q6_K:
        block_q6_k(at, &out[i]);
        break;
      default:
        out[i] = load_element(dtype, at);
    }
  }
}

double load_element(std::uint32_t dtype, const std::byte* at) {
  if (dtype == INFOS_F16) return half(at);
  if (dtype == INFOS_BF16) return bf16_to_double(u16(at));
  float value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

void store_element(std::uint32_t dtype, double value, std::byte* at) {
  if (dtype == INFOS_F32) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(at, &narrow, sizeof narrow);
    return;
  }
  const std::uint16_t bits = dtype == INFOS_F16 ? double_to_f16(value) : double_to_bf16(value);
  std::memcpy(at, &bits, sizeof bits);
}

}  // namespace infos::reference
