// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE: every byte is a symbol, so any text can be said.
#include "daemon/gateway/text/word_model.h"

namespace infos::text {
namespace {

class ByteBpe final : public WordModel {
 public:
  ByteBpe(const Vocabulary& vocabulary, BpeMerger merger, WholeWords whole, TokenId unknown)
      : merger_(std::move(merger)), unknown_(unknown) {
    bytes_.fill(kNoSymbol);
    const auto count = static_cast<TokenId>(vocabulary.size());
    for (TokenId id = 0; id < count; ++id) {
      const auto& token = vocabulary.at(id);
      if (token.kind != TokenKind::normal || token.bytes.size() != 1) continue;
      SymbolId& symbol = bytes_[static_cast<unsigned char>(token.bytes[0])];
      if (symbol == kNoSymbol) symbol = id;
    }
    for (TokenId id = 0; id < count; ++id) {
      const auto& token = vocabulary.at(id);
      if (token.kind != TokenKind::normal || token.bytes.size() < 2) continue;
      if (whole == WholeWords::all || merges_to(token.bytes, id))
        whole_.try_emplace(token.bytes, id);
    }
  }

  void encode(std::string_view word, std::vector<TokenId>& out) const override {
    if (const auto found = whole_.find(word); found != whole_.end()) {
      out.push_back(found->second);
      return;
    }
    thread_local std::vector<Symbol> symbols;
    split(word, symbols);
    for (const Symbol& symbol : symbols) {
      if (symbol.id != kNoSymbol) {
        out.push_back(symbol.id);
      } else if (unknown_ >= 0) {
        out.push_back(unknown_);
      }
    }
    if (symbols.capacity() > (1U << 20))
      std::vector<Symbol>().swap(symbols);  // one huge word must not stay for ever
  }

 private:
  void split(std::string_view word, std::vector<Symbol>& symbols) const {
    symbols.clear();
    symbols.reserve(word.size());
    for (std::size_t i = 0; i < word.size(); ++i)
      symbols.push_back(
          {bytes_[static_cast<unsigned char>(word[i])], static_cast<std::uint32_t>(i)});
    merger_.merge(symbols);
  }
  bool merges_to(std::string_view word, TokenId id) const {
    std::vector<Symbol> symbols;
    split(word, symbols);
    return symbols.size() == 1 && symbols[0].id == id;
  }

  BpeMerger merger_;
  std::array<SymbolId, 256> bytes_;
  std::unordered_map<std::string, TokenId, StringHash, std::equal_to<>> whole_;
  TokenId unknown_;
};

}  // namespace

std::unique_ptr<WordModel> make_byte_bpe(const Vocabulary& vocabulary, BpeMerger merger,
                                         WholeWords whole, TokenId unknown) {
  return std::make_unique<ByteBpe>(vocabulary, std::move(merger), whole, unknown);
}

}  // namespace infos::text
