// SPDX-License-Identifier: Apache-2.0
// The slow truth about KV values, one element at a time, in double arithmetic: what the fast code
// in transports/kv is compared with. Shares nothing with it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "topology/base/rng.h"
#include "topology/model/kv_layout.h"

namespace infos::test {

template <typename T>
T read_as(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
template <typename T>
void write_as(std::byte* p, T value) {
  std::memcpy(p, &value, sizeof value);
}

/// A binary16 or bfloat16 by its definition: fraction bits, smallest exponent.
struct Format16 {
  int fraction, exponent_min;
  double most;
};
constexpr Format16 kF16{10, -14, 65504.0}, kBf16{7, -126, 0x1.FEp127};

inline double decode16(std::uint16_t bits, const Format16& f) {
  const int exponent_bits = 15 - f.fraction;
  const int exponent = (bits >> f.fraction) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << f.fraction) - 1);
  double x = 0;
  if (exponent == (1 << exponent_bits) - 1)
    x = fraction ? NAN : INFINITY;
  else if (exponent == 0)
    x = std::ldexp(fraction, f.exponent_min - f.fraction);
  else
    x = std::ldexp((1 << f.fraction) + fraction, f.exponent_min + exponent - 1 - f.fraction);
  return bits & 0x8000U ? -x : x;
}

/// Not for NaN.
inline std::uint16_t encode16(double x, const Format16& f) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000U : 0U;
  double magnitude = std::min(std::fabs(x), f.most);
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  exponent = std::max(exponent - 1, f.exponent_min);
  const double quantum = std::ldexp(1.0, exponent - f.fraction);
  auto steps = static_cast<std::uint32_t>(std::nearbyint(magnitude / quantum));
  if (steps == 2U << f.fraction) steps /= 2, ++exponent;
  if (steps >> f.fraction)  // normal: the leading bit is implied
    steps = (steps & ((1U << f.fraction) - 1)) |
            static_cast<std::uint32_t>(exponent - f.exponent_min + 1) << f.fraction;
  return static_cast<std::uint16_t>(sign | steps);
}

/// A KV element or row where it lies.
struct Slot {
  std::byte* row = nullptr;
  std::byte* scale = nullptr;
};

/// A worker's pools: bytes of each rank, 0xA5 where nothing was written.
struct Pools {
  explicit Pools(const KvLayout& l)
      : layout(l), bytes(l.ranks, std::vector<std::byte>(l.pool_bytes(), std::byte{0xA5})) {}

  Slot slot(std::uint32_t rank, std::uint32_t block, std::uint32_t layer, std::uint32_t head,
            std::uint32_t token, KvHalf half) {
    Slot s{bytes[rank].data() + layout.row_offset(rank, block, layer, head, token, half)};
    if (layout.dtype == KvDType::i8)
      s.scale = bytes[rank].data() + layout.scale_offset(rank, block, layer, head, token, half);
    return s;
  }
  std::vector<std::byte*> bases() {
    std::vector<std::byte*> out;
    for (auto& b : bytes) out.push_back(b.data());
    return out;
  }
  std::vector<const std::byte*> const_bases() const {
    std::vector<const std::byte*> out;
    for (const auto& b : bytes) out.push_back(b.data());
    return out;
  }

  KvLayout layout;
  std::vector<std::vector<std::byte>> bytes;
};

inline double decode_element(KvDType dtype, const Slot& slot, std::uint32_t i) {
  switch (dtype) {
    case KvDType::f32:
      return read_as<float>(slot.row + 4 * i);
    case KvDType::f16:
      return decode16(read_as<std::uint16_t>(slot.row + 2 * i), kF16);
    case KvDType::bf16:
      return decode16(read_as<std::uint16_t>(slot.row + 2 * i), kBf16);
    case KvDType::i8:
      return static_cast<float>(double{read_as<float>(slot.scale)} *
                                read_as<std::int8_t>(slot.row + i));
  }
  return NAN;
}

/// Writes a row of exact values as the destination's dtype holds it.
inline void encode_row(KvDType dtype, const std::vector<double>& row, const Slot& slot) {
  double most = 0;
  for (const double x : row) most = std::max(most, std::fabs(x));
  const float scale = static_cast<float>(most) / 127.0F;
  if (dtype == KvDType::i8) write_as(slot.scale, scale);
  for (std::size_t i = 0; i < row.size(); ++i) switch (dtype) {
      case KvDType::f32:
        write_as(slot.row + 4 * i, static_cast<float>(row[i]));
        break;
      case KvDType::f16:
        write_as(slot.row + 2 * i, encode16(row[i], kF16));
        break;
      case KvDType::bf16:
        write_as(slot.row + 2 * i, encode16(row[i], kBf16));
        break;
      case KvDType::i8:
        write_as(slot.row + i,
                 static_cast<std::int8_t>(
                     scale > 0 ? std::nearbyint(static_cast<float>(row[i]) / scale) : 0));
        break;
    }
}

/// A row of random values that the dtype holds exactly.
inline void random_row(KvDType dtype, std::uint32_t head_dim, Rng& rng, const Slot& slot) {
  if (dtype == KvDType::i8) {
    write_as(slot.scale, static_cast<float>(rng.uniform() + 0.01));
    for (std::uint32_t i = 0; i < head_dim; ++i)
      write_as(slot.row + i, static_cast<std::int8_t>(static_cast<int>(rng.below(255)) - 127));
    return;
  }
  std::vector<double> row(head_dim);
  for (double& x : row) x = std::ldexp(rng.uniform() - 0.5, static_cast<int>(rng.below(12)) - 4);
  encode_row(dtype, row, slot);
}

}  // namespace infos::test
