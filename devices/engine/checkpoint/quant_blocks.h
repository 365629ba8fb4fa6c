// SPDX-License-Identifier: Apache-2.0
// The block formats behind quant.h, one block at a time. Private to this folder.
// Source: the block layouts of GGUF's Q8_0, Q4_0, Q4_K and Q6_K tensors.
#pragma once

#include <array>
#include <cstdint>

namespace infos {

/// value[i] = scale * q[i]
struct BlockQ8_0 {
  std::uint16_t scale;
  std::int8_t q[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

/// value[i] = scale * (nibble[i] - 8); low nibbles are values 0 to 15, high nibbles 16 to 31.
struct BlockQ4_0 {
  std::uint16_t scale;
  std::uint8_t q[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

/// 8 groups of 32: value = scale * group_scale * nibble - minimum * group_minimum. The 6-bit group
/// numbers are packed into 12 bytes; of each run of 32 bytes the low nibbles are one group, the
/// high nibbles the next.
struct BlockQ4_K {
  std::uint16_t scale, minimum;
  std::uint8_t groups[12];
  std::uint8_t q[128];
};
static_assert(sizeof(BlockQ4_K) == 144);

/// 16 groups of 16: value = scale * group_scale * (six bits - 32); low four bits in `low`, upper
/// two in `high`.
struct BlockQ6_K {
  std::uint8_t low[128], high[64];
  std::int8_t groups[16];
  std::uint16_t scale;
};
static_assert(sizeof(BlockQ6_K) == 210);

void dequantise_block(const BlockQ8_0& block, float* out);
void dequantise_block(const BlockQ4_0& block, float* out);
void dequantise_block(const BlockQ4_K& block, float* out);
void dequantise_block(const BlockQ6_K& block, float* out);

void quantise_block(const float* in, BlockQ8_0& block);
void quantise_block(const float* in, BlockQ4_0& block);
void quantise_block(const float* in, BlockQ4_K& block);
void quantise_block(const float* in, BlockQ6_K& block);

}  // namespace infos
