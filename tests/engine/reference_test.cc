// SPDX-License-Identifier: Apache-2.0
// Goal: the oracle itself is right. Method: small cases worked out by hand, block formats with
// every field set apart, and laws that hold for any input.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "devices/engine/reference/dequantise.h"
#include "devices/engine/reference/ops.h"

namespace infos::reference {
namespace {

using Vector = std::vector<double>;

void expect_near(const Vector& got, const Vector& want, double tolerance = 1e-12) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << i;
}

std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (const int v : values) out.push_back(static_cast<std::byte>(v));
  return out;
}

TEST(Half, EveryBitPattern_SurvivesTheWayThroughDouble) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto b = static_cast<std::uint16_t>(bits);
    if ((b & 0x7fff) <= 0x7c00) {
      ASSERT_EQ(double_to_f16(f16_to_double(b)), b);
    }
    if ((b & 0x7fff) <= 0x7f80) {
      ASSERT_EQ(double_to_bf16(bf16_to_double(b)), b);
    }
  }
  EXPECT_TRUE(std::isnan(f16_to_double(0x7e01)));
  EXPECT_TRUE(std::isnan(f16_to_double(double_to_f16(NAN))));
  EXPECT_TRUE(std::isnan(bf16_to_double(double_to_bf16(NAN))));
}

TEST(Half, Values_RoundToNearestAndTiesToEven) {
  EXPECT_EQ(double_to_f16(1.0), 0x3c00);
  EXPECT_EQ(double_to_f16(1.0 + 1.0 / 2048), 0x3c00);  // half way: to even
  EXPECT_EQ(double_to_f16(1.0 + 3.0 / 2048), 0x3c02);  // half way: to even
  EXPECT_EQ(double_to_f16(1.0 + 1.0001 / 2048), 0x3c01);
  EXPECT_EQ(double_to_f16(65519.9), 0x7bff);
  EXPECT_EQ(double_to_f16(65520.0), 0x7c00);
  EXPECT_EQ(double_to_f16(-std::ldexp(1, -24)), 0x8001);
  EXPECT_EQ(double_to_f16(std::ldexp(1, -25)), 0);  // half of the smallest: to even
  EXPECT_EQ(double_to_bf16(1.0 + 1.0 / 256), 0x3f80);
  EXPECT_EQ(double_to_bf16(1.0 + 3.0 / 256), 0x3f82);
}

TEST(Dequantise, Q8_0AndQ4_0_AreScaleTimesQuant) {
  auto q8 = bytes({0x00, 0x38});  // 0.5
  for (int i = 0; i < 32; ++i) q8.push_back(static_cast<std::byte>(i - 16));
  Vector out(32);
  dequantise(INFOS_Q8_0, q8, out);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[static_cast<std::size_t>(i)], 0.5 * (i - 16));
  auto q4 = bytes({0x00, 0x40});  // 2.0
  for (int i = 0; i < 16; ++i) q4.push_back(static_cast<std::byte>(i | ((15 - i) << 4)));
  dequantise(INFOS_Q4_0, q4, out);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(out[static_cast<std::size_t>(i)], 2.0 * (i - 8));
    EXPECT_EQ(out[static_cast<std::size_t>(i + 16)], 2.0 * (15 - i - 8));
  }
}

TEST(Dequantise, Q4_K_EachGroupHasItsOwnScaleAndMinimum) {
  // Scales 1, 2, 3, 4, 20, 37, 50, 63 and minimums 8, 7, 6, 5, 4, 33, 18, 63, packed by the
  // format's rule: the first four in the low 6 bits of bytes 0-3 and 4-7; of the last four the low
  // 4 bits in bytes 8-11, the high 2 above the first four.
  const int scale[8] = {1, 2, 3, 4, 20, 37, 50, 63}, minimum[8] = {8, 7, 6, 5, 4, 33, 18, 63};
  std::vector<std::byte> block = bytes({0x00, 0x3c, 0x00, 0x38});  // d 1, dmin 0.5
  for (int i = 0; i < 4; ++i)
    block.push_back(static_cast<std::byte>(scale[i] | ((scale[i + 4] >> 4) << 6)));
  for (int i = 0; i < 4; ++i)
    block.push_back(static_cast<std::byte>(minimum[i] | ((minimum[i + 4] >> 4) << 6)));
  for (int i = 4; i < 8; ++i)
    block.push_back(static_cast<std::byte>((scale[i] & 15) | ((minimum[i] & 15) << 4)));
  // Byte l of quarter q holds element l of group 2q (low) and of group 2q + 1 (high).
  for (int i = 0; i < 128; ++i)
    block.push_back(static_cast<std::byte>((i % 16) | (((i / 7) % 16) << 4)));
  Vector out(256);
  dequantise(INFOS_Q4_K, block, out);
  for (int group = 0; group < 8; ++group) {
    for (int l = 0; l < 32; ++l) {
      const int i = group / 2 * 32 + l;
      const int quant = group % 2 == 0 ? i % 16 : (i / 7) % 16;
      EXPECT_EQ(out[static_cast<std::size_t>(group * 32 + l)],
                scale[group] * quant - 0.5 * minimum[group])
          << group << " " << l;
    }
  }
}

TEST(Dequantise, Q6_K_ScalesOfSixteenAndSixBitQuants) {
  int quant[256], scale[16];
  for (int i = 0; i < 256; ++i) quant[i] = (i * 37 + i / 16) % 64;
  for (int i = 0; i < 16; ++i) scale[i] = 11 * i - 90;
  std::vector<std::byte> block(210);
  for (int half = 0; half < 2; ++half) {
    for (int l = 0; l < 32; ++l) {
      const int* q = quant + 128 * half + l;  // elements l, l + 32, l + 64, l + 96 of this half
      block[static_cast<std::size_t>(64 * half + l)] =
          static_cast<std::byte>((q[0] & 15) | ((q[64] & 15) << 4));
      block[static_cast<std::size_t>(64 * half + 32 + l)] =
          static_cast<std::byte>((q[32] & 15) | ((q[96] & 15) << 4));
      block[static_cast<std::size_t>(128 + 32 * half + l)] = static_cast<std::byte>(
          (q[0] >> 4) | ((q[32] >> 4) << 2) | ((q[64] >> 4) << 4) | ((q[96] >> 4) << 6));
    }
  }
  for (int i = 0; i < 16; ++i)
    block[static_cast<std::size_t>(192 + i)] = static_cast<std::byte>(scale[i]);
  block[209] = std::byte{0x34};  // 0.25
  Vector out(256);
  dequantise(INFOS_Q6_K, block, out);
  for (int i = 0; i < 256; ++i)
    EXPECT_EQ(out[static_cast<std::size_t>(i)], 0.25 * scale[i / 16] * (quant[i] - 32)) << i;
}

TEST(Dequantise, Bytes_AreOfWholeBlocksOnly) {
  EXPECT_EQ(dtype_bytes(INFOS_Q4_0, 64), 36U);
  EXPECT_EQ(dtype_bytes(INFOS_Q4_0, 33), 0U);
  EXPECT_EQ(dtype_bytes(INFOS_Q6_K, 512), 420U);
  EXPECT_EQ(dtype_bytes(INFOS_BF16, 3), 6U);
  EXPECT_EQ(dtype_bytes(INFOS_I32, 4), 0U);
  EXPECT_EQ(dtype_bytes(77, 4), 0U);
}

TEST(Ops, RmsNorm_NormsEachGroupByItself) {
  Vector y(4);
  rms_norm<double>(Vector{3, 4, 6, 8}, Vector{1, 2}, 0.0, y);
  const double a = std::sqrt(12.5), b = std::sqrt(50.0);
  expect_near(y, {3 / a, 8 / a, 6 / b, 16 / b});
  rms_norm<double>(Vector{0, 0, 0, 0}, Vector{1, 1, 1, 1}, 1e-5, y);
  expect_near(y, {0, 0, 0, 0});
}

TEST(Ops, Linear_IsRowsTimesTransposedWeightsPlusBias) {
  Vector y(6);
  linear<double>(Vector{1, 2, 3, 4}, Vector{1, 0, 0, 1, 5, 7}, Vector{10, 20, 30}, 2, y);
  expect_near(y, {11, 22, 49, 13, 24, 73});
}

TEST(Ops, SiluMul_OfZeroIsZeroAndOfLargeIsTheProduct) {
  Vector y(3);
  silu_mul<double>(Vector{0, 100, 1}, Vector{5, 2, 3}, y);
  expect_near(y, {0, 200, 3 / (1 + std::exp(-1.0))});
}

infos_op rope_op(std::uint32_t style) {
  infos_op op{};
  op.heads = 1;
  op.head_dim = 6;
  op.rotary_dim = 4;
  op.rope_style = style;
  return op;
}

TEST(Ops, Rope_TurnsHalvesOrNeighboursAndLeavesTheRest) {
  const Vector x = {1, 2, 3, 4, 5, 6}, inv_freq = {0.5, 0.25};
  const double c0 = std::cos(1.0), s0 = std::sin(1.0), c1 = std::cos(0.5), s1 = std::sin(0.5);
  Vector y(6);
  rope<double>(rope_op(INFOS_ROPE_HALVES), x, inv_freq, 2, y);
  expect_near(y, {1 * c0 - 3 * s0, 2 * c1 - 4 * s1, 1 * s0 + 3 * c0, 2 * s1 + 4 * c1, 5, 6});
  rope<double>(rope_op(INFOS_ROPE_ADJACENT), x, inv_freq, 2, y);
  expect_near(y, {1 * c0 - 2 * s0, 1 * s0 + 2 * c0, 3 * c1 - 4 * s1, 3 * s1 + 4 * c1, 5, 6});
  rope<double>(rope_op(INFOS_ROPE_HALVES), x, inv_freq, 0, y);
  expect_near(y, x);
}

/// Two blocks of two tokens, one layer, one KV head of width 2, in f32, in the order 1, 0.
struct Pool {
  std::vector<std::byte> memory = std::vector<std::byte>(2 * 32);
  std::vector<std::uint32_t> blocks = {1, 0};
  KvView view() {
    infos_kv_layout layout{};
    layout.dtype = INFOS_F32;
    layout.base = memory.data();
    layout.s_token = 8;
    layout.s_head = 16;
    layout.v_offset = 16;
    layout.s_layer = 32;
    layout.s_block = 32;
    return {layout, 2, blocks, 0};
  }
};

TEST(Ops, Attention_WeighsValuesBySoftmaxOfWhatTheMaskLetsIn) {
  Pool pool;
  infos_op op{};
  op.heads = 2;
  op.kv_heads = 1;
  op.head_dim = 2;
  op.scale = 0.5F;
  op.mask = INFOS_MASK_CAUSAL;
  const std::vector<Vector> k = {{1, 0}, {0, 1}, {2, 2}}, v = {{1, 10}, {2, 20}, {4, 40}};
  for (std::int32_t p = 0; p < 3; ++p)
    kv_append<double>(op, k[static_cast<std::size_t>(p)], v[static_cast<std::size_t>(p)], p,
                      pool.view());
  Vector o(4);
  attention<double>(op, Vector{1, 0, 0, 4}, 0, pool.view(), o);
  expect_near(o, {1, 10, 1, 10});  // the first position sees itself alone
  attention<double>(op, Vector{1, 0, 0, 4}, 2, pool.view(), o);
  const double a = std::exp(0.5), b = 1, c = std::exp(1.0);  // head 0: scores 0.5, 0, 1
  const double d = 1, e = std::exp(2.0), f = std::exp(4.0);  // head 1: scores 0, 2, 4
  const double first = (a * 1 + b * 2 + c * 4) / (a + b + c),
               second = (d * 1 + e * 2 + f * 4) / (d + e + f);
  expect_near(o, {first, 10 * first, second, 10 * second});
  op.mask = INFOS_MASK_WINDOW;
  op.window = 2;  // positions 1 and 2
  attention<double>(op, Vector{1, 0, 0, 4}, 2, pool.view(), o);
  const double windowed = (b * 2 + c * 4) / (b + c);
  EXPECT_NEAR(o[0], windowed, 1e-12);
}

TEST(Ops, Attention_OfHugeScores_DoesNotOverflow) {
  Pool pool;
  infos_op op{};
  op.heads = op.kv_heads = 1;
  op.head_dim = 2;
  op.scale = 1;
  op.mask = INFOS_MASK_CAUSAL;
  kv_append<double>(op, Vector{1000, 0}, Vector{1, 2}, 0, pool.view());
  kv_append<double>(op, Vector{2000, 0}, Vector{3, 4}, 1, pool.view());
  Vector o(2);
  attention<double>(op, Vector{10, 0}, 1, pool.view(), o);
  expect_near(o, {3, 4});
}

TEST(Ops, MoeFfn_MixesTheBestExpertsAndTiesGoToTheLower) {
  infos_op op{};
  op.experts = 3;
  op.top_k = 2;
  // One input, one hidden unit each: expert e gives silu(g x) u x d with g = 1, u = 1, d = 1, 10,
  // 100.
  const Vector router = {0, 1, 1}, gate = {1, 1, 1}, up = {1, 1, 1}, down = {1, 10, 100};
  const double x = 2, hidden = x / (1 + std::exp(-x)) * x;
  const double all = 1 + 2 * std::exp(2.0), share = std::exp(2.0) / all;
  Vector y(1);
  moe_ffn<double>(op, Vector{x}, {router, gate, up, down}, y);
  expect_near(y, {share * hidden * 110});
  op.renormalise = 1;
  moe_ffn<double>(op, Vector{x}, {router, gate, up, down}, y);
  expect_near(y, {0.5 * hidden * 110});
  op.top_k = 1;
  moe_ffn<double>(op, Vector{x}, {router, gate, up, down}, y);
  expect_near(y, {hidden * 10});
}

}  // namespace
}  // namespace infos::reference
