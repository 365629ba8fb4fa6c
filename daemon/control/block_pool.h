// SPDX-License-Identifier: Apache-2.0
// BlockPool accounts for the KV blocks of one worker: who uses a block, which full blocks hold a
// prefix that others may reuse, and which of the unused ones goes first (least recently used). It
// never holds KV itself. A hit is proven by comparing the tokens and the identity of the block
// before, never by a hash alone. Every operation is O(1) in history.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "topology/base/ids.h"

namespace infos {

/// Identity of a published block's content: the chain of tokens from the start of a sequence to its
/// end. Never reused in one pool; 0 is the empty chain.
using ChainId = Id<struct ChainTag>;

class BlockPool {
 public:
  BlockPool(std::uint32_t blocks, std::uint32_t block_tokens, std::uint64_t seed);

  std::uint32_t total() const { return static_cast<std::uint32_t>(slots_.size()); }
  std::uint32_t used() const { return used_; }      ///< referenced
  std::uint32_t cached() const { return cached_; }  ///< not referenced, content reusable
  std::uint32_t available() const { return total() - used_; }

  /// A block for one owner; takes the least recently used cached one when no other is free. None:
  /// all are referenced.
  std::optional<BlockId> allocate();
  /// Drops one reference. Callers release the tail of a sequence first, so that a prefix outlives
  /// what follows it.
  void release(BlockId block);

  /// Takes a reference on the published block that continues `chain` with exactly `tokens`.
  std::optional<BlockId> acquire(ChainId chain, std::span<const TokenId> tokens);
  /// The same without a reference: the chain that goes on there, none if nothing does.
  ChainId peek(ChainId chain, std::span<const TokenId> tokens) const;
  /// Makes a full, computed, referenced block findable, under the name `hash` to others. If an
  /// equal one is published already, the reference moves to that one and the given block is freed.
  /// Returns: the block to use from now on.
  BlockId publish(BlockId block, ChainId chain, std::span<const TokenId> tokens, BlockHash hash);
  /// Requires: `block` is published.
  ChainId chain_of(BlockId block) const;

  /// Requires: `block` is published.
  BlockHash hash_of(BlockId block) const;

  /// What became findable, or was forgotten, since it was last asked: at most `limit` of each. When
  /// far too many gather, the oldest are lost.
  struct Changes {
    std::vector<BlockHash> held;
    std::vector<BlockHash> dropped;
  };
  Changes take_changes(std::size_t limit);
  /// Hashes of published blocks among the next `count` blocks, going round.
  void announce(std::size_t count, std::vector<BlockHash>& to);

  std::uint32_t references(BlockId block) const { return slots_[block.value].references; }
  bool is_published(BlockId block) const { return slots_[block.value].chain.value != 0; }
  /// Counts everything anew. Returns: what is wrong, empty if nothing. For tests and the simulator;
  /// O(blocks).
  std::string audit() const;

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Slot {
    ChainId chain;  ///< of the content; none: not published
    ChainId parent;
    BlockHash hash;
    std::uint32_t references = 0;
    std::uint32_t newer = kNone;  ///< neighbours in the list of unused published blocks
    std::uint32_t older = kNone;
    std::uint32_t next = kNone;  ///< in its hash bucket
    std::uint32_t bucket = 0;
  };
  std::uint32_t bucket(ChainId chain, std::span<const TokenId> tokens) const;
  std::uint32_t find(std::uint32_t bucket, ChainId chain, std::span<const TokenId> tokens) const;
  std::span<const TokenId> tokens_of(std::uint32_t block) const;
  void unlink(std::uint32_t block);
  void unpublish(std::uint32_t block);
  void reference(std::uint32_t block);

  std::uint32_t block_tokens_;
  std::uint64_t seed_;
  std::vector<Slot> slots_;
  std::vector<TokenId> tokens_;         ///< [blocks, block_tokens], of published blocks
  std::vector<std::uint32_t> buckets_;  ///< a power of two
  std::vector<std::uint32_t> free_;     ///< neither referenced nor published
  std::uint32_t oldest_ = kNone;
  std::uint32_t newest_ = kNone;
  std::uint32_t used_ = 0;
  std::uint32_t cached_ = 0;
  std::uint64_t last_chain_ = 0;
  Changes changes_;
  std::uint32_t announced_ = 0;  ///< where announce() goes on
};

}  // namespace infos
