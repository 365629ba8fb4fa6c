// SPDX-License-Identifier: Apache-2.0
// Builds a tokenizer from GGUF's tokenizer keys: "llama" (SentencePiece BPE by scores), "gpt2"
// (byte-level BPE by merges) and "t5" (unigram). Errors name the key.
#include <algorithm>
#include <cmath>
#include <map>

#include "daemon/gateway/text/text_tokenizer.h"
#include "daemon/gateway/text/utf8.h"

namespace infos::text {
namespace {

using Gguf = TokenizerSource::Gguf;

constexpr std::string_view kSpace = "\u2581";
constexpr std::size_t kMergedBytesMax =
    512;  // a longer token is only found whole: no real one is merged from parts

Error corrupt(const std::string& message) { return Error{ErrorCode::corrupt, message}; }

Status check_sizes(const Gguf& gguf) {
  const std::size_t count = gguf.tokens.size();
  if (count == 0) return corrupt("tokenizer.ggml.tokens: empty, want at least one token");
  if (count > kVocabularyMax)
    return corrupt("tokenizer.ggml.tokens: " + std::to_string(count) + " tokens, want at most " +
                   std::to_string(kVocabularyMax));
  if (!gguf.scores.empty() && gguf.scores.size() != count)
    return corrupt("tokenizer.ggml.scores: " + std::to_string(gguf.scores.size()) +
                   " values, want " + std::to_string(count));
  if (!gguf.types.empty() && gguf.types.size() != count)
    return corrupt("tokenizer.ggml.token_type: " + std::to_string(gguf.types.size()) +
                   " values, want " + std::to_string(count));
  for (std::size_t i = 0; i < gguf.scores.size(); ++i)
    if (!std::isfinite(gguf.scores[i]))
      return corrupt("tokenizer.ggml.scores: value " + std::to_string(i) +
                     " is not a finite number");
  for (std::size_t i = 0; i < count; ++i)
    if (gguf.tokens[i].size() > kTokenBytesMax)
      return corrupt("tokenizer.ggml.tokens: token " + std::to_string(i) + " has " +
                     std::to_string(gguf.tokens[i].size()) + " bytes, want at most " +
                     std::to_string(kTokenBytesMax));
  return {};
}

Status check_id(const char* key, TokenId id, std::size_t count) {
  if (id >= -1 && id < static_cast<std::int64_t>(count)) return {};
  return corrupt(std::string("tokenizer.ggml.") + key + ": " + std::to_string(id) +
                 " is no token, want 0 to " + std::to_string(count - 1));
}

Result<TokenKind> kind_of(const Gguf& gguf, std::size_t id) {
  const std::int32_t type = gguf.types.empty() ? 1 : gguf.types[id];
  switch (type) {
    case 0:
    case 1:
      return TokenKind::normal;
    case 2:
      return TokenKind::unknown;
    case 3:
      return TokenKind::control;
    case 4:
      return TokenKind::user_defined;
    case 5:
      return TokenKind::unused;
    case 6:
      return TokenKind::byte;
    default:
      return corrupt("tokenizer.ggml.token_type: value " + std::to_string(type) + " of token " +
                     std::to_string(id) + ", want 1 to 6");
  }
}

std::string with_plain_spaces(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const bool space = text.compare(at, kSpace.size(), kSpace) == 0;
    out += space ? ' ' : text[at];
    at += space ? kSpace.size() : 1;
  }
  return out;
}

enum class Alphabet { byte_level, visible_space };

/// Vocabulary and added tokens.
Status read_tokens(const Gguf& gguf, Alphabet alphabet, TokenizerParts& parts) {
  for (std::size_t i = 0; i < gguf.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    Vocabulary::Token token{gguf.tokens[i], {}, INFOS_TRY(kind_of(gguf, i))};
    switch (token.kind) {
      case TokenKind::normal:
      case TokenKind::unused:
        token.bytes = alphabet == Alphabet::byte_level
                          ? bytes_of_alphabet(token.text).value_or(token.text)
                          : with_plain_spaces(token.text);
        break;
      case TokenKind::byte: {
        const int byte = byte_of_name(token.text);
        if (byte < 0)
          return corrupt("tokenizer.ggml.tokens: byte token " + std::to_string(i) + " is '" +
                         token.text.substr(0, 32) + "', want <0x00> to <0xFF>");
        token.bytes = std::string(1, static_cast<char>(byte));
        break;
      }
      case TokenKind::user_defined:
        token.bytes = with_plain_spaces(token.text);
        break;
      case TokenKind::unknown:
        append_utf8(token.bytes, kReplacement);
        break;
      case TokenKind::control:
        break;
    }
    const bool added = token.kind == TokenKind::control || token.kind == TokenKind::user_defined;
    if (added && !token.text.empty() && token.text.size() <= kAddedTokenBytesMax)
      parts.added.add({id, token.kind == TokenKind::user_defined ? token.bytes : token.text,
                       token.kind == TokenKind::control ? AddedToken::Class::control
                                                        : AddedToken::Class::user_defined});
    parts.vocabulary.set(id, std::move(token));
  }
  return {};
}

/// Equal scores share a rank; the best score has rank 0.
std::vector<std::uint32_t> ranks_of_scores(const Gguf& gguf) {
  std::vector<std::uint32_t> order(gguf.tokens.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto score = [&](std::uint32_t i) { return gguf.scores[i]; };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return score(a) > score(b); });
  std::vector<std::uint32_t> ranks(order.size());
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && score(order[i]) != score(order[i - 1])) ++rank;
    ranks[order[i]] = rank;
  }
  return ranks;
}

bool takes_part_in_merges(TokenKind kind) { return kind == TokenKind::normal; }

/// Every cut of a token into two known symbols is a merge: SentencePiece asks whether the joined
/// text is a token.
class ScoreMerges {
 public:
  ScoreMerges(const Vocabulary& vocabulary, const std::vector<std::uint32_t>& ranks)
      : vocabulary_(vocabulary), ranks_(ranks) {}

  CharBpeParts build() {
    const auto count = static_cast<TokenId>(vocabulary_.size());
    next_ = count;
    for (TokenId id = 0; id < count; ++id)
      if (takes_part_in_merges(vocabulary_.at(id).kind))
        symbols_.try_emplace(vocabulary_.at(id).text, id);
    for (TokenId id = 0; id < count; ++id) add_characters(id);
    for (TokenId id = 0; id < count; ++id) add_cuts(id);
    return std::move(out_);
  }

 private:
  bool is_the_symbol(TokenId id) const {
    const auto& token = vocabulary_.at(id);
    if (!takes_part_in_merges(token.kind) || token.text.empty() ||
        token.text.size() > kMergedBytesMax)
      return false;
    return symbols_.find(token.text)->second == id;
  }

  void add_characters(TokenId id) {
    if (!is_the_symbol(id)) return;
    const std::string_view text = vocabulary_.at(id).text;
    for (std::size_t at = 0; at < text.size();) {
      const Decoded decoded = decode_utf8(text, at);
      if (decoded.valid) {
        const auto [place, fresh] =
            symbols_.try_emplace(std::string(text.substr(at, decoded.length)), next_);
        if (fresh) ++next_;
        out_.characters.try_emplace(decoded.code, place->second);
      }
      at += decoded.length;
    }
  }

  void add_cuts(TokenId id) {
    if (!is_the_symbol(id)) return;
    const std::string_view text = vocabulary_.at(id).text;
    for (std::size_t at = decode_utf8(text, 0).length; at < text.size();
         at += decode_utf8(text, at).length) {
      const auto left = symbols_.find(text.substr(0, at));
      if (left == symbols_.end()) continue;
      const auto right = symbols_.find(text.substr(at));
      if (right != symbols_.end())
        out_.merger.add(left->second, right->second, ranks_[static_cast<std::size_t>(id)], id);
    }
  }

  const Vocabulary& vocabulary_;
  const std::vector<std::uint32_t>& ranks_;
  std::unordered_map<std::string, SymbolId, StringHash, std::equal_to<>> symbols_;
  SymbolId next_ = 0;
  CharBpeParts out_;
};

Fallback byte_fallback(const Vocabulary& vocabulary, TokenId unknown) {
  Fallback fallback;
  fallback.unknown = unknown;
  for (std::size_t i = 0; i < vocabulary.size(); ++i) {
    const auto& token = vocabulary.at(static_cast<TokenId>(i));
    if (token.kind != TokenKind::byte) continue;
    TokenId& slot = fallback.bytes[static_cast<unsigned char>(token.bytes[0])];
    if (slot < 0) slot = static_cast<TokenId>(i);
    fallback.use_bytes = true;
  }
  return fallback;
}

void add_space_steps(const Gguf& gguf, TokenizerParts& parts) {
  if (gguf.add_space_prefix) {
    parts.normalizer.add(PrependStep{" "});
    parts.strip_first_spaces = 1;
  }
  parts.normalizer.add(ReplaceStep{" ", std::string(kSpace)});
}

Status build_score_bpe(const Gguf& gguf, TokenizerParts& parts) {
  if (gguf.scores.empty())
    return corrupt(
        "tokenizer.ggml.scores: missing, want one for each token of a 'llama' tokenizer");
  INFOS_TRY(read_tokens(gguf, Alphabet::visible_space, parts));
  add_space_steps(gguf, parts);
  const std::vector<std::uint32_t> ranks = ranks_of_scores(gguf);
  CharBpeParts bpe = ScoreMerges(parts.vocabulary, ranks).build();
  bpe.fallback = byte_fallback(parts.vocabulary, gguf.unknown);
  parts.model = make_char_bpe(parts.vocabulary, std::move(bpe));
  return {};
}

Status build_byte_bpe(const Gguf& gguf, TokenizerParts& parts) {
  INFOS_TRY(read_tokens(gguf, Alphabet::byte_level, parts));
  PreTokenizer pre = INFOS_TRY(make_pre_tokenizer(gguf.pre));
  parts.splitter = std::move(pre.splitter);
  BpeMerger merger;
  for (std::size_t rank = 0; rank < gguf.merges.size(); ++rank) {
    const std::string_view merge = gguf.merges[rank];
    const std::string place = "tokenizer.ggml.merges: merge " + std::to_string(rank) + " '" +
                              std::string(merge.substr(0, 64)) + "'";
    const std::size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos) return corrupt(place + " has no space, want two tokens");
    const TokenId left = parts.vocabulary.find(merge.substr(0, space));
    const TokenId right = parts.vocabulary.find(merge.substr(space + 1));
    const TokenId joined = parts.vocabulary.find(std::string(merge.substr(0, space)) +
                                                 std::string(merge.substr(space + 1)));
    if (left < 0 || right < 0 || joined < 0)
      return corrupt(place + " names a token that tokenizer.ggml.tokens has not");
    merger.add(left, right, static_cast<std::uint32_t>(rank), joined);
  }
  parts.model =
      make_byte_bpe(parts.vocabulary, std::move(merger),
                    pre.ignore_merges ? WholeWords::all : WholeWords::exact, gguf.unknown);
  return {};
}

Status build_unigram(const Gguf& gguf, TokenizerParts& parts) {
  if (gguf.scores.empty())
    return corrupt("tokenizer.ggml.scores: missing, want one for each token of a 't5' tokenizer");
  INFOS_TRY(read_tokens(gguf, Alphabet::visible_space, parts));
  add_space_steps(gguf, parts);
  std::vector<UnigramPiece> pieces;
  for (std::size_t i = 0; i < parts.vocabulary.size(); ++i) {
    const auto& token = parts.vocabulary.at(static_cast<TokenId>(i));
    if (token.kind == TokenKind::normal && !token.text.empty())
      pieces.push_back({static_cast<TokenId>(i), static_cast<double>(gguf.scores[i])});
  }
  Fallback fallback = byte_fallback(parts.vocabulary, gguf.unknown);
  fallback.fuse_unknown = true;
  parts.model = make_unigram(parts.vocabulary, pieces, fallback);
  return {};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_gguf_tokenizer(const TokenizerSource& source) {
  const Gguf& gguf = *source.gguf;
  INFOS_TRY(check_sizes(gguf));
  INFOS_TRY(check_id("bos_token_id", gguf.bos, gguf.tokens.size()));
  INFOS_TRY(check_id("eos_token_id", gguf.eos, gguf.tokens.size()));
  INFOS_TRY(check_id("unknown_token_id", gguf.unknown, gguf.tokens.size()));
  TokenizerParts parts;
  if (gguf.model == "llama") {
    INFOS_TRY(build_score_bpe(gguf, parts));
  } else if (gguf.model == "gpt2") {
    INFOS_TRY(build_byte_bpe(gguf, parts));
  } else if (gguf.model == "t5") {
    INFOS_TRY(build_unigram(gguf, parts));
  } else {
    return Error{ErrorCode::unsupported, "tokenizer.ggml.model: '" + gguf.model.substr(0, 64) +
                                             "' is not supported; supported: llama, gpt2, t5"};
  }
  parts.bos = gguf.bos;
  parts.eos = gguf.eos;
  if (gguf.add_bos && gguf.bos >= 0) parts.prefix.push_back(gguf.bos);
  return make_text_tokenizer(std::move(parts));
}

}  // namespace infos::text
