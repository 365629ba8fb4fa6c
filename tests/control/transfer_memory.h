// SPDX-License-Identifier: Apache-2.0
// The memory of transfer_world.h: KV rows and stamps as numbers, what a mover has in flight, what a
// row should hold, and which faults a seed has.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "daemon/control/transfer_core.h"
#include "topology/base/rng.h"

namespace infos::test {

constexpr std::uint32_t kLayers = 3, kRows = 8;

/// How much goes wrong; all 0: nothing.
struct TransferFaults {
  double lose = 0, twice = 0, slow = 0;              // letters
  double fail = 0, hold = 0, corrupt = 0, torn = 0;  // moves
  double die = 0, abandon = 0, end = 0, stray = 0, refetch = 0;
  bool alien = false;  ///< one worker has another model
};

/// The faults that a seed has: a few kinds, strong or weak.
inline TransferFaults swarm(std::uint64_t seed) {
  Rng rng(seed ^ 0x5EED);
  const auto some = [&](double most) { return rng.chance(0.4) ? rng.uniform() * most : 0.0; };
  TransferFaults f;
  f.lose = some(0.5), f.twice = some(0.5), f.slow = some(0.4);
  f.fail = some(0.5), f.hold = some(0.4), f.corrupt = some(0.4), f.torn = some(0.5);
  f.die = some(1.0), f.abandon = some(0.7), f.end = some(0.5), f.stray = some(0.4);
  f.refetch = some(1.0), f.alien = rng.chance(0.1);
  return f;
}

struct StampMemory {
  StampGeneration generation;
  std::uint32_t tokens = 0;
  std::uint64_t hash = 0;
};
struct Block {
  std::uint64_t rows[kLayers][kRows] = {};
  StampMemory stamps[kLayers];
  std::uint32_t references = 0;  ///< of exports and fetches
  EffectId fetch;                ///< that may write it
};
/// A move as its mover knows it.
struct Flight {
  MoveKv move;
  WorkerRef source;
  bool answered = false;
  bool lands = true;                 ///< its bytes may still land
  std::vector<std::uint64_t> bytes;  ///< [source block, layer, row]
  std::vector<StampMemory> seen;     ///< [source block, layer]
  bool read = false;
};
struct FetchRecord {
  FetchKv wish;
  std::uint64_t chain = 0;
  std::uint32_t shared = 0;
};
struct ExportRecord {
  ExportKv wish;
  std::vector<BlockId> blocks;
  std::uint64_t chain = 0;
  std::uint32_t shared = 0;  ///< leading tokens whose rows belong to the common prefix
  std::uint32_t computed = 0;
  bool leased = false;
};
/// The rows of the common prefix are the same in every request.
inline std::uint64_t content(bool alien, std::uint64_t chain, std::uint32_t shared,
                             std::uint32_t token, std::uint32_t layer) {
  const std::uint64_t c = token < shared ? 0 : chain;
  return philox(c * 2 + (alien ? 1 : 0), token, layer)[0] + 1ULL;
}
inline std::uint64_t hash(const std::uint64_t* rows, std::uint32_t n) {
  std::uint64_t h = 7 + n;
  for (std::uint32_t i = 0; i < n; ++i) h = (h ^ rows[i]) * 0x9E3779B97F4A7C15ULL + (h >> 29);
  return h;
}

/// What the mover says about the stamps that it read.
inline std::vector<SeenStamp> seen_by(const Flight& flight, std::uint32_t layers) {
  std::vector<SeenStamp> all;
  for (std::size_t b = 0; b < flight.move.sources.size(); ++b) {
    SeenStamp seen{flight.seen[b * layers].generation, UINT32_MAX, true};
    for (std::size_t l = 0; l < layers; ++l) {
      const StampMemory& s = flight.seen[b * layers + l];
      if (s.generation != seen.generation) seen.generation = StampGeneration{};
      seen.tokens = std::min(seen.tokens, s.tokens);
      seen.intact =
          seen.intact && hash(&flight.bytes[(b * layers + l) * kRows], s.tokens) == s.hash;
    }
    all.push_back(seen);
  }
  return all;
}

}  // namespace infos::test
