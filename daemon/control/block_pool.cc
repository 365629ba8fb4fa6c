// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/block_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "topology/base/check.h"

namespace infos {
namespace {

constexpr std::size_t kChangesMax = 4096;  // kept until asked for

void log_change(std::vector<BlockHash>& log, BlockHash hash) {
  if (log.size() >= kChangesMax) log.erase(log.begin(), log.begin() + kChangesMax / 2);
  log.push_back(hash);
}

/// Moves the first `limit` out of `log`.
std::vector<BlockHash> take_first(std::vector<BlockHash>& log, std::size_t limit) {
  if (log.size() <= limit) return std::exchange(log, {});
  const auto end = log.begin() + static_cast<std::ptrdiff_t>(limit);
  std::vector<BlockHash> first(log.begin(), end);
  log.erase(log.begin(), end);
  return first;
}

}  // namespace

BlockPool::BlockPool(std::uint32_t blocks, std::uint32_t block_tokens, std::uint64_t seed)
    : block_tokens_(block_tokens),
      seed_(seed),
      slots_(blocks),
      tokens_(std::size_t{blocks} * block_tokens),
      buckets_(std::bit_ceil(2 * std::max<std::size_t>(blocks, 1)), kNone),
      free_(blocks) {
  INFOS_CHECK(block_tokens > 0);
  for (std::uint32_t i = 0; i < blocks; ++i) free_[i] = blocks - 1 - i;
}

std::span<const TokenId> BlockPool::tokens_of(std::uint32_t block) const {
  return {tokens_.data() + std::size_t{block} * block_tokens_, block_tokens_};
}

std::uint32_t BlockPool::bucket(ChainId chain, std::span<const TokenId> tokens) const {
  std::uint64_t h = seed_ ^ (chain.value * 0x9e3779b97f4a7c15ULL);
  for (const TokenId t : tokens) {
    h = (h ^ static_cast<std::uint32_t>(t)) * 0xff51afd7ed558ccdULL;
    h ^= h >> 32;
  }
  return static_cast<std::uint32_t>(h) & static_cast<std::uint32_t>(buckets_.size() - 1);
}

std::uint32_t BlockPool::find(std::uint32_t bucket, ChainId chain,
                              std::span<const TokenId> tokens) const {
  for (std::uint32_t i = buckets_[bucket]; i != kNone; i = slots_[i].next) {
    if (slots_[i].parent == chain && std::ranges::equal(tokens_of(i), tokens)) return i;
  }
  return kNone;
}

/// Takes an unused published block out of the list of those.
void BlockPool::unlink(std::uint32_t block) {
  Slot& s = slots_[block];
  (s.older == kNone ? oldest_ : slots_[s.older].newer) = s.newer;
  (s.newer == kNone ? newest_ : slots_[s.newer].older) = s.older;
  s.older = s.newer = kNone;
  --cached_;
}

void BlockPool::unpublish(std::uint32_t block) {
  Slot& s = slots_[block];
  std::uint32_t* link = &buckets_[s.bucket];
  while (*link != block) link = &slots_[*link].next;
  *link = s.next;
  s.next = kNone;
  s.chain = s.parent = ChainId{};
}

void BlockPool::reference(std::uint32_t block) {
  if (slots_[block].references++ > 0) return;
  ++used_;
  if (slots_[block].chain) unlink(block);
}

std::optional<BlockId> BlockPool::allocate() {
  std::uint32_t block = kNone;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else if (oldest_ != kNone) {
    block = oldest_;
    unlink(block);
    log_change(changes_.dropped, slots_[block].hash);
    unpublish(block);
  } else {
    return std::nullopt;
  }
  slots_[block].references = 1;
  ++used_;
  return BlockId{block};
}

void BlockPool::release(BlockId block) {
  Slot& s = slots_[block.value];
  INFOS_CHECK(s.references > 0);
  if (--s.references > 0) return;
  --used_;
  if (!s.chain) {
    free_.push_back(block.value);
    return;
  }
  s.older = newest_;
  (newest_ == kNone ? oldest_ : slots_[newest_].newer) = block.value;
  newest_ = block.value;
  ++cached_;
}

std::optional<BlockId> BlockPool::acquire(ChainId chain, std::span<const TokenId> tokens) {
  const std::uint32_t found = find(bucket(chain, tokens), chain, tokens);
  if (found == kNone) return std::nullopt;
  reference(found);
  return BlockId{found};
}

ChainId BlockPool::peek(ChainId chain, std::span<const TokenId> tokens) const {
  const std::uint32_t found = find(bucket(chain, tokens), chain, tokens);
  return found == kNone ? ChainId{} : slots_[found].chain;
}

BlockId BlockPool::publish(BlockId block, ChainId chain, std::span<const TokenId> tokens,
                           BlockHash hash) {
  INFOS_CHECK(tokens.size() == block_tokens_);
  Slot& s = slots_[block.value];
  INFOS_CHECK(s.references == 1);
  INFOS_CHECK(!s.chain);
  const std::uint32_t b = bucket(chain, tokens);
  const std::uint32_t twin = find(b, chain, tokens);
  if (twin != kNone) {
    reference(twin);
    release(block);
    return BlockId{twin};
  }
  std::ranges::copy(tokens, tokens_.begin() + static_cast<std::ptrdiff_t>(std::size_t{block.value} *
                                                                          block_tokens_));
  s.chain = ChainId{++last_chain_};
  s.parent = chain;
  s.hash = hash;
  log_change(changes_.held, hash);
  s.bucket = b;
  s.next = buckets_[b];
  buckets_[b] = block.value;
  return block;
}

ChainId BlockPool::chain_of(BlockId block) const {
  INFOS_CHECK(is_published(block));
  return slots_[block.value].chain;
}

BlockHash BlockPool::hash_of(BlockId block) const {
  INFOS_CHECK(is_published(block));
  return slots_[block.value].hash;
}

BlockPool::Changes BlockPool::take_changes(std::size_t limit) {
  return {take_first(changes_.held, limit), take_first(changes_.dropped, limit)};
}

void BlockPool::announce(std::size_t count, std::vector<BlockHash>& to) {
  for (count = std::min(count, slots_.size()); count > 0; --count) {
    if (announced_ >= slots_.size()) announced_ = 0;
    const Slot& s = slots_[announced_++];
    if (s.chain) to.push_back(s.hash);
  }
}

std::string BlockPool::audit() const {
  std::uint32_t used = 0, cached = 0, listed = 0, published = 0, hashed = 0;
  for (const Slot& s : slots_) {
    used += s.references > 0 ? 1 : 0;
    published += s.chain ? 1 : 0;
    cached += s.references == 0 && s.chain ? 1 : 0;
  }
  for (std::uint32_t i = oldest_; i != kNone && listed <= total(); i = slots_[i].newer) {
    if (slots_[i].references != 0 || !slots_[i].chain)
      return "block " + std::to_string(i) + " is listed as unused but is not";
    ++listed;
  }
  for (const std::uint32_t head : buckets_) {
    for (std::uint32_t i = head; i != kNone && hashed <= total(); i = slots_[i].next) ++hashed;
  }
  for (const std::uint32_t i : free_) {
    if (slots_[i].references != 0 || slots_[i].chain)
      return "block " + std::to_string(i) + " is on the free list but is not free";
  }
  if (used != used_)
    return "used blocks: counted " + std::to_string(used) + ", kept " + std::to_string(used_);
  if (cached != cached_ || listed != cached_)
    return "cached blocks: counted " + std::to_string(cached) + ", kept " + std::to_string(cached_);
  if (published != hashed)
    return "published blocks: " + std::to_string(published) + ", findable " +
           std::to_string(hashed);
  if (used + cached + free_.size() != slots_.size()) return "used + cached + free is not the total";
  return "";
}

}  // namespace infos
