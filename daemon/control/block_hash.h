// SPDX-License-Identifier: Apache-2.0
// The name of a KV block's content that all nodes agree on: a hash of the chain of tokens from the
// start of a sequence to the block's end. Only ever a hint where KV may be found; what is used is
// proven by other means. Any thread.
#pragma once

#include <span>

#include "topology/base/ids.h"

namespace infos {

/// Where every chain of blocks of this size begins; chains of different sizes never meet.
BlockHash block_hash_root(std::uint32_t block_tokens);
/// The block that continues `parent` with exactly `tokens`. XXH3-64, the same on every machine of
/// one byte order. Never 0.
BlockHash block_hash(BlockHash parent, std::span<const TokenId> tokens);

}  // namespace infos
