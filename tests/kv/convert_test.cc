// SPDX-License-Identifier: Apache-2.0
// Goal: every conversion gives the nearest value, on vectors and on leftovers alike. Method: all
// 65,536 halves; for narrowing, every half's neighbourhood of f32 and random bits, against double
// arithmetic.
#include "transports/kv/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "tests/kv/kv_oracle.h"

namespace infos {
namespace {

using namespace test;  // NOLINT: the oracle's words

std::vector<std::byte> convert(KvDType from, KvDType to, const std::vector<std::byte>& in) {
  const std::size_t n = in.size() / kv_element_bytes(from);
  std::vector<std::byte> out(n * kv_element_bytes(to));
  float_conversion(from, to)(in.data(), out.data(), n);
  return out;
}

std::vector<std::byte> all_halves() {
  std::vector<std::byte> in(2 << 16);
  for (std::uint32_t i = 0; i < 1 << 16; ++i)
    write_as(in.data() + 2 * i, static_cast<std::uint16_t>(i));
  return in;
}

TEST(KvConvert, WideningIsExactForEveryHalf) {
  const std::vector<std::byte> in = all_halves();
  for (const KvDType from : {KvDType::f16, KvDType::bf16}) {
    const std::vector<std::byte> out = convert(from, KvDType::f32, in);
    for (std::uint32_t i = 0; i < 1 << 16; ++i) {
      const double want =
          decode16(static_cast<std::uint16_t>(i), from == KvDType::f16 ? kF16 : kBf16);
      const auto got = read_as<float>(out.data() + 4 * i);
      if (std::isnan(want))
        ASSERT_TRUE(std::isnan(got)) << i;
      else
        ASSERT_EQ(std::bit_cast<std::uint32_t>(static_cast<float>(want)),
                  std::bit_cast<std::uint32_t>(got))
            << i;
    }
  }
}

/// Every half itself, halfway to the next, and one f32 to either side of that; then random bits.
std::vector<float> hard_floats(const Format16& format) {
  std::vector<float> out;
  for (std::uint32_t i = 0; i < 1 << 16; ++i) {
    const double x = decode16(static_cast<std::uint16_t>(i), format);
    const double next = decode16(static_cast<std::uint16_t>(i + 1), format);
    if (std::isnan(x) || std::isinf(x)) continue;
    const auto middle = static_cast<float>(std::isfinite(next) ? (x + next) / 2 : x * 1.001);
    out.insert(out.end(), {static_cast<float>(x), middle, std::nextafter(middle, 1e30F),
                           std::nextafter(middle, -1e30F)});
  }
  Rng rng(7);
  for (int i = 0; i < 200'000; ++i)
    out.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(rng.next())));
  const float inf = std::numeric_limits<float>::infinity();
  const float most = std::numeric_limits<float>::max();
  out.insert(out.end(), {inf, -inf, most, -most, 65519.9F, 65520.0F, -65536.0F, 0.0F, -0.0F});
  return out;
}

TEST(KvConvert, NarrowingRoundsToNearestEvenAndStaysFinite) {
  for (const KvDType to : {KvDType::f16, KvDType::bf16}) {
    const Format16& format = to == KvDType::f16 ? kF16 : kBf16;
    const std::vector<float> floats = hard_floats(format);
    std::vector<std::byte> in(floats.size() * 4);
    std::memcpy(in.data(), floats.data(), in.size());
    const std::vector<std::byte> out = convert(KvDType::f32, to, in);
    for (std::size_t i = 0; i < floats.size(); ++i) {
      const auto got = read_as<std::uint16_t>(out.data() + 2 * i);
      if (std::isnan(floats[i]))
        ASSERT_TRUE(std::isnan(decode16(got, format)));
      else
        ASSERT_EQ(got, encode16(floats[i], format)) << floats[i];
    }
  }
}

TEST(KvConvert, SixteenToSixteenBitsIsOneRounding) {
  const std::vector<std::byte> in = all_halves();
  const std::pair<KvDType, KvDType> pairs[] = {{KvDType::f16, KvDType::bf16},
                                               {KvDType::bf16, KvDType::f16}};
  for (const auto& [from, to] : pairs) {
    const Format16 &source = from == KvDType::f16 ? kF16 : kBf16,
                   &sink = to == KvDType::f16 ? kF16 : kBf16;
    const std::vector<std::byte> out = convert(from, to, in);
    for (std::uint32_t i = 0; i < 1 << 16; ++i) {
      const double x = decode16(static_cast<std::uint16_t>(i), source);
      const auto got = read_as<std::uint16_t>(out.data() + 2 * i);
      if (std::isnan(x))
        ASSERT_TRUE(std::isnan(decode16(got, sink)));
      else
        ASSERT_EQ(got, encode16(x, sink)) << x;
    }
  }
}

TEST(KvConvert, EveryLengthAndAlignmentGivesTheSameAsOneByOne) {
  Rng rng(3);
  std::vector<std::byte> in(1200), whole(2400), single(2400);
  for (std::byte& b : in) b = static_cast<std::byte>(rng.next() & 0x3F);  // no NaN
  for (const KvDType from : {KvDType::f32, KvDType::f16, KvDType::bf16})
    for (const KvDType to : {KvDType::f32, KvDType::f16, KvDType::bf16}) {
      if (from == to) continue;
      const std::uint32_t f = kv_element_bytes(from), t = kv_element_bytes(to);
      for (const std::size_t n : {1U, 7U, 8U, 9U, 64U, 257U, 290U}) {
        float_conversion(from, to)(in.data() + 1, whole.data() + 1, n);
        for (std::size_t i = 0; i < n; ++i)
          float_conversion(from, to)(in.data() + 1 + i * f, single.data() + 1 + i * t, 1);
        ASSERT_EQ(std::memcmp(whole.data() + 1, single.data() + 1, n * t), 0) << n;
      }
    }
}

TEST(KvConvert, QuantisedRowsAreWithinHalfAStep) {
  Rng rng(5);
  std::vector<float> row(300);
  for (float& x : row) x = static_cast<float>(rng.uniform() * 8 - 4);
  std::vector<std::byte> q(row.size()), back(row.size() * 4);
  std::byte scale[4];
  quantise_row(reinterpret_cast<const std::byte*>(row.data()), KvDType::f32, q.data(), scale,
               row.size());
  dequantise_row(q.data(), scale, KvDType::f32, back.data(), row.size());
  for (std::size_t i = 0; i < row.size(); ++i)
    ASSERT_NEAR(read_as<float>(back.data() + 4 * i), row[i], read_as<float>(scale) * 0.5001F);
}

TEST(KvConvert, OddRowsStillGiveFiniteQuantisedOnes) {
  const float inf = std::numeric_limits<float>::infinity();
  const float rows[][4] = {{0, 0, 0, 0}, {inf, 1, -inf, 2}, {NAN, -2, 1, 0}, {inf, inf, 0, 0}};
  for (const auto& row : rows) {
    std::byte q[4], scale[4], back[16];
    quantise_row(reinterpret_cast<const std::byte*>(row), KvDType::f32, q, scale, 4);
    dequantise_row(q, scale, KvDType::f32, back, 4);
    for (int i = 0; i < 4; ++i) {
      const auto x = read_as<float>(back + 4 * i);
      ASSERT_TRUE(std::isfinite(x));
      if (std::isnan(row[i])) {
        ASSERT_EQ(x, 0);
      }
    }
  }
}

}  // namespace
}  // namespace infos
