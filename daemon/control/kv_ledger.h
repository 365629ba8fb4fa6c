// SPDX-License-Identifier: Apache-2.0
// The two books of TransferCore. KvLedger: our blocks that fetches may write, and when nobody can
// write them any more. StampBook: our blocks that others may read, and the stamp of each one's
// tenure. Decide nothing about time, letters or peers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "daemon/control/transfer_core.h"

namespace infos {

/// RESERVED -> FILLING -> VERIFYING -> READY, and QUARANTINED: a writer ended without proof that no
/// byte of it can land; only a fence or that proof ends it. Counted in cells: one token of one
/// layer.
class KvLedger {
 public:
  /// Returns: false when a fetch has the block already; nothing is changed then.
  bool reserve(BlockId block, EffectId fetch, std::uint64_t cells);
  /// A move may write `block` from now on.
  void open_write(BlockId block);
  /// ... and can write it no more. `landed` cells of it are complete here, to be verified.
  void close_write(BlockId block, std::uint64_t landed);
  /// The writer is suspect: it ended without proof, or is being fenced. Still open.
  void quarantine(BlockId block);
  /// Its proof came: a fence or the writer's word.
  void absolve(BlockId block);
  /// Landed cells have been checked; those that are not proven must land again.
  void verified(BlockId block, std::uint64_t proven, std::uint64_t unproven);
  /// The fetch gives the block back.
  void release(BlockId block);
  KvBlockState state(BlockId block) const;
  /// Whether a move may still write it.
  bool writable(BlockId block) const;
  void list(std::vector<TransferAudit::Block>& out) const;

 private:
  struct Entry {
    EffectId fetch;
    std::uint32_t writers = 0;  ///< moves that may write, suspects included
    std::uint32_t suspects = 0;
    std::uint64_t cells = 0, landed = 0, proven = 0;
  };
  static KvBlockState state_of(const Entry& entry);
  std::map<BlockId, Entry> entries_;
};

/// A source block's tenure: from the first lease that names it to the end of the last one.
class StampBook {
 public:
  /// Generations count from `last` + 1.
  explicit StampBook(std::uint64_t last) : last_(last) {}

  struct Entry {
    StampGeneration generation;
    std::uint32_t leases = 0;
    std::uint32_t tokens = 0;     ///< that the stamps cover
    std::uint32_t requested = 0;  ///< leading layers whose stamps are written or being written
    std::uint32_t stamped = 0;    ///< leading layers whose stamps are visible
  };
  /// One more lease names the block, of which it has the first `tokens` tokens.
  /// Returns: null when it is under lease with another number of tokens.
  Entry* join(BlockId block, std::uint32_t tokens);
  /// Returns: true when it was the last lease: the tenure is over.
  bool leave(BlockId block);
  Entry* find(BlockId block);
  const Entry* find(BlockId block) const;
  std::uint32_t size() const { return static_cast<std::uint32_t>(entries_.size()); }

 private:
  std::map<BlockId, Entry> entries_;
  std::uint64_t last_;  ///< generation that was given last
};

/// Whether the stamps that came with a block's bytes prove them to be what was offered.
bool proves(const SeenStamp& seen, const SourceBlock& offered);

}  // namespace infos
