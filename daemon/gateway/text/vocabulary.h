// SPDX-License-Identifier: Apache-2.0
// The tokens of a model: their texts in the file, the bytes they stand for, their kinds; and the
// search for added tokens in running text. Filled while loading, immutable afterwards; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "daemon/gateway/tokenizer.h"
#include "topology/base/ids.h"

namespace infos::text {

/// Bounds on what a file may claim; the largest real vocabularies are about 260,000 tokens of up to
/// 512 bytes.
constexpr std::size_t kVocabularyMax = 4'000'000;
constexpr std::size_t kTokenBytesMax = 8192;
constexpr std::size_t kAddedTokenBytesMax = 256;

enum class TokenKind : std::uint8_t { normal, unknown, control, user_defined, unused, byte };

/// Lets maps keyed by std::string be searched with a string_view.
struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};

class Vocabulary {
 public:
  struct Token {
    std::string text;   ///< as in the file
    std::string bytes;  ///< what it contributes to running text; empty for control tokens
    TokenKind kind = TokenKind::unused;
  };
  /// Sets token `id`, growing the table as needed. The first of several equal texts keeps the name.
  void set(TokenId id, Token token);
  bool has(TokenId id) const { return id >= 0 && static_cast<std::size_t>(id) < tokens_.size(); }
  const Token& at(TokenId id) const { return tokens_[static_cast<std::size_t>(id)]; }
  Token& at(TokenId id) { return tokens_[static_cast<std::size_t>(id)]; }
  std::size_t size() const { return tokens_.size(); }
  /// -1 when there is none.
  TokenId find(std::string_view text) const;

 private:
  std::vector<Token> tokens_;
  std::unordered_map<std::string, TokenId, StringHash, std::equal_to<>> ids_;
};

/// A token that is looked for in the text before anything else happens to it.
struct AddedToken {
  TokenId id = -1;
  std::string text;
  enum class Class {
    control,
    user_defined
  } kind = Class::control;  ///< control tokens can be asked to stay plain text
  enum class Strip { no, yes };
  Strip left = Strip::no, right = Strip::no;  ///< swallow the white space before or after
};

/// A stretch of the input: plain text, or one added token.
struct Fragment {
  std::string_view text;
  TokenId token = -1;  ///< -1: plain text
};

/// Finds added tokens: leftmost first, longest among those.
class AddedTokens {
 public:
  /// Requires: a text of 1 to kAddedTokenBytesMax bytes.
  void add(AddedToken token);
  /// Cuts `text`; empty stretches are left out.
  std::vector<Fragment> cut(std::string_view text, Tokenizer::Specials specials) const;
  bool empty() const { return tokens_.empty(); }

 private:
  struct Node {
    std::map<unsigned char, std::uint32_t> next;
    std::int32_t token = -1;  ///< index into tokens_
  };
  const AddedToken* match(std::string_view text, std::size_t at,
                          Tokenizer::Specials specials) const;
  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{1};
  std::array<std::uint32_t, 256> first_{};  ///< node after the first byte, 0: none
};

}  // namespace infos::text
