// SPDX-License-Identifier: Apache-2.0
// The three ways to turn one word into tokens: byte pairs over bytes, byte pairs over characters,
// and unigram (most likely cut). Built while loading, immutable afterwards; any thread. Any bytes
// are accepted, valid UTF-8 or not.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "daemon/gateway/text/bpe.h"
#include "daemon/gateway/text/vocabulary.h"

namespace infos::text {

class WordModel {
 public:
  virtual ~WordModel() = default;
  /// Appends the tokens of `word`, which is not empty.
  virtual void encode(std::string_view word, std::vector<TokenId>& out) const = 0;
};

/// What becomes of characters that no token covers.
struct Fallback {
  std::array<TokenId, 256> bytes;  ///< -1: that byte has no token
  bool use_bytes = false;          ///< else the unknown token
  bool fuse_unknown = false;       ///< one unknown token for a run of them
  TokenId unknown = -1;            ///< -1: such characters are dropped
  Fallback() { bytes.fill(-1); }
};

/// Whole words that need no merging. `exact`: those that merging would give too; `all`: every
/// normal token wins over merging.
enum class WholeWords { exact, all };

/// Byte-level BPE (GPT-2 and its heirs). `merger` works on token ids; Vocabulary bytes are the real
/// bytes.
std::unique_ptr<WordModel> make_byte_bpe(const Vocabulary& vocabulary, BpeMerger merger,
                                         WholeWords whole, TokenId unknown);

/// BPE over characters (SentencePiece). Symbols beyond the vocabulary are characters that occur
/// only inside tokens.
struct CharBpeParts {
  BpeMerger merger;
  std::unordered_map<char32_t, SymbolId> characters;
  Fallback fallback;
  WholeWords whole = WholeWords::exact;
};
std::unique_ptr<WordModel> make_char_bpe(const Vocabulary& vocabulary, CharBpeParts parts);

/// Scores are log probabilities; tokens with `usable` false take no part.
struct UnigramPiece {
  TokenId token = -1;
  double score = 0;
};
std::unique_ptr<WordModel> make_unigram(const Vocabulary& vocabulary,
                                        const std::vector<UnigramPiece>& pieces,
                                        const Fallback& fallback);

}  // namespace infos::text
