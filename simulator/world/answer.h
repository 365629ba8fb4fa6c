// SPDX-License-Identifier: Apache-2.0
// The modelled model: the next token is a pure function of all tokens before it and the request's
// seed, so that whoever knows the prompt can check an answer. The state after a token is its
// "chain"; a KV row holds the chain at its position.
#pragma once

#include <cstdint>
#include <span>

#include "topology/base/ids.h"

namespace infos {

constexpr std::uint64_t kChainStart = 0x6a09e667f3bcc908ULL;
constexpr std::uint32_t kVocabulary = 256;

inline std::uint64_t chain_next(std::uint64_t chain, TokenId token) {
  const std::uint64_t h = (chain ^ static_cast<std::uint32_t>(token)) * 0x9e3779b97f4a7c15ULL;
  return h ^ (h >> 31);
}

inline std::uint64_t chain_of(std::span<const TokenId> tokens) {
  std::uint64_t chain = kChainStart;
  for (const TokenId token : tokens) chain = chain_next(chain, token);
  return chain;
}

/// The token that follows.
inline TokenId draw(std::uint64_t chain, std::uint64_t seed) {
  return static_cast<TokenId>(((chain ^ seed) * 0xd6e8feb86659fd93ULL) >> 40) %
         static_cast<TokenId>(kVocabulary);
}

}  // namespace infos
