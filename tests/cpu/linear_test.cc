// SPDX-License-Identifier: Apache-2.0
// Goal: matrix products are right for every weight type and instruction set, and a row's bits do
// not depend on the other rows. Method: an f64 oracle that quantises activations by the same rule
// in its own words; then bit comparisons between row counts, panel ranges and instruction sets.
#include <cmath>

#include "tests/cpu/kernel_data.h"

namespace infos::cpu::test {
namespace {

struct Shape {
  std::uint32_t n, k;
};
// Whole and partial panels, odd panel counts, k below, at and beyond the chunks of the widened
// path.
std::vector<Shape> shapes(std::uint32_t dtype) {
  const std::uint32_t block = reference::block_of(dtype).elements;
  if (block == 256) return {{16, 256}, {37, 768}, {80, 1280}};
  if (block == 32) return {{16, 32}, {37, 96}, {80, 544}, {144, 1056}};
  return {{16, 1}, {37, 172}, {80, 129}, {144, 300}};
}

/// y = x w^T for one instruction set; `rows` rows of k.
std::vector<float> multiply(const Kernels& kernels, const Matrix& m, const std::vector<float>& x,
                            std::uint32_t rows, const float* bias = nullptr,
                            const float* residual = nullptr) {
  const PackedMatrix& w = m.packed;
  std::vector<ActBlock> quantised(rows * (w.k / kBlock) + 1);
  for (std::uint32_t r = 0; r < rows && is_integer(w.kind); ++r) {
    kernels.quantise(x.data() + std::size_t{r} * w.k, quantised.data() + r * (w.k / kBlock), w.k,
                     w.kind);
  }
  std::vector<float> y(std::size_t{rows} * w.n, NAN), scratch(linear_scratch_bytes(rows) / 4);
  LinearArgs a;
  a.w = &w;
  a.x = x.data();
  a.ldx = w.k;
  a.qx = quantised.data();
  a.ldq = w.k / kBlock;
  a.y = y.data();
  a.ldy = w.n;
  a.bias = bias;
  a.residual = residual;
  a.ldr = w.n;
  a.rows = rows;
  a.panel_end = w.panels;
  a.scratch = reinterpret_cast<std::uint8_t*>(scratch.data());
  kernels.linear(a);
  return y;
}

/// Activations as integer kernels see them: rounded to 127 steps of the largest of each 32. In f32,
/// as the rule says: on a tie f64 would choose the other step.
std::vector<double> seen_by_kernel(std::uint32_t dtype, const std::vector<float>& x) {
  std::vector<double> v(x.begin(), x.end());
  if (reference::block_of(dtype).elements == 1) return v;
  for (std::size_t i = 0; i < x.size(); i += 32) {
    float top = 0;
    for (int j = 0; j < 32; ++j) top = std::max(top, std::fabs(x[i + j]));
    const float steps_per_one = 127.0F / top, step = top / 127.0F;
    for (int j = 0; j < 32; ++j)
      v[i + j] = std::nearbyint(x[i + j] * steps_per_one) * static_cast<double>(step);
  }
  return v;
}

TEST(Linear, EveryTypeAndIsa_EqualsF64Oracle) {
  Rng rng(1);
  for (const std::uint32_t dtype : kWeightTypes) {
    for (const Shape s : shapes(dtype)) {
      const Matrix m(dtype, s.n, s.k, rng.next());
      for (const std::uint32_t rows : {1U, 5U, 33U}) {
        const auto x = random_floats(std::size_t{rows} * s.k, rng);
        const auto bias = random_floats(s.n, rng),
                   residual = random_floats(std::size_t{rows} * s.n, rng);
        const auto a = seen_by_kernel(dtype, x);
        for (const Isa isa : isas()) {
          const auto y = multiply(kernels_for(isa), m, x, rows, bias.data(), residual.data());
          double worst = 0;
          for (std::uint32_t r = 0; r < rows; ++r) {
            for (std::uint32_t n = 0; n < s.n; ++n) {
              double sum = 0, scale = 0;
              for (std::uint32_t k = 0; k < s.k; ++k) {
                const double term = a[r * s.k + k] * m.values[n * s.k + k];
                sum += term;
                scale += std::fabs(term);
              }
              const double want = sum + bias[n] + residual[r * s.n + n];
              const double error = std::fabs(y[r * s.n + n] - want) / (scale + 1);
              worst = std::isnan(error) ? 1e9 : std::max(worst, error);
            }
          }
          EXPECT_LT(worst, 2e-6) << reference::dtype_name(dtype) << " n " << s.n << " k " << s.k
                                 << " rows " << rows << " " << to_string(isa);
        }
      }
    }
  }
}

TEST(Linear, RowAlone_HasTheBitsItHasAmongOthers) {
  Rng rng(2);
  for (const std::uint32_t dtype : kWeightTypes) {
    for (const Shape s : shapes(dtype)) {
      const Matrix m(dtype, s.n, s.k, rng.next());
      constexpr std::uint32_t kRows = 41;
      const auto x = random_floats(std::size_t{kRows} * s.k, rng);
      std::vector<float> first;
      for (const Isa isa : isas()) {
        const Kernels& kernels = kernels_for(isa);
        const auto together = multiply(kernels, m, x, kRows);
        if (first.empty()) first = together;
        EXPECT_TRUE(same_bits(first, together))
            << "generic and " << to_string(isa) << " differ, " << reference::dtype_name(dtype);
        for (const std::uint32_t rows : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 12U, 13U, 16U}) {
          const std::vector<float> part(x.begin(), x.begin() + rows * s.k);
          const auto y = multiply(kernels, m, part, rows);
          EXPECT_EQ(std::memcmp(y.data(), together.data(), y.size() * 4), 0)
              << reference::dtype_name(dtype) << " n " << s.n << " k " << s.k << " rows " << rows
              << " " << to_string(isa);
        }
      }
    }
  }
}

TEST(Linear, ExtremeWeightsAndActivations_DoNotSaturate) {
  for (const std::uint32_t dtype : {INFOS_Q8_0, INFOS_Q4_0}) {
    const std::uint32_t k = 64, block = reference::block_of(dtype).bytes;
    for (const int fill : {0x00, 0x80, 0x7F, 0xFF}) {
      Matrix m(dtype, 16, k, 3);
      for (std::size_t b = 0; b < m.bytes.size(); b += block) {
        const std::uint16_t one = 0x3C00;
        std::memcpy(m.bytes.data() + b, &one, 2);
        std::memset(m.bytes.data() + b + 2, fill, block - 2);
      }
      reference::dequantise(dtype, m.bytes, m.values);
      std::fill(m.panels.begin(), m.panels.end(), 0);
      pack_panels(m.packed, m.bytes.data(), 0, 1, const_cast<std::uint8_t*>(m.packed.data));
      for (const float a : {127.0F, -127.0F}) {
        const std::vector<float> x(k, a);
        double want = 0;
        for (std::uint32_t i = 0; i < k; ++i) want += a * m.values[i];
        for (const Isa isa : isas()) {
          EXPECT_EQ(multiply(kernels_for(isa), m, x, 1)[0], static_cast<float>(want))
              << to_string(isa) << " fill " << fill;
        }
      }
    }
  }
}

TEST(Linear, ZeroRows_GiveZeroNotNan) {
  for (const std::uint32_t dtype : kWeightTypes) {
    const Matrix m(dtype, 16, 256, 4);
    for (const Isa isa : isas()) {
      for (const float y : multiply(kernels_for(isa), m, std::vector<float>(256, 0.0F), 1))
        EXPECT_EQ(y, 0.0F);
    }
  }
}

TEST(Pack, RowsReadBack_EqualTheFileFormatsMeaning) {
  Rng rng(5);
  for (const std::uint32_t dtype : kWeightTypes) {
    const std::uint32_t n = 37, k = 512;
    const Matrix m(dtype, n, k, rng.next());
    std::vector<float> packed(k), plain(k);
    for (std::uint32_t r = 0; r < n; ++r) {
      read_packed_row(m.packed, r, packed.data());
      read_row(m.packed.kind, m.bytes.data() + r * row_bytes(m.packed.kind, k), k, plain.data());
      EXPECT_TRUE(same_bits(packed, plain));
      for (std::uint32_t i = 0; i < k; ++i) {
        const double want = m.values[r * k + i];
        ASSERT_NEAR(plain[i], want, std::fabs(want) * 3e-7 + 1e-6)
            << reference::dtype_name(dtype) << " row " << r << " at " << i;
      }
    }
  }
}

}  // namespace
}  // namespace infos::cpu::test
