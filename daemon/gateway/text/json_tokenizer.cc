// SPDX-License-Identifier: Apache-2.0
// Builds a tokenizer from a Hugging Face tokenizer.json: BPE (byte-level, or over characters with
// byte fallback) and Unigram. Errors name the place in the file.
#include <cmath>

#include "daemon/gateway/text/json_components.h"
#include "daemon/gateway/text/text_tokenizer.h"
#include "daemon/gateway/text/utf8.h"

namespace infos::text {
namespace {

using Flag = JsonPlace::Flag;

constexpr std::size_t kIdSlack =
    100'000;  // how far token ids may run ahead of the number of tokens

class JsonTokenizerReader {
 public:
  explicit JsonTokenizerReader(const TokenizerSource& source, const boost::json::value& root)
      : source_(source), root_(root, "tokenizer.json") {}

  Result<std::unique_ptr<Tokenizer>> read() {
    pre_ = INFOS_TRY(read_pre_tokenizer(root_));
    decoding_ = INFOS_TRY(read_decoder(root_, pre_));
    INFOS_TRY(read_normalizer(root_, parts_.normalizer));
    const JsonPlace model = INFOS_TRY(root_.member("model"));
    const std::string_view type =
        INFOS_TRY(model.string_or("type", model.find("merges") ? "BPE" : ""));
    if (type != "BPE" && type != "Unigram")
      return model.unsupported(type.empty() ? "no type" : type, "BPE, Unigram");
    INFOS_TRY(type == "BPE" ? read_bpe_vocabulary(model) : read_unigram_vocabulary(model));
    INFOS_TRY(read_added_tokens());
    INFOS_TRY(type == "BPE" ? build_bpe(model) : build_unigram(model));
    parts_.splitter = std::move(pre_.splitter);
    parts_.strip_first_spaces = decoding_.strip_first_spaces;
    INFOS_TRY(find_bos_and_eos());
    return make_text_tokenizer(std::move(parts_));
  }

 private:
  Status add_token(const JsonPlace& place, std::string_view text, std::int64_t id,
                   std::size_t count) {
    if (id < 0 || id >= static_cast<std::int64_t>(std::min(kVocabularyMax, 2 * count + kIdSlack)))
      return place.corrupt("token id " + std::to_string(id) + " is out of range for " +
                           std::to_string(count) + " tokens");
    if (text.size() > kTokenBytesMax)
      return place.corrupt("the token has " + std::to_string(text.size()) +
                           " bytes, want at most " + std::to_string(kTokenBytesMax));
    const auto token = static_cast<TokenId>(id);
    auto& vocabulary = parts_.vocabulary;
    if (vocabulary.has(token) && vocabulary.at(token).kind != TokenKind::unused)
      return place.corrupt("token id " + std::to_string(id) + " is taken by '" +
                           vocabulary.at(token).text.substr(0, 64) + "'");
    vocabulary.set(token, {std::string(text), decoding_.bytes_of(text), TokenKind::normal});
    return {};
  }

  Status read_bpe_vocabulary(const JsonPlace& model) {
    const JsonPlace vocab = INFOS_TRY(model.member("vocab"));
    const auto* object = vocab.value().if_object();
    if (!object) return vocab.corrupt("want an object of token: id");
    if (object->empty()) return vocab.corrupt("empty, want at least one token");
    for (const auto& [text, id] : *object) {
      const std::string_view name(text.data(), text.size());
      if (!id.is_int64())
        return vocab.corrupt("token '" + std::string(name.substr(0, 64)) +
                             "' has an id that is no whole number");
      INFOS_TRY(add_token(vocab, name, id.get_int64(), object->size()));
    }
    return {};
  }

  Status read_unigram_vocabulary(const JsonPlace& model) {
    const std::vector<JsonPlace> entries = INFOS_TRY(INFOS_TRY(model.member("vocab")).items());
    if (entries.empty()) return model.corrupt("vocab is empty, want at least one token");
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const std::vector<JsonPlace> entry = INFOS_TRY(entries[i].items());
      if (entry.size() != 2) return entries[i].corrupt("want [token, score]");
      const double score = INFOS_TRY(entry[1].number());
      if (!std::isfinite(score)) return entry[1].corrupt("the score is not finite");
      INFOS_TRY(add_token(entry[0], INFOS_TRY(entry[0].string()), static_cast<std::int64_t>(i),
                          entries.size()));
      scores_.push_back(score);
    }
    return {};
  }

  Status read_added_tokens() {
    const auto list = root_.find("added_tokens");
    if (!list) return {};
    const std::vector<JsonPlace> entries = INFOS_TRY(list->items());
    for (const JsonPlace& entry : entries) {
      const std::string_view text = INFOS_TRY(INFOS_TRY(entry.member("content")).string());
      const std::int64_t id = INFOS_TRY(INFOS_TRY(entry.member("id")).integer());
      if (text.empty() || text.size() > kAddedTokenBytesMax)
        return entry.corrupt("content has " + std::to_string(text.size()) + " bytes, want 1 to " +
                             std::to_string(kAddedTokenBytesMax));
      if (INFOS_TRY(entry.flag_or("single_word", Flag::no)) == Flag::yes)
        return entry.unsupported("single_word", "lstrip, rstrip, special");
      auto& vocabulary = parts_.vocabulary;
      const bool there = id >= 0 && id < static_cast<std::int64_t>(vocabulary.size()) &&
                         vocabulary.at(static_cast<TokenId>(id)).text == text;
      if (!there) INFOS_TRY(add_token(entry, text, id, vocabulary.size() + entries.size()));
      const bool special = INFOS_TRY(entry.flag_or("special", Flag::no)) == Flag::yes;
      auto& token = vocabulary.at(static_cast<TokenId>(id));
      token.kind = special ? TokenKind::control : TokenKind::user_defined;
      token.bytes = special ? std::string() : decoding_.bytes_of(text);
      AddedToken added{static_cast<TokenId>(id), std::string(text),
                       special ? AddedToken::Class::control : AddedToken::Class::user_defined};
      if (INFOS_TRY(entry.flag_or("lstrip", Flag::no)) == Flag::yes)
        added.left = AddedToken::Strip::yes;
      if (INFOS_TRY(entry.flag_or("rstrip", Flag::no)) == Flag::yes)
        added.right = AddedToken::Strip::yes;
      parts_.added.add(std::move(added));
    }
    return {};
  }

  Status refuse_unsupported_bpe(const JsonPlace& model) {
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (!INFOS_TRY(model.string_or(name, "")).empty())
        return model.unsupported(name, "BPE without it");
    if (const auto dropout = model.find("dropout"); dropout && INFOS_TRY(dropout->number()) != 0)
      return model.unsupported("dropout", "BPE without it");
    return {};
  }

  Result<std::pair<std::string_view, std::string_view>> merge_sides(const JsonPlace& merge) {
    if (merge.is_array()) {
      const std::vector<JsonPlace> sides = INFOS_TRY(merge.items());
      if (sides.size() != 2) return merge.corrupt("want two tokens");
      return std::pair(INFOS_TRY(sides[0].string()), INFOS_TRY(sides[1].string()));
    }
    const std::string_view text = INFOS_TRY(merge.string());
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
      return merge.corrupt("'" + std::string(text.substr(0, 64)) +
                           "', want two tokens with one space between");
    return std::pair(text.substr(0, space), text.substr(space + 1));
  }

  Result<BpeMerger> read_merges(const JsonPlace& model) {
    BpeMerger merger;
    const std::vector<JsonPlace> merges = INFOS_TRY(INFOS_TRY(model.member("merges")).items());
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      const auto [left, right] = INFOS_TRY(merge_sides(merges[rank]));
      const TokenId a = parts_.vocabulary.find(left);
      const TokenId b = parts_.vocabulary.find(right);
      const TokenId joined = parts_.vocabulary.find(std::string(left) + std::string(right));
      if (a < 0 || b < 0 || joined < 0)
        return merges[rank].corrupt("'" + std::string(left.substr(0, 64)) + "' and '" +
                                    std::string(right.substr(0, 64)) +
                                    "' or what they join to is not in model.vocab");
      merger.add(a, b, static_cast<std::uint32_t>(rank), joined);
    }
    return merger;
  }

  Result<TokenId> unknown_token(const JsonPlace& model) {
    const std::string_view name = INFOS_TRY(model.string_or("unk_token", ""));
    if (name.empty()) return TokenId{-1};
    const TokenId id = parts_.vocabulary.find(name);
    if (id < 0)
      return model.corrupt("unk_token '" + std::string(name.substr(0, 64)) + "' is not in vocab");
    return id;
  }

  Result<Fallback> read_fallback(const JsonPlace& model) {
    Fallback fallback;
    fallback.use_bytes = INFOS_TRY(model.flag_or("byte_fallback", Flag::no)) == Flag::yes;
    for (std::size_t i = 0; fallback.use_bytes && i < parts_.vocabulary.size(); ++i) {
      auto& token = parts_.vocabulary.at(static_cast<TokenId>(i));
      const int byte = token.kind == TokenKind::normal ? byte_of_name(token.text) : -1;
      if (byte < 0) continue;
      token.kind = TokenKind::byte;
      fallback.bytes[static_cast<std::size_t>(byte)] = static_cast<TokenId>(i);
    }
    return fallback;
  }

  Status build_bpe(const JsonPlace& model) {
    INFOS_TRY(refuse_unsupported_bpe(model));
    const TokenId unknown = INFOS_TRY(unknown_token(model));
    BpeMerger merger = INFOS_TRY(read_merges(model));
    const auto whole = INFOS_TRY(model.flag_or("ignore_merges", Flag::no)) == Flag::yes
                           ? WholeWords::all
                           : WholeWords::exact;
    if (pre_.byte_level) {
      parts_.model = make_byte_bpe(parts_.vocabulary, std::move(merger), whole, unknown);
      return {};
    }
    CharBpeParts bpe;
    bpe.merger = std::move(merger);
    bpe.whole = whole;
    bpe.fallback = INFOS_TRY(read_fallback(model));
    bpe.fallback.unknown = unknown;
    bpe.fallback.fuse_unknown = INFOS_TRY(model.flag_or("fuse_unk", Flag::no)) == Flag::yes;
    for (std::size_t i = 0; i < parts_.vocabulary.size(); ++i) {
      const auto& token = parts_.vocabulary.at(static_cast<TokenId>(i));
      if (token.kind != TokenKind::normal || token.text.empty()) continue;
      const Decoded decoded = decode_utf8(token.text, 0);
      if (decoded.valid && decoded.length == token.text.size())
        bpe.characters.try_emplace(decoded.code, static_cast<SymbolId>(i));
    }
    parts_.model = make_char_bpe(parts_.vocabulary, std::move(bpe));
    return {};
  }

  Status build_unigram(const JsonPlace& model) {
    if (pre_.byte_level) return model.unsupported("Unigram with ByteLevel", "BPE with ByteLevel");
    Fallback fallback = INFOS_TRY(read_fallback(model));
    if (const auto id = model.find("unk_id")) {
      const std::int64_t value = INFOS_TRY(id->integer());
      if (value < 0 || value >= static_cast<std::int64_t>(scores_.size()))
        return id->corrupt(std::to_string(value) + " is no token");
      fallback.unknown = static_cast<TokenId>(value);
    }
    fallback.fuse_unknown = true;
    std::vector<UnigramPiece> pieces;
    for (std::size_t i = 0; i < scores_.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      const auto& token = parts_.vocabulary.at(id);
      if (token.kind == TokenKind::normal && !token.text.empty() && id != fallback.unknown)
        pieces.push_back({id, scores_[i]});
    }
    parts_.model = make_unigram(parts_.vocabulary, pieces, fallback);
    return {};
  }

  Status find_bos_and_eos() {
    if (!source_.bos_token.empty()) parts_.bos = parts_.vocabulary.find(source_.bos_token);
    if (!source_.eos_token.empty()) parts_.eos = parts_.vocabulary.find(source_.eos_token);
    parts_.prefix = INFOS_TRY(read_prefix(root_));
    for (const TokenId token : parts_.prefix)
      if (!parts_.vocabulary.has(token))
        return root_.corrupt("post_processor names token " + std::to_string(token) +
                             ", which is not in the vocabulary");
    if (parts_.prefix.empty() && source_.add_bos && parts_.bos >= 0)
      parts_.prefix.push_back(parts_.bos);
    if (parts_.bos < 0 && parts_.prefix.size() == 1) parts_.bos = parts_.prefix[0];
    return {};
  }

  const TokenizerSource& source_;
  JsonPlace root_;
  PreTokenizing pre_;
  Decoding decoding_;
  TokenizerParts parts_;
  std::vector<double> scores_;  ///< of a Unigram vocabulary
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_json_tokenizer(const TokenizerSource& source) {
  const boost::json::value root = INFOS_TRY(parse_json(source.tokenizer_json, "tokenizer.json"));
  return JsonTokenizerReader(source, root).read();
}

}  // namespace infos::text
