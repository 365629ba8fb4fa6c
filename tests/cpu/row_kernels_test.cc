// SPDX-License-Identifier: Apache-2.0
// Goal: norms, RoPE, SiLU, softmax, quantisation and KV stores are right and give the same bits on
// every instruction set. Method: f64 formulas beside them over sizes around the sixteen lanes.
#include <cmath>

#include "tests/cpu/kernel_data.h"

namespace infos::cpu::test {
namespace {

constexpr std::size_t kSizes[] = {1, 8, 15, 16, 17, 40, 64, 172};

/// Runs `run` on every instruction set and gives the first's result after comparing bits.
template <typename Run>
std::vector<float> on_all(Run run) {
  std::vector<float> first;
  for (const Isa isa : isas()) {
    const std::vector<float> y = run(kernels_for(isa));
    if (first.empty()) first = y;
    EXPECT_TRUE(same_bits(first, y)) << to_string(isa);
  }
  return first;
}

TEST(RowKernels, RmsNorm_EqualsFormulaForWholeRowsAndHeads) {
  Rng rng(1);
  for (const std::size_t m : kSizes) {
    for (const std::size_t groups : {1U, 3U}) {
      const std::size_t n = m * groups;
      const auto x = random_floats(n, rng, 3.0);
      auto w = random_floats(round_up(m, kLanes), rng);
      const auto y = on_all([&](const Kernels& k) {
        std::vector<float> out(n);
        k.rms_norm(x.data(), w.data(), out.data(), n, m, 1e-5F);
        return out;
      });
      for (std::size_t i = 0; i < n; ++i) {
        double squares = 0;
        for (std::size_t j = 0; j < m; ++j) squares += std::pow(x[i / m * m + j], 2.0);
        const double want = x[i] / std::sqrt(squares / static_cast<double>(m) + 1e-5) * w[i % m];
        ASSERT_NEAR(y[i], want, 2e-6) << "n " << n << " m " << m;
      }
    }
  }
}

TEST(RowKernels, Rope_RotatesPairsOfBothStyles) {
  Rng rng(2);
  for (const std::uint32_t style : {INFOS_ROPE_HALVES, INFOS_ROPE_ADJACENT}) {
    for (const std::size_t rotary : {2U, 8U, 14U, 16U, 48U, 128U}) {
      const std::size_t heads = 3, dim = rotary + (rotary == 14 ? 2 : 0), half = rotary / 2;
      const auto x = random_floats(heads * dim, rng);
      std::vector<float> angles;
      for (std::size_t i = 0; i < half; ++i)
        angles.push_back(static_cast<float>(std::cos(0.3 * static_cast<double>(i + 1))));
      for (std::size_t i = 0; i < half; ++i)
        angles.push_back(static_cast<float>(std::sin(0.3 * static_cast<double>(i + 1))));
      const auto y = on_all([&](const Kernels& k) {
        std::vector<float> out = x;  // in place
        k.rope(out.data(), out.data(), angles.data(), heads, dim, rotary, style);
        return out;
      });
      for (std::size_t h = 0; h < heads; ++h) {
        for (std::size_t i = 0; i < half; ++i) {
          const std::size_t a = h * dim + (style == INFOS_ROPE_HALVES ? i : 2 * i);
          const std::size_t b = a + (style == INFOS_ROPE_HALVES ? half : 1);
          const double c = angles[i], s = angles[half + i];
          ASSERT_NEAR(y[a], x[a] * c - x[b] * s, 3e-7) << "style " << style << " dim " << rotary;
          ASSERT_NEAR(y[b], x[b] * c + x[a] * s, 3e-7);
        }
        for (std::size_t i = rotary; i < dim; ++i) ASSERT_EQ(y[h * dim + i], x[h * dim + i]);
      }
    }
  }
}

TEST(RowKernels, SiluMul_EqualsFormulaAlsoFarOut) {
  Rng rng(3);
  for (const std::size_t n : kSizes) {
    auto gate = random_floats(n, rng, 20.0);
    const auto up = random_floats(n, rng);
    if (n > 3) {
      gate[0] = -200.0F;
      gate[1] = 200.0F;
      gate[2] = -87.5F;
    }
    const auto y = on_all([&](const Kernels& k) {
      std::vector<float> out(n);
      k.silu_mul(gate.data(), up.data(), out.data(), n);
      return out;
    });
    for (std::size_t i = 0; i < n; ++i) {
      const double g = gate[i], want = g / (1 + std::exp(-g)) * up[i];
      ASSERT_NEAR(y[i], want, std::fabs(want) * 1e-6 + 1e-7) << g;
    }
  }
}

TEST(RowKernels, SoftmaxAddAndAddScaled_EqualFormulas) {
  Rng rng(4);
  for (const std::size_t n : kSizes) {
    const auto a = random_floats(n, rng, 30.0), b = random_floats(n, rng);
    const auto p = on_all([&](const Kernels& k) {
      std::vector<float> out = a;
      k.softmax(out.data(), n);
      return out;
    });
    double total = 0;
    for (const float x : a) total += std::exp(static_cast<double>(x));
    for (std::size_t i = 0; i < n; ++i)
      ASSERT_NEAR(p[i], std::exp(static_cast<double>(a[i])) / total, 1e-6);
    const auto sum = on_all([&](const Kernels& k) {
      std::vector<float> out(n);
      k.add(a.data(), b.data(), out.data(), n);
      k.add_scaled(b.data(), 0.5F, out.data(), n);
      return out;
    });
    for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(sum[i], a[i] + 1.5 * b[i], 5e-6);
  }
}

TEST(RowKernels, Quantise_RoundsToTheNearestOf127Steps) {
  Rng rng(5);
  for (const WeightKind kind :
       {WeightKind::q8_0, WeightKind::q4_0, WeightKind::q4_k, WeightKind::q6_k}) {
    auto x = random_floats(128, rng, 4.0);
    std::fill_n(x.begin() + 32, 32, 0.0F);
    std::vector<std::vector<ActBlock>> all;
    for (const Isa isa : isas()) {
      all.emplace_back(4);
      kernels_for(isa).quantise(x.data(), all.back().data(), 128, kind);
      EXPECT_EQ(std::memcmp(all.back().data(), all[0].data(), 4 * sizeof(ActBlock)), 0)
          << to_string(isa);
    }
    const int zero = kind == WeightKind::q8_0   ? 128
                     : kind == WeightKind::q4_0 ? 8
                     : kind == WeightKind::q6_k ? 32
                                                : 0;
    for (int b = 0; b < 4; ++b) {
      const ActBlock& q = all[0][b];
      int low = 0, high = 0;
      for (int i = 0; i < 32; ++i) {
        ASSERT_NEAR(q.q[i] * q.scale, x[b * 32 + i], q.scale * 0.501);
        (i < 16 ? low : high) += q.q[i];
      }
      EXPECT_EQ(q.comp[0] + q.comp[1], -zero * (low + high));
      if (kind == WeightKind::q6_k) {
        EXPECT_EQ(q.comp[0], -zero * low);
      }
      EXPECT_FLOAT_EQ(q.neg_sum, -q.scale * static_cast<float>(low + high));
    }
  }
}

TEST(RowKernels, StoreKv_RoundsLikeTheReference) {
  Rng rng(6);
  for (const std::size_t n : kSizes) {
    auto x = random_floats(n, rng, 10.0);
    if (n >= 8) {
      const float special[] = {0.0F, -0.0F, 1e-8F, 6e-8F, 65519.0F, -70000.0F, 3.0e-5F, INFINITY};
      std::copy(std::begin(special), std::end(special), x.begin());
    }
    for (const Isa isa : isas()) {
      std::vector<std::uint16_t> half(n + 1, 0xABCD), brain(n + 1, 0xABCD);
      std::vector<float> full(n);
      kernels_for(isa).store_kv(x.data(), half.data(), n, KvType::f16);
      kernels_for(isa).store_kv(x.data(), brain.data(), n, KvType::bf16);
      kernels_for(isa).store_kv(x.data(), full.data(), n, KvType::f32);
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_EQ(half[i], reference::double_to_f16(x[i])) << x[i] << " " << to_string(isa);
        ASSERT_EQ(brain[i], reference::double_to_bf16(x[i])) << x[i] << " " << to_string(isa);
      }
      EXPECT_EQ(half[n], 0xABCD) << "wrote past the end";
      EXPECT_EQ(brain[n], 0xABCD) << "wrote past the end";
      EXPECT_TRUE(same_bits(full, x));
    }
  }
}

}  // namespace
}  // namespace infos::cpu::test
