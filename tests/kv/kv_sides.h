// SPDX-License-Identifier: Apache-2.0
// Workers of the tests of reshard and moves: pools, one sequence's block table, the values that lie
// there, and the slow way from one to another.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/kv/kv_oracle.h"
#include "topology/base/ids.h"
#include "transports/kv/reshard.h"

namespace infos::test {

constexpr std::uint32_t kTokens = 160, kLayers = 2, kHeads = 4, kDim = 4;

/// A worker of the test: its pools and the block table of one sequence.
struct Side {
  explicit Side(const KvLayout& layout, Rng& rng) : pools(layout), table(layout.blocks) {
    std::iota(table.begin(), table.end(), 0U);
    for (std::size_t i = table.size(); i > 1; --i) std::swap(table[i - 1], table[rng.below(i)]);
  }
  std::vector<BlockId> blocks() const {
    std::vector<BlockId> out;
    for (const std::uint32_t b : table) out.push_back({b});
    return out;
  }
  Slot slot(std::uint32_t rank, std::uint32_t layer, std::uint32_t head, std::uint32_t token,
            KvHalf half) {
    const std::uint32_t size = pools.layout.block_tokens;
    return pools.slot(rank, table[token / size], layer, head, token % size, half);
  }
  /// The first rank that holds a head.
  std::uint32_t owner(std::uint32_t head) const {
    const KvLayout& l = pools.layout;
    for (std::uint32_t r = 0;; ++r)
      if (head - l.heads_of(r).begin < l.heads_of(r).count) return r;
  }
  /// The same values in every layout: they depend on the place in the sequence alone. Repeated
  /// heads hold the same.
  void fill(std::uint64_t seed) {
    const KvLayout& l = pools.layout;
    for (std::uint32_t rank = 0; rank < l.ranks; ++rank)
      for (std::uint32_t h = l.heads_of(rank).begin;
           h < l.heads_of(rank).begin + l.heads_of(rank).count; ++h)
        for (std::uint32_t y = 0; y < l.layers; ++y)
          for (std::uint32_t t = 0; t < std::min(kTokens, l.blocks * l.block_tokens); ++t)
            for (const KvHalf half : {KvHalf::k, KvHalf::v}) {
              Rng rng(seed + ((t * l.layers + y) * l.heads + h) * 2 +
                      static_cast<std::uint64_t>(half));
              random_row(l.dtype, l.head_dim, rng, slot(rank, y, h, t, half));
            }
  }
  Pools pools;
  std::vector<std::uint32_t> table;
};

/// What `to` must become.
inline void oracle(Side& from, Side& to, const KvPart& part) {
  const KvLayout &a = from.pools.layout, &b = to.pools.layout;
  std::vector<double> row(a.head_dim);
  for (std::uint32_t rank = 0; rank < b.ranks; ++rank) {
    const KvHeads heads = b.heads_of(rank);
    for (std::uint32_t h = heads.begin; h < heads.begin + heads.count; ++h)
      for (std::uint32_t y = part.layer_begin; y < part.layer_end; ++y)
        for (std::uint32_t t = part.token_begin; t < part.token_end; ++t)
          for (const KvHalf half : {KvHalf::k, KvHalf::v}) {
            const Slot source = from.slot(from.owner(h), y, h, t, half);
            const Slot sink = to.slot(rank, y, h, t, half);
            if (a.dtype == b.dtype) {
              std::memcpy(sink.row, source.row, a.row_bytes());
              if (sink.scale) std::memcpy(sink.scale, source.scale, 4);
              continue;
            }
            for (std::uint32_t i = 0; i < a.head_dim; ++i)
              row[i] = decode_element(a.dtype, source, i);
            encode_row(b.dtype, row, sink);
          }
  }
}

inline std::uint32_t blocks_for(std::uint32_t block_tokens) { return kTokens / block_tokens + 1; }

/// Axes in any order with gaps: vendors' layouts, V in a pool half of its own.
inline KvLayout odd_layout(Rng& rng) {
  KvLayout l = make_kv_layout({"m", "b", kLayers, kHeads, kDim});
  l.dtype = std::array{KvDType::f32, KvDType::f16, KvDType::bf16, KvDType::i8}[rng.below(4)];
  l.block_tokens = static_cast<std::uint32_t>(1 + rng.below(40));
  l.ranks = std::array{1U, 2U, 4U, 8U}[rng.below(4)];
  l.blocks = blocks_for(l.block_tokens);
  const auto spread = [&](KvStrides& s, std::uint64_t unit) {
    struct Along {
      std::uint64_t* stride;
      std::uint64_t extent;
    };
    std::array<Along, 5> axes{Along{&s.block, l.blocks}, Along{&s.layer, l.layers},
                              Along{&s.head, l.heads_of(0).count}, Along{&s.token, l.block_tokens},
                              Along{&s.v, 2}};
    for (std::size_t i = axes.size(); i > 1; --i) std::swap(axes[i - 1], axes[rng.below(i)]);
    for (const Along& axis : axes) {
      unit += rng.chance(0.3) ? rng.below(9) : 0;
      *axis.stride = unit;
      unit *= axis.extent;
    }
    return unit;
  };
  l.data = {};
  const std::uint64_t end = spread(l.data, l.row_bytes());
  if (l.dtype == KvDType::i8) {
    l.scale_begin = end + rng.below(64);
    spread(l.scale, sizeof(float));
  }
  return l;
}

}  // namespace infos::test
