// SPDX-License-Identifier: Apache-2.0
// SentencePiece-style BPE: symbols are characters; what no token covers falls back to byte tokens
// or the unknown token.
#include "daemon/gateway/text/utf8.h"
#include "daemon/gateway/text/word_model.h"

namespace infos::text {
namespace {

constexpr std::string_view kSpace = "\u2581";  // SentencePiece's visible space

/// Whether no token runs across the beginning of a word, so that cutting before each run of spaces
/// changes nothing.
bool tokens_respect_spaces(const Vocabulary& vocabulary) {
  for (std::size_t id = 0; id < vocabulary.size(); ++id) {
    const auto& token = vocabulary.at(static_cast<TokenId>(id));
    if (token.kind != TokenKind::normal && token.kind != TokenKind::user_defined) continue;
    for (std::size_t at = token.text.find(kSpace); at != std::string::npos;
         at = token.text.find(kSpace, at + 1)) {
      const bool at_begin = at == 0;
      const bool after_space =
          at >= kSpace.size() && token.text.compare(at - kSpace.size(), kSpace.size(), kSpace) == 0;
      if (!at_begin && !after_space) return false;
    }
  }
  return true;
}

class CharBpe final : public WordModel {
 public:
  CharBpe(const Vocabulary& vocabulary, CharBpeParts parts)
      : parts_(std::move(parts)),
        tokens_(static_cast<SymbolId>(vocabulary.size())),
        cut_at_spaces_(parts_.whole == WholeWords::exact && tokens_respect_spaces(vocabulary)) {
    ascii_.fill(kNoSymbol);
    for (const auto& [code, symbol] : parts_.characters)
      if (code < 128) ascii_[code] = symbol;
    for (TokenId id = 0; id < tokens_; ++id) {
      const auto& token = vocabulary.at(id);
      if (token.kind != TokenKind::normal || token.text.empty()) continue;
      if (parts_.whole == WholeWords::all || merges_to(token.text, id))
        whole_.try_emplace(token.text, id);
    }
  }

  void encode(std::string_view word, std::vector<TokenId>& out) const override {
    thread_local std::vector<Symbol> symbols;
    while (!word.empty()) {
      const std::string_view part = word.substr(0, cut_at_spaces_ ? first_part(word) : word.size());
      encode_part(part, symbols, out);
      word.remove_prefix(part.size());
    }
    if (symbols.capacity() > (1U << 20))
      std::vector<Symbol>().swap(symbols);  // one huge word must not stay for ever
  }

 private:
  /// Length of the leading spaces and what follows them up to the next space.
  static std::size_t first_part(std::string_view word) {
    std::size_t at = 0;
    while (word.compare(at, kSpace.size(), kSpace) == 0) at += kSpace.size();
    const std::size_t next = word.find(kSpace, at);
    return next == std::string_view::npos ? word.size() : next;
  }

  void encode_part(std::string_view part, std::vector<Symbol>& symbols,
                   std::vector<TokenId>& out) const {
    if (const auto found = whole_.find(part); found != whole_.end()) {
      out.push_back(found->second);
      return;
    }
    split(part, symbols);
    bool after_unknown = false;
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      if (symbols[i].id >= 0 && symbols[i].id < tokens_) {
        out.push_back(symbols[i].id);
        after_unknown = false;
        continue;
      }
      const std::size_t end = i + 1 < symbols.size() ? symbols[i + 1].begin : part.size();
      after_unknown =
          fall_back(part.substr(symbols[i].begin, end - symbols[i].begin), after_unknown, out);
    }
  }

  /// Returns whether the last token given out was the unknown token.
  bool fall_back(std::string_view bytes, bool after_unknown, std::vector<TokenId>& out) const {
    const Fallback& fallback = parts_.fallback;
    bool covered = fallback.use_bytes;
    for (const char c : bytes)
      covered = covered && fallback.bytes[static_cast<unsigned char>(c)] >= 0;
    if (covered) {
      for (const char c : bytes) out.push_back(fallback.bytes[static_cast<unsigned char>(c)]);
      return false;
    }
    if (fallback.unknown >= 0 && !(after_unknown && fallback.fuse_unknown))
      out.push_back(fallback.unknown);
    return true;
  }

  SymbolId symbol_of(char32_t code) const {
    if (code < 128) return ascii_[code];
    const auto found = parts_.characters.find(code);
    return found == parts_.characters.end() ? kNoSymbol : found->second;
  }

  void split(std::string_view part, std::vector<Symbol>& symbols) const {
    symbols.clear();
    for (std::size_t at = 0; at < part.size();) {
      const Decoded decoded = decode_utf8(part, at);
      symbols.push_back(
          {decoded.valid ? symbol_of(decoded.code) : kNoSymbol, static_cast<std::uint32_t>(at)});
      at += decoded.length;
    }
    parts_.merger.merge(symbols);
  }

  bool merges_to(std::string_view word, TokenId id) const {
    std::vector<Symbol> symbols;
    split(word, symbols);
    return symbols.size() == 1 && symbols[0].id == id;
  }

  CharBpeParts parts_;
  SymbolId tokens_;
  bool cut_at_spaces_;
  std::array<SymbolId, 128> ascii_;
  std::unordered_map<std::string, TokenId, StringHash, std::equal_to<>> whole_;
};

}  // namespace

std::unique_ptr<WordModel> make_char_bpe(const Vocabulary& vocabulary, CharBpeParts parts) {
  return std::make_unique<CharBpe>(vocabulary, std::move(parts));
}

}  // namespace infos::text
