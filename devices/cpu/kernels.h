// SPDX-License-Identifier: Apache-2.0
// The table of compute kernels, one instance per instruction set, and the memory formats that they
// share. Kernels are pure functions over memory that the caller owns; they never allocate, never
// start threads and never look at other rows: the bits of a row do not depend on how many rows are
// computed together, and they are the same for every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace infos::cpu {

enum class Isa : std::uint32_t { generic, avx2, avxvnni, avx512 };

/// Columns of one packed panel; also the number of lanes that every kernel computes in.
inline constexpr std::size_t kLanes = 16;
/// Weights and activations of the integer kernels are quantised in blocks of this many values along
/// k.
inline constexpr std::size_t kBlock = 32;

enum class WeightKind : std::uint32_t { f32, f16, bf16, q8_0, q4_0, q4_k, q6_k };
constexpr bool is_integer(WeightKind kind) { return kind >= WeightKind::q8_0; }

/// 32 activations as int8 with what the integer kernels need beside them.
struct ActBlock {
  std::int8_t q[kBlock];
  float scale;           ///< x is about q * scale
  std::int32_t comp[2];  ///< minus zero point * sum of q: over all 32 in [0], or over each half
                         ///< where scales are per 16
  float neg_sum;         ///< minus scale * sum of q: factor of the per-block minimum of Q4_K
};
static_assert(sizeof(ActBlock) == 48);

/// A weight matrix [n, k] as panels of 16 output columns with k inside, so that lanes run over
/// columns and one output element is one accumulation over k in a fixed order. Columns beyond n are
/// zero.
struct PackedMatrix {
  WeightKind kind = WeightKind::f32;
  std::uint32_t n = 0, k = 0;
  std::uint32_t panels = 0;
  std::size_t panel_bytes = 0;
  const std::uint8_t* data = nullptr;
};

/// y[rows, n] = x w^T (+ bias) (+ residual) for the panels [panel_begin, panel_end).
struct LinearArgs {
  const PackedMatrix* w = nullptr;
  const float* x = nullptr;  ///< float kinds: [rows, ldx]
  std::size_t ldx = 0;
  const ActBlock* qx = nullptr;  ///< integer kinds: [rows, ldq] blocks
  std::size_t ldq = 0;
  float* y = nullptr;
  std::size_t ldy = 0;
  const float* bias = nullptr;      ///< [n] or null
  const float* residual = nullptr;  ///< [rows, ldr] or null; may be y
  std::size_t ldr = 0;
  std::uint32_t rows = 0;
  std::uint32_t panel_begin = 0, panel_end = 0;
  std::uint8_t* scratch = nullptr;  ///< linear_scratch_bytes(rows), 64-byte aligned
};

/// Rows of one call of `linear` at most; callers cut longer batches.
inline constexpr std::uint32_t kLinearRows = 510;

/// Scratch that one call of `linear` needs for that many rows.
constexpr std::size_t linear_scratch_bytes(std::size_t rows) {
  return 48 * 1024 + (rows + 8) * 4 * kLanes * sizeof(float);
}

enum class KvType : std::uint32_t { f32, f16, bf16 };
constexpr std::size_t kv_element_bytes(KvType type) { return type == KvType::f32 ? 4 : 2; }

/// Rows of one sequence times heads [head_begin, head_end), all reading KV head `kv_head` of one
/// layer.
struct AttentionArgs {
  const float* q = nullptr;  ///< [rows, ldq]
  std::size_t ldq = 0;
  float* out = nullptr;  ///< [rows, ldo]
  std::size_t ldo = 0;
  const std::uint8_t* k = nullptr;  ///< K of (block 0, token 0, dim 0) in this layer and KV head; V
                                    ///< lies v_offset further
  std::size_t s_block = 0, s_token = 0, v_offset = 0;
  const std::uint32_t* blocks = nullptr;
  std::uint32_t block_tokens = 0;
  std::uint32_t rows = 0;
  std::uint32_t first_position = 0;  ///< of row 0; the rest follow
  std::uint32_t end_position =
      0;  ///< one beyond the last position of the sequence: what MASK_NONE sees
  std::uint32_t head_begin = 0, head_end = 0, head_dim = 0;
  std::uint32_t mask = 0;  ///< infos_mask
  std::uint32_t window = 0;
  float scale = 1.0F;
  KvType type = KvType::f32;
  float* scratch = nullptr;  ///< attention_scratch_floats(head_dim)
};

/// rows * (head_end - head_begin) of one call may not exceed this.
inline constexpr std::size_t kAttentionStates = 64;
/// KV is visited in tiles of this many absolute positions.
inline constexpr std::size_t kKvTile = 16;
constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }
constexpr std::size_t attention_scratch_floats(std::size_t head_dim) {
  return kAttentionStates * (round_up(head_dim, kLanes) + 2 + kKvTile) +
         2 * kKvTile * round_up(head_dim, kLanes) + 64;
}

struct Kernels {
  Isa isa;
  const char* name;
  /// One row of k (a multiple of 32) activations for weights of that kind.
  void (*quantise)(const float* x, ActBlock* out, std::size_t k, WeightKind kind);
  void (*linear)(const LinearArgs& args);
  /// Norm over each group of m of the n values.
  void (*rms_norm)(const float* x, const float* w, float* y, std::size_t n, std::size_t m,
                   float epsilon);
  /// cos_sin: [rotary_dim/2] cosines, then as many sines. style is infos_rope_style. y may be x.
  void (*rope)(const float* x, float* y, const float* cos_sin, std::size_t heads,
               std::size_t head_dim, std::size_t rotary_dim, std::uint32_t style);
  void (*add)(const float* a, const float* b, float* y, std::size_t n);
  void (*silu_mul)(const float* gate, const float* up, float* y, std::size_t n);
  /// y += factor * x
  void (*add_scaled)(const float* x, float factor, float* y, std::size_t n);
  /// In place: e^(x - max) / sum.
  void (*softmax)(float* x, std::size_t n);
  void (*store_kv)(const float* x, void* out, std::size_t n, KvType type);
  void (*attention)(const AttentionArgs& args);
};

/// True when this machine can run it.
bool isa_supported(Isa isa);
Isa best_isa();
const char* to_string(Isa isa);
/// Requires: isa_supported(isa).
const Kernels& kernels_for(Isa isa);

}  // namespace infos::cpu
