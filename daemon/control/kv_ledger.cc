// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/kv_ledger.h"

#include "daemon/control/mutant.h"
#include "topology/base/check.h"

namespace infos {

bool KvLedger::reserve(BlockId block, EffectId fetch, std::uint64_t cells) {
  Entry entry;
  entry.fetch = fetch;
  entry.cells = cells;
  return entries_.emplace(block, entry).second;
}

void KvLedger::open_write(BlockId block) { ++entries_.at(block).writers; }

void KvLedger::close_write(BlockId block, std::uint64_t landed) {
  Entry& entry = entries_.at(block);
  INFOS_CHECK(entry.writers > entry.suspects);
  --entry.writers;
  entry.landed += landed;
}

void KvLedger::quarantine(BlockId block) { ++entries_.at(block).suspects; }

void KvLedger::absolve(BlockId block) {
  Entry& entry = entries_.at(block);
  INFOS_CHECK(entry.suspects > 0);
  --entry.suspects;
}

void KvLedger::verified(BlockId block, std::uint64_t proven, std::uint64_t unproven) {
  Entry& entry = entries_.at(block);
  INFOS_CHECK(entry.landed >= entry.proven + proven + unproven);
  entry.proven += proven;
  entry.landed -= unproven;
}

void KvLedger::release(BlockId block) { entries_.erase(block); }

KvBlockState KvLedger::state_of(const Entry& entry) {
  if (entry.suspects > 0) return KvBlockState::quarantined;
  if (entry.cells > 0 && entry.proven == entry.cells) return KvBlockState::ready;
  if (entry.writers == 0 && entry.landed > entry.proven) return KvBlockState::verifying;
  return entry.writers > 0 || entry.landed > 0 ? KvBlockState::filling : KvBlockState::reserved;
}

KvBlockState KvLedger::state(BlockId block) const { return state_of(entries_.at(block)); }

bool KvLedger::writable(BlockId block) const {
  const auto at = entries_.find(block);
  return at != entries_.end() && at->second.writers > 0;
}

void KvLedger::list(std::vector<TransferAudit::Block>& out) const {
  for (const auto& [block, entry] : entries_) out.push_back({block, entry.fetch, state_of(entry)});
}

StampBook::Entry* StampBook::join(BlockId block, std::uint32_t tokens) {
  const auto [at, is_new] = entries_.try_emplace(block);
  Entry& entry = at->second;
  if (is_new) {
    entry.generation.value = planted(Mutant::generation_not_renewed) ? block.value + 1ULL : ++last_;
    entry.tokens = tokens;
  } else if (entry.tokens != tokens) {
    return nullptr;
  }
  ++entry.leases;
  return &entry;
}

bool StampBook::leave(BlockId block) {
  const auto at = entries_.find(block);
  INFOS_CHECK(at != entries_.end());
  if (--at->second.leases > 0) return false;
  entries_.erase(at);
  return true;
}

StampBook::Entry* StampBook::find(BlockId block) {
  const auto at = entries_.find(block);
  return at == entries_.end() ? nullptr : &at->second;
}
const StampBook::Entry* StampBook::find(BlockId block) const {
  const auto at = entries_.find(block);
  return at == entries_.end() ? nullptr : &at->second;
}

bool proves(const SeenStamp& seen, const SourceBlock& offered) {
  if (!seen.intact && !planted(Mutant::stamp_bytes_unchecked)) return false;
  if (planted(Mutant::stamp_generation_unchecked)) return true;
  return offered.generation.value != 0 && seen.generation == offered.generation &&
         seen.tokens >= offered.tokens;
}

}  // namespace infos
