// SPDX-License-Identifier: Apache-2.0
// ReshardProgram: how the KV of a sequence in one layout becomes the same KV in another: unequal
// block sizes, tensor-parallel shards, orders and dtypes. Compiled once per pair of layouts, then
// applied to block tables. Pure: says which bytes go where, and converts memory that it is given;
// never asks whether it may (can_reshard does).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "topology/base/ids.h"
#include "topology/base/result.h"
#include "topology/model/kv_layout.h"

namespace infos {

constexpr std::uint32_t kAllRanks = UINT32_MAX;

/// Tokens [token_begin, token_end) of a sequence, layers [layer_begin, layer_end).
struct KvPart {
  std::uint32_t token_begin = 0, token_end = 0;
  std::uint32_t layer_begin = 0, layer_end = 0;
  std::uint32_t from_rank = kAllRanks;  ///< only what this rank of the source holds
};

/// The block tables of both sides. Entry i holds the tokens from begin + i * block_tokens of its
/// side; begins are multiples of block_tokens.
struct KvTables {
  std::span<const BlockId> from, to;
  std::uint32_t from_begin = 0, to_begin = 0;
  std::uint32_t from_layer = 0, to_layer = 0;  ///< the layer at which that side's memory begins
};

/// `bytes` bytes to take over as they are. Offsets are from the bases of the ranks' pools.
struct KvCopy {
  std::uint32_t from_rank = 0, to_rank = 0;
  std::uint64_t from = 0, to = 0, bytes = 0;
  friend bool operator==(const KvCopy&, const KvCopy&) = default;
};

/// `elements` adjacent elements to convert. With i8 on a side: exactly one row, whose scale lies
/// there.
struct KvConversion {
  std::uint32_t from_rank = 0, to_rank = 0;
  std::uint64_t from = 0, to = 0, elements = 0;
  std::uint64_t from_scale = 0, to_scale = 0;
};

class ReshardProgram {
 public:
  /// Errors: invalid_argument: the layouts are not of one model, or one is not valid.
  static Result<ReshardProgram> compile(const KvLayout& from, const KvLayout& to);

  const KvLayout& from() const { return from_; }
  const KvLayout& to() const { return to_; }
  /// Bytes are taken over as they are.
  bool copies_only() const { return from_.dtype == to_.dtype; }
  /// A head of the source goes to several ranks of the destination.
  bool repeats() const { return to_.ranks > to_.heads; }
  /// Whether anything is read from this rank of the source: the first of those that hold a head.
  bool reads(std::uint32_t from_rank) const;

  /// Appends the copies of a part, adjacent ones merged. Each destination byte once.
  /// Requires: copies_only(), a part within the layers and both tables.
  void copies(const KvPart& part, const KvTables& tables, std::vector<KvCopy>& out) const;
  /// Likewise where dtypes differ. Requires: !copies_only().
  void conversions(const KvPart& part, const KvTables& tables,
                   std::vector<KvConversion>& out) const;

  /// Does what copies() or conversions() say. `from` and `to` are the pools' bases by rank; a pool
  /// of the source that is not there is left out.
  void run(const KvPart& part, const KvTables& tables, std::span<const std::byte* const> from,
           std::span<std::byte* const> to) const;

 private:
  /// Along an axis: the distance on either side, of the data and of the scales.
  struct Axis {
    std::uint64_t from = 0, to = 0, from_scale = 0, to_scale = 0;
    std::uint8_t of = 0;  ///< AxisOf
  };
  /// Heads that one rank of the source hands to one of the destination.
  struct Pair {
    std::uint32_t from_rank, to_rank;
    std::uint32_t from_head, to_head;  ///< the first, as each rank counts its own
    std::uint32_t heads;
  };
  struct Box;

  template <typename Emit>
  void walk(const KvPart& part, const KvTables& tables, const Emit& emit) const;
  template <typename Emit>
  void each_copy(const KvPart& part, const KvTables& tables, const Emit& emit) const;
  template <typename Emit>
  void convert_box(const Box& box, const Emit& emit) const;
  template <typename Emit>
  void each_conversion(const KvPart& part, const KvTables& tables, const Emit& emit) const;

  KvLayout from_, to_;
  std::vector<Pair> pairs_;
  std::vector<Axis> data_, scale_;  ///< innermost (smallest distance in the source) first
};

}  // namespace infos
