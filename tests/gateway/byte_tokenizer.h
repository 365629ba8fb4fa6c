// SPDX-License-Identifier: Apache-2.0
// A tokenizer for tests in which every byte is a token, so that a test decides where the tokens of
// a text are cut; ids from 300 on stand for longer pieces given by the test.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/gateway/tokenizer.h"
#include "topology/model/sampling.h"

namespace infos::test {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr TokenId kBos = 256, kEos = 257, kWords = 300;
  explicit ByteTokenizer(std::vector<std::string> words = {}) : words_(std::move(words)) {}

  std::vector<TokenId> encode(std::string_view text, Specials, AddBos bos) const override {
    std::vector<TokenId> tokens;
    if (bos == AddBos::if_model_does) tokens.push_back(kBos);
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  std::string piece(TokenId token, Place) const override {
    if (token >= 0 && token < 256) return std::string(1, static_cast<char>(token));
    if (token >= kWords && token < kWords + static_cast<TokenId>(words_.size())) {
      return words_[static_cast<std::size_t>(token - kWords)];
    }
    return "";
  }
  std::size_t vocabulary() const override { return 300 + words_.size(); }
  bool is_control(TokenId token) const override { return token >= 256 && token < kWords; }
  TokenId find(std::string_view) const override { return -1; }
  TokenId bos() const override { return kBos; }
  TokenId eos() const override { return kEos; }

 private:
  std::vector<std::string> words_;
};

/// The bytes of `text` as sampled tokens, each with logprob -0.5.
inline std::vector<SampledToken> sampled(std::string_view text) {
  std::vector<SampledToken> out;
  for (const char c : text) out.push_back({static_cast<unsigned char>(c), -0.5F, {}});
  return out;
}

}  // namespace infos::test
