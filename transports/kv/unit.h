// SPDX-License-Identifier: Apache-2.0
// The unit of proof: one layer of one source block as one rank holds it. What its bytes are, in
// which order they are hashed, and the stamp that a source keeps of it. Both sides compute the same
// from the source's layout alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "topology/base/ids.h"
#include "topology/base/result.h"
#include "topology/model/kv_layout.h"
#include "transports/kv/reshard.h"

namespace infos {

/// Says that `tokens` leading tokens of a unit are final under `generation`, and what their bytes
/// hash to. Lies in the source's stamp memory; a reader may see it half written: `check` then does
/// not fit. Little-endian.
struct KvStamp {
  std::uint64_t generation = 0;  ///< 0: not valid
  std::uint32_t tokens = 0;
  std::uint32_t version = 1;
  std::uint64_t hash = 0;   ///< XXH3-64 of the bytes
  std::uint64_t check = 0;  ///< of the fields above and of whose stamp it is
  friend bool operator==(const KvStamp&, const KvStamp&) = default;
};
static_assert(sizeof(KvStamp) == 32);

/// Names a unit.
struct KvUnit {
  std::uint32_t rank = 0, block = 0, layer = 0;
};

/// A stamp with its check.
KvStamp make_stamp(const KvUnit& unit, std::uint64_t generation, std::uint32_t tokens,
                   std::uint64_t hash);
/// Whether it is whole, of this unit, and valid.
bool is_intact(const KvStamp& stamp, const KvUnit& unit);
/// Bytes of one rank's stamps: [blocks, layers].
std::uint64_t stamp_table_bytes(const KvLayout& layout);
/// Where a unit's stamp lies in its rank's table.
std::uint64_t stamp_offset(const KvLayout& layout, const KvUnit& unit);

/// The same KV without gaps, in the order of the source's bytes: where fetched units wait until
/// they are proven and converted. One block; a rank's unit is [layer * unit_bytes, + unit_bytes).
KvLayout staging_layout(const KvLayout& source);
/// Bytes of one full unit, without gaps.
std::uint64_t unit_bytes(const KvLayout& layout);

/// Hashes a unit's bytes in ascending order of their place in the source's pool, wherever they lie
/// now. Borrows its scratch: no allocation in steady state.
class KvUnitHash {
 public:
  /// The program's `from` is the source's layout; `to` is where the bytes lie.
  KvUnitHash(const ReshardProgram& program, std::vector<KvCopy>& scratch)
      : program_(program), runs_(scratch) {}
  /// `part` names one layer and one rank; `bases` are of the pools of `to`, by rank. Copies to
  /// other ranks that repeat the same head are left out.
  std::uint64_t operator()(const KvPart& part, const KvTables& tables,
                           std::span<const std::byte* const> bases);

 private:
  const ReshardProgram& program_;
  std::vector<KvCopy>& runs_;
};

}  // namespace infos
