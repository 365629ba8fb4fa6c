// SPDX-License-Identifier: Apache-2.0
// The one Tokenizer: added tokens, then normalising, then cutting into words, then the word model.
// Its parts are filled by the readers of the two file forms. Immutable after that; any thread.
#pragma once

#include <memory>
#include <vector>

#include "daemon/gateway/text/normalize.h"
#include "daemon/gateway/text/split.h"
#include "daemon/gateway/text/vocabulary.h"
#include "daemon/gateway/text/word_model.h"
#include "daemon/gateway/tokenizer.h"

namespace infos::text {

struct TokenizerParts {
  Vocabulary vocabulary;
  AddedTokens added;
  Normalizer normalizer;
  Splitter splitter;
  std::unique_ptr<WordModel> model;
  std::vector<TokenId> prefix;         ///< goes before every text that asks for it: the bos token
  std::size_t strip_first_spaces = 0;  ///< how many leading spaces the first piece of a text loses
  TokenId bos = -1, eos = -1;
};

std::unique_ptr<Tokenizer> make_text_tokenizer(TokenizerParts parts);

/// Errors: corrupt or unsupported, naming the GGUF key.
Result<std::unique_ptr<Tokenizer>> make_gguf_tokenizer(const TokenizerSource& source);
/// Errors: corrupt or unsupported, naming the place in tokenizer.json.
Result<std::unique_ptr<Tokenizer>> make_json_tokenizer(const TokenizerSource& source);

/// The byte-level alphabet of GPT-2: each byte is written as one printable character.
/// Returns the bytes that `text` stands for, or nothing when a character is outside of the
/// alphabet.
std::optional<std::string> bytes_of_alphabet(std::string_view text);

/// The byte of a token like "<0x0A>", or -1.
int byte_of_name(std::string_view text);

}  // namespace infos::text
