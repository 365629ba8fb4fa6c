// SPDX-License-Identifier: Apache-2.0
// KvExporter: the stamps of a worker's own KV pools, in memory that peers read. Writes and
// invalidates them; knows nothing of leases, and which blocks are final is said by its caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "topology/base/ids.h"
#include "topology/base/result.h"
#include "transports/kv/unit.h"

namespace infos {

/// A layer range of one block whose bytes are final.
struct KvFinal {
  BlockId block;
  std::uint64_t generation = 0;  ///< of its contents; never 0
  std::uint32_t tokens = 0;      ///< leading tokens that are final
  std::uint32_t layer_begin = 0, layer_end = 0;
};

/// One thread writes; peers read at any time, through whatever link. What they rely on:
///  - A stamp's words are written one by one, `generation` last (release); a reader that catches a
///    mixture sees that `check` does not fit.
///  - unstamp() has cleared `generation` (release) before it returns, so before anything that its
///    caller does next, such as giving the block back to be written.
///  - A stamp is whole before the caller announces it, and its hash is over bytes that were final
///    before stamp() was called. A reader takes bytes only if they hash to the stamp that names the
///    generation which was announced: whatever else it caught in between, it refuses.
class KvExporter {
 public:
  /// `pools` and `stamps` by rank, stamps of stamp_table_bytes(layout) each, zeroed; both outlive
  /// this. Errors: invalid_argument: their number or size does not fit the layout.
  static Result<KvExporter> create(const KvLayout& layout, std::vector<const std::byte*> pools,
                                   std::vector<std::span<std::byte>> stamps);

  const KvLayout& layout() const { return self_.from(); }
  /// Hashes and stamps all ranks. Requires: ranges within the layout.
  void stamp(const KvFinal& part);
  /// Makes all stamps of a block invalid.
  void unstamp(BlockId block);

 private:
  KvExporter(ReshardProgram self, std::vector<const std::byte*> pools,
             std::vector<std::span<std::byte>> stamps);
  void write(const KvUnit& unit, const KvStamp& stamp);

  ReshardProgram self_;  ///< from the layout to itself
  std::vector<const std::byte*> pools_;
  std::vector<std::span<std::byte>> stamps_;
  std::vector<KvCopy> scratch_;
};

}  // namespace infos
