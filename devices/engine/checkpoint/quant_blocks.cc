// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/quant_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "devices/engine/checkpoint/quant.h"

namespace infos {
namespace {

/// The nearest integer to x / step within [low, high]; 0 steps give 0.
int steps(float x, float step, int low, int high) {
  if (step == 0) return std::clamp(0, low, high);
  return std::clamp(static_cast<int>(std::lround(x / step)), low, high);
}

/// The packing of the 8 six-bit (scale, minimum) pairs: groups 0 to 3 use the low six bits of bytes
/// 0-3 and 4-7; groups 4 to 7 have their low four bits in bytes 8-11 and their upper two bits above
/// those of groups 0 to 3.
struct GroupNumbers {
  std::uint8_t scale = 0, minimum = 0;
};

GroupNumbers unpack_group(const std::uint8_t* packed, int group) {
  if (group < 4)
    return {static_cast<std::uint8_t>(packed[group] & 63),
            static_cast<std::uint8_t>(packed[group + 4] & 63)};
  const std::uint8_t low = packed[group + 4];
  return {static_cast<std::uint8_t>((low & 15) | ((packed[group - 4] >> 6) << 4)),
          static_cast<std::uint8_t>((low >> 4) | ((packed[group] >> 6) << 4))};
}

void pack_group(std::uint8_t* packed, int group, GroupNumbers numbers) {
  if (group < 4) {
    packed[group] |= numbers.scale;
    packed[group + 4] |= numbers.minimum;
    return;
  }
  packed[group + 4] |=
      static_cast<std::uint8_t>((numbers.scale & 15) | ((numbers.minimum & 15) << 4));
  packed[group - 4] |= static_cast<std::uint8_t>((numbers.scale >> 4) << 6);
  packed[group] |= static_cast<std::uint8_t>((numbers.minimum >> 4) << 6);
}

/// Where value i of a Q6_K block keeps its bits.
struct SixBits {
  int low_byte, low_shift, high_byte, high_shift;
};
SixBits six_bits(int i) {
  const int half = i / 128, in_half = i % 128, quarter = in_half / 32, lane = in_half % 32;
  return {half * 64 + (quarter % 2) * 32 + lane, quarter / 2 * 4, half * 32 + lane, quarter * 2};
}

}  // namespace

void dequantise_block(const BlockQ8_0& block, float* out) {
  const float scale = f16_to_f32(block.scale);
  for (int i = 0; i < 32; ++i) out[i] = scale * block.q[i];
}

void quantise_block(const float* in, BlockQ8_0& block) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(in[i]));
  block.scale = f32_to_f16(largest / 127);
  const float scale = f16_to_f32(block.scale);
  for (int i = 0; i < 32; ++i)
    block.q[i] = static_cast<std::int8_t>(steps(in[i], scale, -127, 127));
}

void dequantise_block(const BlockQ4_0& block, float* out) {
  const float scale = f16_to_f32(block.scale);
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>((block.q[i] & 15) - 8);
    out[i + 16] = scale * static_cast<float>((block.q[i] >> 4) - 8);
  }
}

void quantise_block(const float* in, BlockQ4_0& block) {
  // The value of largest magnitude becomes -8 exactly, the end of the range that reaches further.
  float extreme = 0;
  for (int i = 0; i < 32; ++i)
    if (std::fabs(in[i]) > std::fabs(extreme)) extreme = in[i];
  block.scale = f32_to_f16(extreme / -8);
  const float scale = f16_to_f32(block.scale);
  for (int i = 0; i < 16; ++i) {
    const int low = steps(in[i], scale, -8, 7) + 8, high = steps(in[i + 16], scale, -8, 7) + 8;
    block.q[i] = static_cast<std::uint8_t>(low | (high << 4));
  }
}

void dequantise_block(const BlockQ4_K& block, float* out) {
  const float scale = f16_to_f32(block.scale), minimum = f16_to_f32(block.minimum);
  for (int group = 0; group < 8; ++group) {
    const auto numbers = unpack_group(block.groups, group);
    const float step = scale * numbers.scale, base = minimum * numbers.minimum;
    for (int i = 0; i < 32; ++i) {
      const std::uint8_t byte = block.q[group / 2 * 32 + i];
      out[group * 32 + i] =
          step * static_cast<float>(group % 2 == 0 ? byte & 15 : byte >> 4) - base;
    }
  }
}

void quantise_block(const float* in, BlockQ4_K& block) {
  float step[8], base[8], step_max = 0, base_max = 0;
  for (int group = 0; group < 8; ++group) {
    const auto [low, high] = std::minmax_element(in + group * 32, in + group * 32 + 32);
    base[group] = std::max(0.0F, -*low);
    step[group] = (std::max(0.0F, *high) + base[group]) / 15;
    step_max = std::max(step_max, step[group]);
    base_max = std::max(base_max, base[group]);
  }
  block = {};
  block.scale = f32_to_f16(step_max / 63);
  block.minimum = f32_to_f16(base_max / 63);
  const float scale = f16_to_f32(block.scale), minimum = f16_to_f32(block.minimum);
  for (int group = 0; group < 8; ++group) {
    const GroupNumbers numbers{static_cast<std::uint8_t>(steps(step[group], scale, 0, 63)),
                               static_cast<std::uint8_t>(steps(base[group], minimum, 0, 63))};
    pack_group(block.groups, group, numbers);
    for (int i = 0; i < 32; ++i) {
      const int q =
          steps(in[group * 32 + i] + minimum * numbers.minimum, scale * numbers.scale, 0, 15);
      block.q[group / 2 * 32 + i] |= static_cast<std::uint8_t>(group % 2 == 0 ? q : q << 4);
    }
  }
}

void dequantise_block(const BlockQ6_K& block, float* out) {
  const float scale = f16_to_f32(block.scale);
  for (int i = 0; i < 256; ++i) {
    const SixBits at = six_bits(i);
    const int low = (block.low[at.low_byte] >> at.low_shift) & 15,
              high = (block.high[at.high_byte] >> at.high_shift) & 3;
    out[i] = scale * block.groups[i / 16] * static_cast<float>((low | (high << 4)) - 32);
  }
}

void quantise_block(const float* in, BlockQ6_K& block) {
  float step[16], step_max = 0;
  for (int group = 0; group < 16; ++group) {
    float largest = 0;
    for (int i = 0; i < 16; ++i) largest = std::max(largest, std::fabs(in[group * 16 + i]));
    step[group] = largest / 31;
    step_max = std::max(step_max, step[group]);
  }
  block = {};
  block.scale = f32_to_f16(step_max / 127);
  const float scale = f16_to_f32(block.scale);
  for (int group = 0; group < 16; ++group)
    block.groups[group] = static_cast<std::int8_t>(steps(step[group], scale, 0, 127));
  for (int i = 0; i < 256; ++i) {
    const int q = steps(in[i], scale * block.groups[i / 16], -32, 31) + 32;
    const SixBits at = six_bits(i);
    block.low[at.low_byte] |= static_cast<std::uint8_t>((q & 15) << at.low_shift);
    block.high[at.high_byte] |= static_cast<std::uint8_t>((q >> 4) << at.high_shift);
  }
}

}  // namespace infos
