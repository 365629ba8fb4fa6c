// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/text/text_tokenizer.h"

#include <algorithm>
#include <array>

#include "daemon/gateway/text/utf8.h"

namespace infos::text {
namespace {

class TextTokenizer final : public Tokenizer {
 public:
  explicit TextTokenizer(TokenizerParts parts) : parts_(std::move(parts)) {
    INFOS_CHECK(parts_.model != nullptr);
  }

  std::vector<TokenId> encode(std::string_view text, Specials specials, AddBos bos) const override {
    std::vector<TokenId> out;
    if (bos == AddBos::if_model_does) out = parts_.prefix;
    out.reserve(out.size() + text.size() / 3 + 4);
    Splitter::At at = Splitter::At::text_begin;
    for (const Fragment& fragment : parts_.added.cut(text, specials)) {
      if (fragment.token >= 0) {
        out.push_back(fragment.token);
      } else {
        encode_plain(fragment.text, at, out);
      }
      at = Splitter::At::later;
    }
    return out;
  }

  std::string piece(TokenId token, Place place) const override {
    if (!parts_.vocabulary.has(token)) return {};
    std::string_view bytes = parts_.vocabulary.at(token).bytes;
    if (place == Place::first)
      for (std::size_t i = 0; i < parts_.strip_first_spaces && bytes.starts_with(' '); ++i)
        bytes.remove_prefix(1);
    return std::string(bytes);
  }

  std::size_t vocabulary() const override { return parts_.vocabulary.size(); }
  bool is_control(TokenId token) const override {
    return parts_.vocabulary.has(token) && parts_.vocabulary.at(token).kind == TokenKind::control;
  }
  TokenId find(std::string_view text) const override { return parts_.vocabulary.find(text); }
  TokenId bos() const override { return parts_.bos; }
  TokenId eos() const override { return parts_.eos; }

 private:
  void encode_plain(std::string_view text, Splitter::At at, std::vector<TokenId>& out) const {
    std::string normalized;
    if (!parts_.normalizer.empty()) {
      normalized = parts_.normalizer.apply(text);
      text = normalized;
    }
    Words words;
    parts_.splitter.cut(text, at, words);
    for (const Words::Range& range : words.ranges)
      parts_.model->encode(words.text.substr(range.begin, range.end - range.begin), out);
  }

  TokenizerParts parts_;
};

/// Code points of the byte-level alphabet, by byte: printable Latin-1 stands for itself, the rest
/// for U+0100 and up.
constexpr std::array<char16_t, 256> make_alphabet() {
  std::array<char16_t, 256> codes{};
  char16_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool itself =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    codes[byte] = itself ? static_cast<char16_t>(byte) : next++;
  }
  return codes;
}

constexpr std::array<std::int16_t, 0x180> make_reverse_alphabet() {
  std::array<std::int16_t, 0x180> bytes{};
  bytes.fill(-1);
  constexpr auto kCodes = make_alphabet();
  for (std::int16_t byte = 0; byte < 256; ++byte)
    bytes[kCodes[static_cast<std::size_t>(byte)]] = byte;
  return bytes;
}

}  // namespace

std::unique_ptr<Tokenizer> make_text_tokenizer(TokenizerParts parts) {
  return std::make_unique<TextTokenizer>(std::move(parts));
}

std::optional<std::string> bytes_of_alphabet(std::string_view text) {
  static constexpr auto kBytes = make_reverse_alphabet();
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Decoded decoded = decode_utf8(text, at);
    if (!decoded.valid || decoded.code >= kBytes.size() || kBytes[decoded.code] < 0)
      return std::nullopt;
    out.push_back(static_cast<char>(kBytes[decoded.code]));
    at += decoded.length;
  }
  return out;
}

int byte_of_name(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace infos::text

namespace infos {

Result<std::unique_ptr<Tokenizer>> make_tokenizer(const TokenizerSource& source) {
  if (source.gguf) return text::make_gguf_tokenizer(source);
  if (!source.tokenizer_json.empty()) return text::make_json_tokenizer(source);
  return Error{ErrorCode::unsupported,
               "the model has no tokenizer: neither tokenizer.json nor GGUF tokenizer keys"};
}

std::string Detokenizer::push(TokenId token) {
  pending_ += tokenizer_->piece(token, first_ ? Tokenizer::Place::first : Tokenizer::Place::later);
  if (!tokenizer_->is_control(token)) first_ = false;
  const std::size_t ready = pending_.size() - text::unfinished_suffix(pending_);
  std::string out = text::make_valid_utf8(std::string_view(pending_).substr(0, ready));
  pending_.erase(0, ready);
  return out;
}

std::string Detokenizer::flush() {
  std::string out = text::make_valid_utf8(pending_);
  pending_.clear();
  return out;
}

}  // namespace infos
