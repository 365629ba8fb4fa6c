// SPDX-License-Identifier: Apache-2.0
// Goal: every number format has GGUF's bytes and the precision it promises.
// Method: blocks written out by hand with their values worked out on paper; all f16 bit patterns
// there and back; and random blocks whose round trip must stay within half a step of the format.
#include "devices/engine/checkpoint/quant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "topology/base/rng.h"

namespace infos {
namespace {

std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (const int v : values) out.push_back(static_cast<std::byte>(v));
  return out;
}

std::vector<float> values_of(DType dtype, const std::vector<std::byte>& raw) {
  const auto block = block_shape(dtype);
  std::vector<float> out(raw.size() / block.bytes * block.elements);
  dequantise(dtype, raw, out);
  return out;
}

TEST(F16, KnownAnswers) {
  EXPECT_EQ(f16_to_f32(0x3C00), 1.0F);
  EXPECT_EQ(f16_to_f32(0xC000), -2.0F);
  EXPECT_EQ(f16_to_f32(0x7BFF), 65504.0F);
  EXPECT_EQ(f16_to_f32(0x0001), 0x1p-24F);
  EXPECT_EQ(f16_to_f32(0x0400), 0x1p-14F);
  EXPECT_TRUE(std::isinf(f16_to_f32(0xFC00)));
  EXPECT_TRUE(std::isnan(f16_to_f32(0x7E00)));
  EXPECT_EQ(f32_to_f16(0.333251953125F), 0x3555);
  EXPECT_EQ(f32_to_f16(65519.0F), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0F), 0x7C00);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::infinity()), 0xFC00);
  EXPECT_EQ(f32_to_f16(1.0F + 0x1p-11F), 0x3C00) << "a tie goes to even, down";
  EXPECT_EQ(f32_to_f16(1.0F + 3 * 0x1p-11F), 0x3C02) << "a tie goes to even, up";
  EXPECT_EQ(f32_to_f16(0x1p-25F), 0x0000) << "a tie goes to even, to zero";
  EXPECT_EQ(f32_to_f16(std::nextafter(0x1p-25F, 1.0F)), 0x0001);
  EXPECT_EQ(f32_to_f16(0x1.FFFp-15F), 0x0400) << "rounds up into the normal numbers";
  EXPECT_EQ(f32_to_f16(-0.0F), 0x8000);
}

TEST(F16, EveryPattern_SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = f16_to_f32(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(f32_to_f16(value), bits);
  }
}

TEST(BF16, KnownAnswers) {
  EXPECT_EQ(bf16_to_f32(0x3F80), 1.0F);
  EXPECT_EQ(f32_to_bf16(1.0F + 0x1p-8F), 0x3F80) << "a tie goes to even, down";
  EXPECT_EQ(f32_to_bf16(1.0F + 3 * 0x1p-8F), 0x3F82) << "a tie goes to even, up";
  EXPECT_EQ(f32_to_bf16(-3.0F), 0xC040);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

// Scale 0.5 (f16 0x3800), values 1, -2, 0, ..., -128.
TEST(Q8_0, HandWrittenBlock) {
  std::vector<std::byte> raw(34);
  const auto head = bytes({0x00, 0x38, 1, 0xFE});
  std::copy(head.begin(), head.end(), raw.begin());
  raw[33] = std::byte{0x80};
  const auto v = values_of(DType::q8_0, raw);
  EXPECT_EQ(v[0], 0.5F);
  EXPECT_EQ(v[1], -1.0F);
  EXPECT_EQ(v[2], 0.0F);
  EXPECT_EQ(v[31], -64.0F);
}

// Scale 2 (0x4000); byte 0 is 0x1F: value 0 is 15 - 8 = 7 steps, value 16 is 1 - 8 = -7 steps.
TEST(Q4_0, HandWrittenBlock) {
  std::vector<std::byte> raw(18, std::byte{0x88});
  const auto head = bytes({0x00, 0x40, 0x1F});
  std::copy(head.begin(), head.end(), raw.begin());
  const auto v = values_of(DType::q4_0, raw);
  EXPECT_EQ(v[0], 14.0F);
  EXPECT_EQ(v[16], -14.0F);
  EXPECT_EQ(v[1], 0.0F);
  EXPECT_EQ(v[31], 0.0F);
}

// Scale 1, minimum 0.5. Group 0: scale 3, minimum 2. Group 5: scale 0x2A = 42 (low 10, upper 2),
// minimum 0x35 = 53 (low 5, upper 3). So group 0's value is 3 q - 1, and group 5's 42 q - 26.5.
TEST(Q4_K, HandWrittenBlock) {
  std::vector<std::byte> raw(144);
  const auto head = bytes({0x00, 0x3C, 0x00, 0x38,  // scale, minimum
                           3, 2 << 6, 0, 0,  // scales of 0 to 3; upper bits of the scales of 4 to 7
                           2, 3 << 6, 0, 0,  // minima of 0 to 3; upper bits of the minima of 4 to 7
                           0, 10 | (5 << 4), 0, 0});
  std::copy(head.begin(), head.end(), raw.begin());
  raw[16] = std::byte{0x05};                // group 0, value 0: 5; group 1, value 0: 0
  raw[16 + 2 * 32 + 31] = std::byte{0xF0};  // group 4, value 31: 0; group 5, value 31: 15
  const auto v = values_of(DType::q4_k, raw);
  EXPECT_EQ(v[0], 14.0F);
  EXPECT_EQ(v[1], -1.0F);
  EXPECT_EQ(v[32], 0.0F) << "group 1 has neither scale nor minimum";
  EXPECT_EQ(v[5 * 32 + 31], 603.5F);
  EXPECT_EQ(v[5 * 32], -26.5F);
}

// Scale 0.25 (0x3400), all six-bit values 0 (that is -32) but for a few, group scales by hand.
TEST(Q6_K, HandWrittenBlock) {
  std::vector<std::byte> raw(210);
  raw[0] = std::byte{0x0F};         // value 0: low bits 15
  raw[128] = std::byte{0x03};       // value 0: upper bits 3, so 63 - 32 = 31
  raw[32 + 31] = std::byte{0xA0};   // value 127 (fourth quarter, lane 31): low bits 10
  raw[128 + 31] = std::byte{0x80};  // value 127: upper bits 2, so 42 - 32 = 10
  raw[64 + 5] = std::byte{0x07};    // value 133 (second half, lane 5): low bits 7, so 7 - 32 = -25
  raw[192] = std::byte{2};          // group 0
  raw[192 + 7] = std::byte{0xFF};   // group 7: -1
  raw[192 + 8] = std::byte{4};      // group 8
  raw[208] = std::byte{0x00};
  raw[209] = std::byte{0x34};
  const auto v = values_of(DType::q6_k, raw);
  EXPECT_EQ(v[0], 15.5F);
  EXPECT_EQ(v[1], -16.0F);
  EXPECT_EQ(v[127], -2.5F);
  EXPECT_EQ(v[133], -25.0F);
  EXPECT_EQ(v[255], 0.0F) << "group 15 has scale 0";
}

struct Precision {
  DType dtype;
  float bound;  ///< largest error, as a part of the largest magnitude of the block
};

void PrintTo(const Precision& p, std::ostream* out) { *out << to_string(p.dtype); }

class RoundTrip : public testing::TestWithParam<Precision> {};

TEST_P(RoundTrip, RandomBlocks_StayWithinTheBound) {
  const auto [dtype, bound] = GetParam();
  Rng rng(2024);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> in(256);
    // From 1 up: far below, the f16 scales are subnormal and lose bits, which is the formats'
    // doing.
    const double size = std::ldexp(1.0, static_cast<int>(rng.below(12)));
    for (float& v : in) v = static_cast<float>((rng.uniform() * 2 - 1) * size);
    std::vector<std::byte> raw(bytes_of(dtype, in.size()));
    quantise(dtype, in, raw);
    const auto out = values_of(dtype, raw);
    float largest = 0;
    for (const float v : in) largest = std::max(largest, std::fabs(v));
    for (std::size_t i = 0; i < in.size(); ++i)
      ASSERT_NEAR(out[i], in[i], bound * largest) << "round " << round << " value " << i;
  }
}

TEST_P(RoundTrip, Zeros_StayZeros) {
  const DType dtype = GetParam().dtype;
  const std::vector<float> in(256, 0.0F);
  std::vector<std::byte> raw(bytes_of(dtype, in.size()));
  quantise(dtype, in, raw);
  for (const float v : values_of(dtype, raw)) EXPECT_EQ(v, 0.0F);
}

// Half a step: 1/254 of the largest for q8_0, 1/16 (one whole step at the short end, 1/8) for q4_0,
// 1/15 for q4_k and 1/62 for q6_k, each with a margin for the rounding of the scales themselves.
INSTANTIATE_TEST_SUITE_P(
    Formats, RoundTrip,
    testing::Values(Precision{DType::f32, 0.0F}, Precision{DType::f16, 0x1p-11F},
                    Precision{DType::bf16, 0x1p-8F}, Precision{DType::q8_0, 0.0042F},
                    Precision{DType::q4_0, 0.126F}, Precision{DType::q4_k, 0.085F},
                    Precision{DType::q6_k, 0.022F}),
    [](const auto& info) { return std::string(to_string(info.param.dtype)); });

TEST(Dequantise, PlainTypes) {
  EXPECT_EQ(values_of(DType::i8, bytes({0xFF})), std::vector<float>{-1.0F});
  EXPECT_EQ(values_of(DType::i32, bytes({0, 1, 0, 0})), std::vector<float>{256.0F});
  EXPECT_EQ(values_of(DType::f64, bytes({0, 0, 0, 0, 0, 0, 0xF0, 0x3F})), std::vector<float>{1.0F});
}

}  // namespace
}  // namespace infos
