// SPDX-License-Identifier: Apache-2.0
// Goal: attention over paged KV is right for every mask, group size, head size and KV type, and a
// row's bits do not depend on how a prompt is cut or how blocks lie. Method: an f64 softmax over
// the stored values; then bit comparisons.
#include <cmath>

#include "tests/cpu/kernel_data.h"

namespace infos::cpu::test {
namespace {

struct Case {
  std::uint32_t group, head_dim, tokens, mask, window;
  KvType type;
};

/// One KV head of one sequence in a pool of scattered blocks.
struct PagedKv {
  Case c;
  std::uint32_t block_tokens;
  std::vector<std::uint32_t> blocks;
  std::vector<std::uint8_t> pool;
  std::vector<float> q;
  std::size_t s_token, s_block, v_offset;

  PagedKv(const Case& of, std::uint32_t tokens_per_block, std::uint64_t seed)
      : c(of), block_tokens(tokens_per_block) {
    Rng rng(seed);
    s_token = c.head_dim * kv_element_bytes(c.type);
    v_offset = s_token * block_tokens;
    s_block = 2 * v_offset;
    const std::uint32_t n = (c.tokens + block_tokens - 1) / block_tokens;
    for (std::uint32_t i = 0; i < n; ++i) blocks.push_back((n - 1 - i) * 2);
    pool.assign(2 * n * s_block, 0xFF);  // NaN wherever nothing was stored
    q = random_floats(std::size_t{c.tokens} * c.group * c.head_dim, rng);
    for (std::uint32_t p = 0; p < c.tokens; ++p) {
      for (const std::size_t part : {std::size_t{0}, v_offset}) {
        const auto x = random_floats(c.head_dim, rng);
        kernels_for(Isa::generic).store_kv(x.data(), at(p) + part, c.head_dim, c.type);
      }
    }
  }
  std::uint8_t* at(std::uint32_t p) {
    return pool.data() + blocks[p / block_tokens] * s_block + p % block_tokens * s_token;
  }
  double value(std::uint32_t p, std::uint32_t d, std::size_t part) {
    const std::uint32_t dtype = c.type == KvType::f32   ? INFOS_F32
                                : c.type == KvType::f16 ? INFOS_F16
                                                        : INFOS_BF16;
    return reference::load_element(
        dtype, reinterpret_cast<const std::byte*>(at(p) + part + d * kv_element_bytes(c.type)));
  }

  /// Rows [first, first + rows), cut into calls of at most `most` rows.
  std::vector<float> run(const Kernels& kernels, std::uint32_t first, std::uint32_t rows,
                         std::uint32_t most) {
    const std::size_t width = std::size_t{c.group} * c.head_dim;
    std::vector<float> out(rows * width), scratch(attention_scratch_floats(c.head_dim));
    for (std::uint32_t r = 0; r < rows; r += most) {
      AttentionArgs a;
      a.rows = std::min(most, rows - r);
      a.q = q.data() + (first + r) * width;
      a.ldq = a.ldo = width;
      a.out = out.data() + r * width;
      a.k = pool.data();
      a.s_block = s_block;
      a.s_token = s_token;
      a.v_offset = v_offset;
      a.blocks = blocks.data();
      a.block_tokens = block_tokens;
      a.first_position = first + r;
      a.end_position = c.tokens;
      a.head_end = c.group;
      a.head_dim = c.head_dim;
      a.mask = c.mask;
      a.window = c.window;
      a.scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim));
      a.type = c.type;
      a.scratch = scratch.data();
      kernels.attention(a);
    }
    return out;
  }

  double expected(std::uint32_t row, std::uint32_t head, std::uint32_t dim) {
    const std::uint32_t lo =
        c.mask == INFOS_MASK_WINDOW && row + 1 > c.window ? row + 1 - c.window : 0;
    const std::uint32_t hi = c.mask == INFOS_MASK_NONE ? c.tokens : row + 1;
    double total = 0, sum = 0;
    for (std::uint32_t p = lo; p < hi; ++p) {
      double s = 0;
      for (std::uint32_t d = 0; d < c.head_dim; ++d)
        s += q[(row * c.group + head) * c.head_dim + d] * value(p, d, 0);
      const double e = std::exp(s / std::sqrt(static_cast<double>(c.head_dim)));
      total += e;
      sum += e * value(p, dim, v_offset);
    }
    return sum / total;
  }
};

constexpr Case kCases[] = {
    {1, 8, 5, INFOS_MASK_CAUSAL, 0, KvType::f32},
    {4, 64, 50, INFOS_MASK_CAUSAL, 0, KvType::f16},
    {7, 64, 33, INFOS_MASK_CAUSAL, 0, KvType::bf16},
    {2, 80, 70, INFOS_MASK_WINDOW, 20, KvType::f16},
    {1, 128, 40, INFOS_MASK_WINDOW, 1, KvType::f32},
    {3, 20, 35, INFOS_MASK_NONE, 0, KvType::f16},
    {64, 16, 17, INFOS_MASK_CAUSAL, 0, KvType::f32},
};

TEST(Attention, EqualsF64Softmax) {
  for (const Case& c : kCases) {
    PagedKv s(c, 16, 7);
    for (const Isa isa : isas()) {
      const auto y = s.run(kernels_for(isa), 0, c.tokens, 64 / c.group);
      for (std::uint32_t r = 0; r < c.tokens; r += 3) {
        for (std::uint32_t i = 0; i < c.group * c.head_dim; i += 5) {
          ASSERT_NEAR(y[r * c.group * c.head_dim + i],
                      s.expected(r, i / c.head_dim, i % c.head_dim), 3e-6)
              << "head_dim " << c.head_dim << " row " << r << " " << to_string(isa);
        }
      }
    }
  }
}

TEST(Attention, RowsCutInAnyWayAndBlocksOfAnySize_GiveTheSameBits) {
  for (const Case& c : kCases) {
    PagedKv s(c, 16, 8);
    const auto whole = s.run(kernels_for(Isa::generic), 0, c.tokens, 64 / c.group);
    for (const Isa isa : isas()) {
      for (const std::uint32_t most : {1U, std::min(3U, 64 / c.group), 64 / c.group}) {
        EXPECT_TRUE(same_bits(whole, s.run(kernels_for(isa), 0, c.tokens, most)))
            << to_string(isa) << " rows " << most;
      }
      for (const std::uint32_t block_tokens : {1U, 5U, 128U}) {
        PagedKv other(c, block_tokens, 8);
        EXPECT_TRUE(same_bits(whole, other.run(kernels_for(isa), 0, c.tokens, 64 / c.group)))
            << "block " << block_tokens;
      }
    }
  }
}

}  // namespace
}  // namespace infos::cpu::test
