// SPDX-License-Identifier: Apache-2.0
// What the world keeps of one worker process's KV transfers: its TransferCore, the stamps beside
// its KV memory, what it fetches and exports, and the moves that may still write into its blocks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "daemon/control/transfer_core.h"

namespace infos {

constexpr std::uint32_t kModelLayers = 2;

/// What the KV of a token holds in a layer.
inline std::uint64_t kv_row(std::uint64_t chain, std::uint32_t layer) {
  return chain + layer * 0x9e3779b97f4a7c15ULL;
}

struct KvStamp {
  StampGeneration generation;
  std::uint32_t tokens = 0;
  std::uint64_t hash = 0;
};

/// A move, as the network and the mover know it.
struct KvFlight {
  MoveKv move;
  std::uint32_t slot = 0;  ///< of the destination
  WorkerRef source;
  std::uint32_t from = 0, to = 0;  ///< nodes
  std::uint64_t bytes = 0;
  bool answered = false;  ///< its MoveDone was said; it may land yet
  bool torn = false;      ///< the bytes are read later than their stamps
  bool stalled = false;   ///< the link carries nothing now
  bool begun = false;
  std::vector<std::uint64_t> rows;  ///< [source block, layer, token]
  std::vector<KvStamp> seen;        ///< [source block, layer]
};

struct KvModel {
  explicit KvModel(const TransferConfig& config) : core(config) {}
  TransferCore core;
  std::vector<KvStamp> stamps;  ///< [blocks, layers]
  std::map<EffectId, FetchKv> fetches;
  std::map<EffectId, std::vector<BlockId>> exports;
  std::map<LeaseId, WorkerRef> leases;
  std::map<EffectId, WorkerRef> attached;
  Time tick = kNever;
  Time posted_to, posted_from;  ///< between the two threads of the process

  KvStamp& stamp(BlockId block, std::uint32_t layer) {
    return stamps[std::size_t{block.value} * kModelLayers + layer];
  }
};

inline std::uint64_t kv_hash(const std::uint64_t* rows, std::uint32_t tokens) {
  std::uint64_t h = 7 + tokens;
  for (std::uint32_t i = 0; i < tokens; ++i) h = (h ^ rows[i]) * 0x9e3779b97f4a7c15ULL + (h >> 29);
  return h;
}

}  // namespace infos
