// SPDX-License-Identifier: Apache-2.0
// Text to tokens and back. Immutable after load; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "devices/engine/checkpoint.h"
#include "topology/base/ids.h"
#include "topology/base/result.h"

namespace infos {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  enum class Specials {
    parse,
    as_text
  };  ///< whether "<|eot|>" in the text is the special token or plain characters
  enum class AddBos { if_model_does, no };

  /// Any bytes are accepted. Those that are not UTF-8 keep their value where the model has byte
  /// tokens, and are the unknown token (or, without one, nothing) where it has none.
  virtual std::vector<TokenId> encode(std::string_view text, Specials specials,
                                      AddBos bos) const = 0;
  /// The bytes that a token stands for in running text; empty for control tokens. May be a part of
  /// a UTF-8 character. `first` matters to SentencePiece models, whose first token loses its
  /// leading space.
  enum class Place { first, later };
  virtual std::string piece(TokenId token, Place place) const = 0;
  virtual std::size_t vocabulary() const = 0;
  virtual bool is_control(TokenId token) const = 0;
  /// The token with exactly this text (special tokens), or -1.
  virtual TokenId find(std::string_view text) const = 0;
  virtual TokenId bos() const = 0;
  virtual TokenId eos() const = 0;
};

/// Errors: corrupt, unsupported: naming the field of the file.
Result<std::unique_ptr<Tokenizer>> make_tokenizer(const TokenizerSource& source);

/// Turns a stream of tokens into whole UTF-8 text: holds back the bytes of an unfinished character,
/// and replaces what can never become one by U+FFFD.
class Detokenizer {
 public:
  /// `start`: whether the stream is a text of its own, or goes on after text that was there before
  /// (`later`).
  explicit Detokenizer(const Tokenizer& tokenizer, Tokenizer::Place start = Tokenizer::Place::first)
      : tokenizer_(&tokenizer), first_(start == Tokenizer::Place::first) {}
  /// The text that `token` completes; may be empty.
  std::string push(TokenId token);
  /// What is still held back, made valid. After this the stream is over.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;
  bool first_;
};

}  // namespace infos
