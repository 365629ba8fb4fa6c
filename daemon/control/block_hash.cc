// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/block_hash.h"

#include <xxhash.h>

namespace infos {

BlockHash block_hash_root(std::uint32_t block_tokens) {
  return BlockHash{0x9e3779b97f4a7c15ULL * (block_tokens + 1ULL)};
}

BlockHash block_hash(BlockHash parent, std::span<const TokenId> tokens) {
  const std::uint64_t h = XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), parent.value);
  return BlockHash{h == 0 ? 1 : h};
}

}  // namespace infos
