// SPDX-License-Identifier: Apache-2.0
// Attention over the paged KV pool with online softmax. Included by each kernels_<isa>.cc inside
// its namespace.
//
// KV is visited in tiles of 16 absolute positions, in order. A tile is widened to f32 once (K
// transposed, so that lanes run over positions) and then used by every (row, head) that sees it.
// What one (row, head) computes depends on its position alone: prefill, decode and any chunking
// give the same bits. Positions that a row does not see are never multiplied.
#pragma once

struct KvTile {
  float* k;  ///< [head_dim padded, 16], transposed
  float* v;  ///< [16, head_dim padded]
  std::size_t padded;
};

/// One (row, head) between tiles.
struct AttentionState {
  float* out;  ///< [head_dim padded] sum of p v
  float* top;  ///< largest score so far
  float* sum;  ///< sum of p
};

SIMD F load_kv(const std::uint8_t* p, std::size_t at, std::size_t n, KvType type) {
  const std::size_t rest = n - at;
  if (type == KvType::f32) {
    const float* x = reinterpret_cast<const float*>(p) + at;
    return rest >= kLanes ? load(x) : load_n(x, static_cast<int>(rest));
  }
  const std::uint16_t* x = reinterpret_cast<const std::uint16_t*>(p) + at;
  std::uint16_t last[kLanes] = {};
  if (rest < kLanes) {
    __builtin_memcpy(last, x, rest * sizeof(std::uint16_t));
    x = last;
  }
  return type == KvType::f16 ? load_f16(x) : load_bf16(x);
}

/// Widens positions [begin, begin + count) of the tile; the others become zero.
static void load_tile(const AttentionArgs& a, std::size_t begin, std::size_t count,
                      const KvTile& tile) {
  const std::uint8_t* rows[kKvTile];
  for (std::size_t t = 0; t < count; ++t) {
    const std::size_t p = begin + t;
    rows[t] = a.k + a.blocks[p / a.block_tokens] * a.s_block + (p % a.block_tokens) * a.s_token;
  }
  for (std::size_t d = 0; d < a.head_dim; d += kLanes) {
    F m[kKvTile];
    for (std::size_t t = 0; t < kKvTile; ++t)
      m[t] = t < count ? load_kv(rows[t], d, a.head_dim, a.type) : zero();
    transpose(m);
    for (std::size_t i = 0; i < kLanes; ++i) store(tile.k + (d + i) * kKvTile, m[i]);
    for (std::size_t t = 0; t < kKvTile; ++t) {
      const F v = t < count ? load_kv(rows[t] + a.v_offset, d, a.head_dim, a.type) : zero();
      store(tile.v + t * tile.padded + d, v);
    }
  }
}

/// Scores of 16 positions: four chains over d, folded pairwise.
SIMD F scores(const float* q, const float* k, std::size_t head_dim) {
  F s0 = zero(), s1 = zero(), s2 = zero(), s3 = zero();
  std::size_t d = 0;
  for (; d + 4 <= head_dim; d += 4, k += 4 * kKvTile) {
    s0 = fma(set1(q[d]), load(k), s0);
    s1 = fma(set1(q[d + 1]), load(k + kKvTile), s1);
    s2 = fma(set1(q[d + 2]), load(k + 2 * kKvTile), s2);
    s3 = fma(set1(q[d + 3]), load(k + 3 * kKvTile), s3);
  }
  for (; d < head_dim; ++d, k += kKvTile) s0 = fma(set1(q[d]), load(k), s0);
  return add(add(s0, s1), add(s2, s3));
}

template <int N>
SIMD void accumulate(float* out, const float* v, std::size_t stride, const float* p, int lo, int hi,
                     float correction) {
  F acc[N];
  const F c = set1(correction);
#pragma GCC unroll 4
  for (int j = 0; j < N; ++j) acc[j] = mul(load(out + j * kLanes), c);
  for (int t = lo; t < hi; ++t) {
    const F w = set1(p[t]);
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) acc[j] = fma(w, load(v + t * stride + j * kLanes), acc[j]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < N; ++j) store(out + j * kLanes, acc[j]);
}

/// Adds positions [lo, hi) of the tile to one state.
static void step_state(const AttentionArgs& a, const float* q, const KvTile& tile,
                       const AttentionState& s, int lo, int hi) {
  const F none = set1(-__builtin_inff());
  const F x = select_range(lo, hi, mul(scores(q, tile.k, a.head_dim), set1(a.scale)), none);
  const float before = *s.top;
  const float here = max_lane(x);
  const float top = here > before ? here : before;
  float p[kKvTile];
  const F e = select_range(lo, hi, exponential(sub(x, set1(top))), zero());
  store(p, e);
  float correction = 1.0F;
  if (top > before) {  // the first tile has before = -inf, and nothing to keep
    float c[kLanes];
    store(c, exponential(set1(before - top)));
    correction = c[0];
  }
  *s.top = top;
  *s.sum = *s.sum * correction + sum(e);
  std::size_t j = 0;
  for (; j + 4 * kLanes <= tile.padded; j += 4 * kLanes) {
    accumulate<4>(s.out + j, tile.v + j, tile.padded, p, lo, hi, correction);
  }
  for (; j < tile.padded; j += kLanes)
    accumulate<1>(s.out + j, tile.v + j, tile.padded, p, lo, hi, correction);
}

/// First position that row r sees, and one beyond its last.
SIMD void visible(const AttentionArgs& a, std::size_t r, std::size_t& lo, std::size_t& hi) {
  const std::size_t position = a.first_position + r;
  hi = a.mask == 0 ? a.end_position : position + 1;
  lo = a.mask == 2 && position + 1 > a.window ? position + 1 - a.window : 0;
}

static void attention(const AttentionArgs& a) {
  const std::size_t padded = (a.head_dim + kLanes - 1) / kLanes * kLanes;
  const std::size_t heads = a.head_end - a.head_begin, states = a.rows * heads;
  float* out = a.scratch;
  float* top = out + states * padded;
  float* total = top + states;
  const KvTile tile{total + states, total + states + padded * kKvTile, padded};
  for (std::size_t i = 0; i < states * padded; ++i) out[i] = 0.0F;
  for (std::size_t i = 0; i < states; ++i) top[i] = -__builtin_inff();
  for (std::size_t i = 0; i < states; ++i) total[i] = 0.0F;

  std::size_t first, last, unused;
  visible(a, 0, first, unused);
  visible(a, a.rows - 1, unused, last);
  for (std::size_t begin = first / kKvTile * kKvTile; begin < last; begin += kKvTile) {
    load_tile(a, begin, last - begin < kKvTile ? last - begin : kKvTile, tile);
    for (std::size_t r = 0; r < a.rows; ++r) {
      std::size_t lo, hi;
      visible(a, r, lo, hi);
      if (hi <= begin || lo >= begin + kKvTile) continue;
      const int from = lo > begin ? static_cast<int>(lo - begin) : 0;
      const int to =
          hi - begin < kKvTile ? static_cast<int>(hi - begin) : static_cast<int>(kKvTile);
      for (std::size_t h = 0; h < heads; ++h) {
        const std::size_t i = r * heads + h;
        const AttentionState state{out + i * padded, top + i, total + i};
        step_state(a, a.q + r * a.ldq + (a.head_begin + h) * a.head_dim, tile, state, from, to);
      }
    }
  }
  for (std::size_t r = 0; r < a.rows; ++r) {
    for (std::size_t h = 0; h < heads; ++h) {
      const std::size_t i = r * heads + h;
      float* to = a.out + r * a.ldo + (a.head_begin + h) * a.head_dim;
      const F inverse = set1(1.0F / total[i]);
      for (std::size_t d = 0; d < a.head_dim; d += kLanes) {
        const std::size_t rest = a.head_dim - d;
        store_n(to + d, mul(load(out + i * padded + d), inverse),
                rest < kLanes ? static_cast<int>(rest) : 16);
      }
    }
  }
}
