// SPDX-License-Identifier: Apache-2.0
// Matrix products over packed panels. Included by each kernels_<isa>.cc inside its namespace.
//
// A tile is up to kRows rows times up to kPanels panels held in registers. Float kinds: one FMA per
// k, in order. Integer kinds: per block of 32 an exact int32 sum, then one FMA with weight scale *
// activation scale. Few rows read the packed panels as they are; many rows first widen a chunk of k
// into scratch that stays in cache: the same numbers, so the same bits. Partial sums between chunks
// are kept in f32 in scratch, which changes nothing either. While a chunk is multiplied the next
// one is prefetched, so that memory and arithmetic overlap.
#pragma once

/// Rows from which widening a chunk once pays.
constexpr std::uint32_t kWidenRows = 5;
/// How far ahead of the multiplication packed panels are fetched: hardware prefetch stops at every
/// 4 KiB page. Measured on one core of a Xeon of 2023 (cpu_bench, 1 to 8 KiB): q4_0 one row 756 us
/// without, 690 us with 2 KiB.
constexpr std::size_t kAheadBytes = 2048;
/// k per chunk.
constexpr std::size_t kFloatChunk = 128, kIntChunk = 512;

// ---- float kinds
// ---- float kinds ----

struct WeightF32 {
  static constexpr std::size_t kBytes = 4;
  SIMD F get(const std::uint8_t* p) { return load(reinterpret_cast<const float*>(p)); }
};
struct WeightF16 {
  static constexpr std::size_t kBytes = 2;
  SIMD F get(const std::uint8_t* p) { return load_f16(reinterpret_cast<const std::uint16_t*>(p)); }
};
struct WeightBf16 {
  static constexpr std::size_t kBytes = 2;
  SIMD F get(const std::uint8_t* p) { return load_bf16(reinterpret_cast<const std::uint16_t*>(p)); }
};

/// What to fetch while a tile runs: the same number of lines in each turn of its loop, from each of
/// its panels.
struct Ahead {
  const std::uint8_t* from = nullptr;
  std::size_t stride = 0;  ///< between panels
  int lines = 0;           ///< per turn
};

template <int NR>
SIMD void fetch(const Ahead& ahead, std::size_t turn) {
  for (int i = 0; i < ahead.lines; ++i) {
#pragma GCC unroll 4
    for (int n = 0; n < NR; ++n)
      prefetch(ahead.from + n * ahead.stride + (turn * ahead.lines + i) * 64);
  }
}

/// Lines per turn when `bytes` are spread over `tiles` tiles of `turns` turns.
SIMD int lines_per_turn(std::size_t bytes, std::size_t tiles, std::size_t turns) {
  return static_cast<int>((bytes / 64 + tiles * turns - 1) / (tiles * turns));
}

/// c[MR, NR*16] = (init or 0) + x[MR, k] w. Panels lie `stride` bytes apart.
template <class W, int MR, int NR>
static void tile_float(const std::uint8_t* w, std::size_t stride, const float* x, std::size_t ldx,
                       std::size_t k, const float* init, float* c, const Ahead& ahead) {
  F acc[MR][NR];
#pragma GCC unroll 12
  for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 4
    for (int n = 0; n < NR; ++n) acc[r][n] = init ? load(init + (r * NR + n) * 16) : zero();
  }
  for (std::size_t i = 0; i < k; ++i) {
    if (ahead.lines && i % 8 == 0) fetch<NR>(ahead, i / 8);
    F weight[NR];
#pragma GCC unroll 4
    for (int n = 0; n < NR; ++n) weight[n] = W::get(w + n * stride + i * kLanes * W::kBytes);
#pragma GCC unroll 12
    for (int r = 0; r < MR; ++r) {
      const F a = set1(x[r * ldx + i]);
#pragma GCC unroll 4
      for (int n = 0; n < NR; ++n) acc[r][n] = fma(a, weight[n], acc[r][n]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 4
    for (int n = 0; n < NR; ++n) store(c + (r * NR + n) * 16, acc[r][n]);
  }
}

/// The tile of that many rows; `kMost` bounds what is instantiated.
template <class W, int NR, int kMost, int MR = 1>
static void rows_float(int rows, const std::uint8_t* w, std::size_t stride, const float* x,
                       std::size_t ldx, std::size_t k, const float* init, float* c,
                       const Ahead& ahead) {
  if (rows == MR) return tile_float<W, MR, NR>(w, stride, x, ldx, k, init, c, ahead);
  if constexpr (MR < kMost)
    rows_float<W, NR, kMost, MR + 1>(rows, w, stride, x, ldx, k, init, c, ahead);
}

/// Adds bias and residual and writes the columns that exist.
static void finish_tile(const LinearArgs& a, const float* c, std::uint32_t row, int rows,
                        std::uint32_t panel, int panels) {
  for (int r = 0; r < rows; ++r) {
    for (int n = 0; n < panels; ++n) {
      const std::size_t column = (panel + n) * kLanes;
      if (column >= a.w->n) continue;
      const std::size_t rest = a.w->n - column;
      const int count = rest < kLanes ? static_cast<int>(rest) : 16;
      F v = load(c + (r * panels + n) * kLanes);
      if (a.bias) v = add(v, load_n(a.bias + column, count));
      if (a.residual) v = add(v, load_n(a.residual + (row + r) * a.ldr + column, count));
      store_n(a.y + (row + r) * a.ldy + column, v, count);
    }
  }
}

/// Rows of one tile when `rows` are cut into as few and as even tiles as `most` allows.
SIMD std::uint32_t even_tile(std::uint32_t rows, int most) {
  const std::uint32_t tiles =
      (rows + static_cast<std::uint32_t>(most) - 1) / static_cast<std::uint32_t>(most);
  return (rows + tiles - 1) / tiles;
}

SIMD int at_most(std::uint32_t n, std::uint32_t limit) {
  return static_cast<int>(n < limit ? n : limit);
}

/// Panels as they are, once for each tile of rows.
template <class W, int NR>
static void direct_float(const LinearArgs& a, std::uint32_t panel) {
  const std::size_t stride = a.w->panel_bytes;
  float* c = reinterpret_cast<float*>(a.scratch);
  const std::uint32_t tile = even_tile(a.rows, kFloatRows);
  for (std::uint32_t r = 0; r < a.rows; r += tile) {
    const int rows = at_most(a.rows - r, tile);
    const std::uint8_t* w = a.w->data + panel * stride;
    const Ahead ahead{w + kAheadBytes, stride,
                      r == 0 ? static_cast<int>(8 * kLanes * W::kBytes / 64) : 0};
    rows_float<W, NR, kFloatRows>(rows, w, stride, a.x + r * a.ldx, a.ldx, a.w->k, nullptr, c,
                                  ahead);
    finish_tile(a, c, r, rows, panel, NR);
  }
}

/// Chunks of k widened to f32 once for all rows.
template <class W, int NR>
static void widened_float(const LinearArgs& a, std::uint32_t panel) {
  const std::size_t k = a.w->k, stride = a.w->panel_bytes;
  const std::uint8_t* w = a.w->data + panel * stride;
  float* wide = reinterpret_cast<float*>(a.scratch);
  float* c = wide + NR * kLanes * kFloatChunk;
  constexpr std::size_t row_floats = NR * kLanes, chunk_bytes = kFloatChunk * kLanes * W::kBytes;
  const std::uint32_t tile = even_tile(a.rows, kFloatRows), tiles = (a.rows + tile - 1) / tile;
  for (std::size_t k0 = 0; k0 < k; k0 += kFloatChunk) {
    const std::size_t span = k - k0 < kFloatChunk ? k - k0 : kFloatChunk;
    for (int n = 0; n < NR; ++n) {
      for (std::size_t i = 0; i < span; ++i) {
        store(wide + (n * kFloatChunk + i) * kLanes,
              W::get(w + n * stride + (k0 + i) * kLanes * W::kBytes));
      }
    }
    Ahead ahead{w + (k0 + span) * kLanes * W::kBytes, stride,
                lines_per_turn(chunk_bytes, tiles, kFloatChunk / 8)};
    if (k0 + span == k) ahead.from = w + NR * stride;
    for (std::uint32_t r = 0; r < a.rows; r += tile) {
      const int rows = at_most(a.rows - r, tile);
      float* partial = c + r * row_floats;
      rows_float<WeightF32, NR, kFloatRows>(rows, reinterpret_cast<const std::uint8_t*>(wide),
                                            kFloatChunk * kLanes * 4, a.x + r * a.ldx + k0, a.ldx,
                                            span, k0 ? partial : nullptr, partial, ahead);
      ahead.from += kFloatChunk / 8 * 64 * static_cast<std::size_t>(ahead.lines);
      if (k0 + span == k) finish_tile(a, partial, r, rows, panel, NR);
    }
  }
}

template <class W>
static void linear_float(const LinearArgs& a) {
  std::uint32_t p = a.panel_begin;
  if (a.rows >= kWidenRows) {
    for (; p + kFloatPanels <= a.panel_end; p += kFloatPanels) widened_float<W, kFloatPanels>(a, p);
    for (; p < a.panel_end; ++p) widened_float<W, 1>(a, p);
    return;
  }
  for (; p + kFloatPanels <= a.panel_end; p += kFloatPanels) direct_float<W, kFloatPanels>(a, p);
  for (; p < a.panel_end; ++p) direct_float<W, 1>(a, p);
}

// ---- integer kinds
// ---- integer kinds ----
// Within a panel: the quants of all blocks, then the scales of all blocks, then super-block factors
// (Q4_K, Q6_K). Each kind gives, for block b: quad(j), the weights of k = 4j .. 4j+3 as unsigned
// bytes; scale(half); and for Q4_K minimum.

constexpr std::int32_t kNibbles = 0x0F0F0F0F;

SIMD F half_scale(const std::uint8_t* p) {
  return load_f16(reinterpret_cast<const std::uint16_t*>(p));
}

struct PanelQ8 {
  static constexpr bool kWide = true, kMinimum = false;
  static constexpr int kHalves = 1;
  static constexpr std::size_t kQuantBytes = 512;  ///< per block
  const std::uint8_t *q, *s;
  SIMD PanelQ8 at(const std::uint8_t* p, std::size_t k, std::size_t b) {
    return {p + b * 512, p + k * 16 + b * 32};
  }
  template <int J>
  [[gnu::always_inline]] I quad(std::size_t b) const {
    return load_i(q + b * 512 + J * 64);
  }
  template <int H>
  [[gnu::always_inline]] F scale(std::size_t b) const {
    return half_scale(s + b * 32);
  }
  [[gnu::always_inline]] F minimum(std::size_t) const { return zero(); }
};

template <int J>
SIMD I nibble_quad(const std::uint8_t* q) {
  if constexpr (J < 4) {
    return and_i(load_i(q + J * 64), kNibbles);
  } else {
    return and_i(shift_right<4>(load_i(q + (J - 4) * 64)), kNibbles);
  }
}

struct PanelQ40 {
  static constexpr bool kWide = false, kMinimum = false;
  static constexpr int kHalves = 1;
  static constexpr std::size_t kQuantBytes = 256;  ///< per block
  const std::uint8_t *q, *s;
  SIMD PanelQ40 at(const std::uint8_t* p, std::size_t k, std::size_t b) {
    return {p + b * 256, p + k * 8 + b * 32};
  }
  template <int J>
  [[gnu::always_inline]] I quad(std::size_t b) const {
    return nibble_quad<J>(q + b * 256);
  }
  template <int H>
  [[gnu::always_inline]] F scale(std::size_t b) const {
    return half_scale(s + b * 32);
  }
  [[gnu::always_inline]] F minimum(std::size_t) const { return zero(); }
};

struct PanelQ4K {
  static constexpr bool kWide = false, kMinimum = true;
  static constexpr int kHalves = 1;
  static constexpr std::size_t kQuantBytes = 256;  ///< per block
  const std::uint8_t *q, *s, *d;
  SIMD PanelQ4K at(const std::uint8_t* p, std::size_t k, std::size_t b) {
    return {p + b * 256, p + k * 8 + b * 32, p + k * 9 + b / 8 * 64};
  }
  template <int J>
  [[gnu::always_inline]] I quad(std::size_t b) const {
    return nibble_quad<J>(q + b * 256);
  }
  template <int H>
  [[gnu::always_inline]] F scale(std::size_t b) const {
    return mul(half_scale(d + b / 8 * 64), load_u8(s + b * 32));
  }
  [[gnu::always_inline]] F minimum(std::size_t b) const {
    return mul(half_scale(d + b / 8 * 64 + 32), load_u8(s + b * 32 + 16));
  }
};

struct PanelQ6K {
  static constexpr bool kWide = false, kMinimum = false;
  static constexpr int kHalves = 2;
  static constexpr std::size_t kQuantBytes = 256;  ///< per block
  const std::uint8_t *q, *h, *s, *d;
  SIMD PanelQ6K at(const std::uint8_t* p, std::size_t k, std::size_t b) {
    return {p + b * 256, p + k * 8 + b * 128, p + k * 12 + b * 32, p + k * 13 + b / 8 * 32};
  }
  template <int J>
  [[gnu::always_inline]] I quad(std::size_t b) const {
    constexpr int shift = 2 * (J / 2);
    const I high = and_i(shift_right<shift>(load_i(h + b * 128 + (J % 2) * 64)), 0x03030303);
    return or_i(nibble_quad<J>(q + b * 256), shift_left<4>(high));
  }
  template <int H>
  [[gnu::always_inline]] F scale(std::size_t b) const {
    return mul(half_scale(d + b / 8 * 32), load_s8(s + b * 32 + H * 16));
  }
  [[gnu::always_inline]] F minimum(std::size_t) const { return zero(); }
};

/// A chunk of P widened: bytes, then f32 scales, then f32 minima.
template <class P>
struct PanelWide {
  static constexpr bool kWide = P::kWide, kMinimum = P::kMinimum;
  static constexpr int kHalves = P::kHalves;
  static constexpr std::size_t kBlocks = kIntChunk / kBlock;
  static constexpr std::size_t kBytes = kBlocks * (512 + 64 * kHalves + (kMinimum ? 64 : 0));
  const std::uint8_t* q;
  template <int J>
  [[gnu::always_inline]] I quad(std::size_t b) const {
    return load_i(q + b * 512 + J * 64);
  }
  template <int H>
  [[gnu::always_inline]] F scale(std::size_t b) const {
    return load(reinterpret_cast<const float*>(q + kBlocks * 512 + (b * kHalves + H) * 64));
  }
  [[gnu::always_inline]] F minimum(std::size_t b) const {
    return load(reinterpret_cast<const float*>(q + kBlocks * (512 + 64 * kHalves) + b * 64));
  }
  SIMD void widen(const P& p, std::size_t blocks, std::uint8_t* to) {
    for (std::size_t b = 0; b < blocks; ++b) {
      std::uint8_t* t = to + b * 512;
      store_i(t, p.template quad<0>(b));
      store_i(t + 64, p.template quad<1>(b));
      store_i(t + 128, p.template quad<2>(b));
      store_i(t + 192, p.template quad<3>(b));
      store_i(t + 256, p.template quad<4>(b));
      store_i(t + 320, p.template quad<5>(b));
      store_i(t + 384, p.template quad<6>(b));
      store_i(t + 448, p.template quad<7>(b));
      float* s = reinterpret_cast<float*>(to + kBlocks * 512) + b * kHalves * kLanes;
      store(s, p.template scale<0>(b));
      if constexpr (kHalves == 2) store(s + kLanes, p.template scale<1>(b));
      if constexpr (kMinimum) {
        store(reinterpret_cast<float*>(to + kBlocks * (512 + 64 * kHalves)) + b * kLanes,
              p.minimum(b));
      }
    }
  }
};

template <class P, int MR, int NR, int J>
SIMD void dot_quad(const P (&w)[NR], const ActBlock* x, std::size_t ldq, std::size_t b,
                   I (&s)[MR][NR]) {
  I weight[NR];
#pragma GCC unroll 4
  for (int n = 0; n < NR; ++n) weight[n] = w[n].template quad<J>(b);
#pragma GCC unroll 12
  for (int r = 0; r < MR; ++r) {
    std::int32_t four;
    __builtin_memcpy(&four, x[r * ldq + b].q + 4 * J, 4);
    const I a = set1_i(four);
#pragma GCC unroll 4
    for (int n = 0; n < NR; ++n)
      s[r][n] = P::kWide ? dot_wide(s[r][n], weight[n], a) : dot(s[r][n], weight[n], a);
  }
}

/// One scale's worth of block b: 32 values of k, or the 16 of half H.
template <class P, int MR, int NR, int H>
SIMD void dot_half_block(const P (&w)[NR], const ActBlock* x, std::size_t ldq, std::size_t b,
                         F (&acc)[MR][NR]) {
  I s[MR][NR];
#pragma GCC unroll 12
  for (int r = 0; r < MR; ++r) {
    const std::int32_t comp = x[r * ldq + b].comp[H];
#pragma GCC unroll 4
    for (int n = 0; n < NR; ++n) s[r][n] = P::kWide ? start_wide(comp) : set1_i(comp);
  }
  constexpr int J = H * 4;
  dot_quad<P, MR, NR, J>(w, x, ldq, b, s);
  dot_quad<P, MR, NR, J + 1>(w, x, ldq, b, s);
  dot_quad<P, MR, NR, J + 2>(w, x, ldq, b, s);
  dot_quad<P, MR, NR, J + 3>(w, x, ldq, b, s);
  if constexpr (P::kHalves == 1) {
    dot_quad<P, MR, NR, 4>(w, x, ldq, b, s);
    dot_quad<P, MR, NR, 5>(w, x, ldq, b, s);
    dot_quad<P, MR, NR, 6>(w, x, ldq, b, s);
    dot_quad<P, MR, NR, 7>(w, x, ldq, b, s);
  }
#pragma GCC unroll 4
  for (int n = 0; n < NR; ++n) {
    const F scale = w[n].template scale<H>(b);
#pragma GCC unroll 12
    for (int r = 0; r < MR; ++r) {
      acc[r][n] = fma(to_float(s[r][n]), mul(scale, set1(x[r * ldq + b].scale)), acc[r][n]);
    }
  }
}

template <class P, int MR, int NR>
static void tile_int(const P (&w)[NR], const ActBlock* x, std::size_t ldq, std::size_t blocks,
                     const float* init, float* c, const Ahead& ahead) {
  F acc[MR][NR];
#pragma GCC unroll 12
  for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 4
    for (int n = 0; n < NR; ++n) acc[r][n] = init ? load(init + (r * NR + n) * 16) : zero();
  }
  for (std::size_t b = 0; b < blocks; ++b) {
    if (ahead.lines) fetch<NR>(ahead, b);
    dot_half_block<P, MR, NR, 0>(w, x, ldq, b, acc);
    if constexpr (P::kHalves == 2) dot_half_block<P, MR, NR, 1>(w, x, ldq, b, acc);
    if constexpr (P::kMinimum) {
#pragma GCC unroll 4
      for (int n = 0; n < NR; ++n) {
        const F minimum = w[n].minimum(b);
#pragma GCC unroll 12
        for (int r = 0; r < MR; ++r)
          acc[r][n] = fma(minimum, set1(x[r * ldq + b].neg_sum), acc[r][n]);
      }
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 4
    for (int n = 0; n < NR; ++n) store(c + (r * NR + n) * 16, acc[r][n]);
  }
}

template <class P, int NR, int kMost, int MR = 1>
static void rows_int(int rows, const P (&w)[NR], const ActBlock* x, std::size_t ldq,
                     std::size_t blocks, const float* init, float* c, const Ahead& ahead) {
  if (rows == MR) return tile_int<P, MR, NR>(w, x, ldq, blocks, init, c, ahead);
  if constexpr (MR < kMost) rows_int<P, NR, kMost, MR + 1>(rows, w, x, ldq, blocks, init, c, ahead);
}

template <class P, int NR>
static void direct_int(const LinearArgs& a, std::uint32_t panel) {
  const std::size_t k = a.w->k, stride = a.w->panel_bytes;
  float* c = reinterpret_cast<float*>(a.scratch);
  const std::uint32_t tile = even_tile(a.rows, kIntRows);
  P w[NR];
  for (int n = 0; n < NR; ++n) w[n] = P::at(a.w->data + (panel + n) * stride, k, 0);
  for (std::uint32_t r = 0; r < a.rows; r += tile) {
    const int rows = at_most(a.rows - r, tile);
    const Ahead ahead{w[0].q + kAheadBytes, stride,
                      r == 0 ? static_cast<int>(P::kQuantBytes / 64) : 0};
    rows_int<P, NR, kIntRows>(rows, w, a.qx + r * a.ldq, a.ldq, k / kBlock, nullptr, c, ahead);
    finish_tile(a, c, r, rows, panel, NR);
  }
}

template <class P, int NR>
static void widened_int(const LinearArgs& a, std::uint32_t panel) {
  using Wide = PanelWide<P>;
  const std::size_t k = a.w->k, blocks = k / kBlock, stride = a.w->panel_bytes;
  const std::uint8_t* base = a.w->data + panel * stride;
  std::uint8_t* room = a.scratch;
  float* c = reinterpret_cast<float*>(room + NR * Wide::kBytes);
  const std::uint32_t tile = even_tile(a.rows, kIntRows), tiles = (a.rows + tile - 1) / tile;
  for (std::size_t b0 = 0; b0 < blocks; b0 += Wide::kBlocks) {
    const std::size_t span = blocks - b0 < Wide::kBlocks ? blocks - b0 : Wide::kBlocks;
    Wide w[NR];
    for (int n = 0; n < NR; ++n) {
      Wide::widen(P::at(base + n * stride, k, b0), span, room + n * Wide::kBytes);
      w[n].q = room + n * Wide::kBytes;
    }
    Ahead ahead{P::at(base, k, b0 + span).q, stride,
                lines_per_turn(Wide::kBlocks * P::kQuantBytes, tiles, Wide::kBlocks)};
    if (b0 + span == blocks) ahead.from = base + NR * stride;
    for (std::uint32_t r = 0; r < a.rows; r += tile) {
      const int rows = at_most(a.rows - r, tile);
      float* partial = c + r * NR * kLanes;
      rows_int<Wide, NR, kIntRows>(rows, w, a.qx + r * a.ldq + b0, a.ldq, span,
                                   b0 ? partial : nullptr, partial, ahead);
      ahead.from += Wide::kBlocks * 64 * static_cast<std::size_t>(ahead.lines);
      if (b0 + span == blocks) finish_tile(a, partial, r, rows, panel, NR);
    }
  }
}

template <class P>
static void linear_int(const LinearArgs& a) {
  std::uint32_t p = a.panel_begin;
  if (a.rows >= kWidenRows) {
    for (; p + kIntPanels <= a.panel_end; p += kIntPanels) widened_int<P, kIntPanels>(a, p);
    for (; p < a.panel_end; ++p) widened_int<P, 1>(a, p);
    return;
  }
  for (; p + kIntPanels <= a.panel_end; p += kIntPanels) direct_int<P, kIntPanels>(a, p);
  for (; p < a.panel_end; ++p) direct_int<P, 1>(a, p);
}

static void linear(const LinearArgs& a) {
  switch (a.w->kind) {
    case WeightKind::f32:
      return linear_float<WeightF32>(a);
    case WeightKind::f16:
      return linear_float<WeightF16>(a);
    case WeightKind::bf16:
      return linear_float<WeightBf16>(a);
    case WeightKind::q8_0:
      return linear_int<PanelQ8>(a);
    case WeightKind::q4_0:
      return linear_int<PanelQ40>(a);
    case WeightKind::q4_k:
      return linear_int<PanelQ4K>(a);
    case WeightKind::q6_k:
      return linear_int<PanelQ6K>(a);
  }
}
