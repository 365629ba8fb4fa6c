// SPDX-License-Identifier: Apache-2.0
// KvLayout: where each element of a worker's KV cache lies, as a plain value that peers exchange
// once and reshard programs are compiled from. Decides whether KV in one layout may be used in
// another, and names the field in which two layouts differ. Pure; touches no KV memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "topology/base/result.h"

namespace infos {

/// How one element is stored. `i8` holds q with value q * scale: one f32 scale for each (block,
/// layer, head, token) of K and another of V.
enum class KvDType : std::uint8_t { f32, f16, bf16, i8 };
const char* to_string(KvDType dtype);
/// Bytes of one element, scales apart.
std::uint32_t kv_element_bytes(KvDType dtype);

/// Distances in bytes. `v` is from an element of K to the same element of V.
struct KvStrides {
  std::uint64_t block = 0, layer = 0, head = 0, token = 0, v = 0;
  friend bool operator==(const KvStrides&, const KvStrides&) = default;
};

/// Which half of a pair.
enum class KvHalf : std::uint8_t { k, v };

/// The heads that one rank holds, of the whole model's.
struct KvHeads {
  std::uint32_t begin = 0, count = 0;
};

/// A worker's layout. Each of its `ranks` tensor-parallel ranks has a pool of its own with the same
/// strides; rank r holds heads [r * heads / ranks, (r + 1) * heads / ranks), or one head repeated
/// by ranks / heads ranks when there are fewer heads than ranks. The head_dim elements of a (token,
/// head) are always adjacent.
struct KvLayout {
  std::string model;  ///< identity of weights and configuration
  std::string build;  ///< of the plugin that computes the KV
  std::uint32_t layers = 0;
  std::uint32_t heads = 0;  ///< KV heads of the whole model
  std::uint32_t head_dim = 0;
  KvDType dtype = KvDType::f16;
  std::uint32_t block_tokens = 0;
  std::uint32_t ranks = 1;
  std::uint32_t blocks = 0;  ///< in each rank's pool
  KvStrides data;            ///< from the pool's base
  KvStrides scale;           ///< of i8's scales, from scale_begin; all 0 otherwise
  std::uint64_t scale_begin = 0;

  friend bool operator==(const KvLayout&, const KvLayout&) = default;

  std::uint64_t row_bytes() const {
    return std::uint64_t{head_dim} * kv_element_bytes(dtype);
  }  ///< one token of one head, K or V
  KvHeads heads_of(std::uint32_t rank) const;
  /// Bytes of one rank's pool, from its base past its last element.
  std::uint64_t pool_bytes() const;
  /// Bytes of one token, all layers, K and V, all ranks.
  std::uint64_t bytes_per_token() const;
  /// Where a row begins in the pool of a rank that holds the head. `head` is of the whole model.
  std::uint64_t row_offset(std::uint32_t rank, std::uint32_t block, std::uint32_t layer,
                           std::uint32_t head, std::uint32_t token, KvHalf half) const;
  /// Likewise its scale. Requires: dtype i8.
  std::uint64_t scale_offset(std::uint32_t rank, std::uint32_t block, std::uint32_t layer,
                             std::uint32_t head, std::uint32_t token, KvHalf half) const;

  /// For layouts that come from a peer or a plugin: every number within its bounds, no overflow.
  /// Errors: invalid_argument, naming the field, its value and the values allowed.
  Status validate() const;
};

// ---- the usual layouts ----

/// What lies next to what inside a block of a layer.
enum class KvOrder : std::uint8_t { token_major, head_major };
/// V after all of K (of the block and layer), or each row of V after its row of K.
enum class KvPlacing : std::uint8_t { apart, interleaved };

struct KvShape {
  std::string model, build;
  std::uint32_t layers = 1, heads = 1, head_dim = 1;
  KvDType dtype = KvDType::f16;
  std::uint32_t block_tokens = 16;
  std::uint32_t ranks = 1;
  std::uint32_t blocks = 1;
  KvOrder order = KvOrder::head_major;
  KvPlacing placing = KvPlacing::apart;
};

/// Dense: [block, layer, ...], the scales of a block's layer after its data. The CPU backend's
/// layout is head_major, apart. Requires: a shape whose layout passes validate().
KvLayout make_kv_layout(const KvShape& shape);

// ---- two layouts ----

/// How exactly a model's KV must be kept: its `numerics`.
enum class KvPolicy : std::uint8_t { exact, bounded, permissive };
const char* to_string(KvPolicy policy);

/// For people: "f16 block 16 head-major K and V apart TP 2".
std::string describe(const KvLayout& layout);

/// The part of it that is about order: "head-major K and V apart".
std::string order_words(const KvLayout& layout);

/// The first field in which two workers' layouts differ, as "block_tokens 16 against 32"; none when
/// bytes can be taken over as they are. Pool sizes (`blocks`) may differ.
std::optional<std::string> compare(const KvLayout& a, const KvLayout& b);

enum class KvFidelity : std::uint8_t {
  exact,  ///< every value arrives as it was
  lossy,  ///< values are rounded to the destination's dtype
};

/// What converting values costs. Exact: equal dtypes, f16 to f32, bf16 to f32. All else rounds; i8
/// too, whose products q * scale need more bits than f32 has.
KvFidelity conversion_fidelity(KvDType from, KvDType to);

/// Whether KV in layout `from` may be used by a worker with layout `to`.
///   exact:      only exact conversions, and only between equal plugin builds
///   bounded:    also rounding to a 16-bit float or from i8
///   permissive: also to i8
/// Errors: invalid_argument: another model (its hash or a number of its shape differs);
///   unsupported: the policy forbids it. One sentence that names both layouts.
Result<KvFidelity> can_reshard(const KvLayout& from, const KvLayout& to, KvPolicy policy);

// ---- text ----

/// One line "kv1;model=...;..."; decode(encode(x)) == x for printable words. Unknown keys are
/// skipped, so that a later version may add some.
std::string encode(const KvLayout& layout);
/// Errors: corrupt (not such a line), invalid_argument (as validate()).
Result<KvLayout> decode_kv_layout(std::string_view text);

}  // namespace infos
