// SPDX-License-Identifier: Apache-2.0
// Goal: tokenizers from GGUF keys encode as their definition says, decode back to the same bytes,
// and refuse lying files. Method: brute-force encoders written from the definitions, over the
// stories260K vocabulary and hand-made ones; random text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>

#include "daemon/gateway/text/utf8.h"
#include "daemon/gateway/tokenizer.h"
#include "tests/support/data.h"
#include "topology/base/rng.h"

namespace infos {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Gguf = TokenizerSource::Gguf;
using AddBos = Tokenizer::AddBos;
using Specials = Tokenizer::Specials;

/// The llama2.c vocabulary file: int32 longest, then per token float score, int32 length, bytes.
TokenizerSource read_tok512() {
  std::ifstream in(test::data_path("models/tok512.bin"), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  Gguf gguf;
  gguf.model = "llama";
  for (std::size_t at = 4; at + 8 <= bytes.size();) {
    float score = 0;
    std::int32_t length = 0;
    std::memcpy(&score, &bytes[at], 4);
    std::memcpy(&length, &bytes[at + 4], 4);
    std::string text = bytes.substr(at + 8, static_cast<std::size_t>(length));
    at += 8 + static_cast<std::size_t>(length);
    std::string visible;
    for (const char c : text) visible += c == ' ' ? std::string("\u2581") : std::string(1, c);
    const std::size_t id = gguf.tokens.size();
    gguf.tokens.push_back(visible);
    gguf.scores.push_back(score);
    gguf.types.push_back(id == 0 ? 2 : id < 3 ? 3 : id < 259 ? 6 : 1);
  }
  gguf.tokens[0] = "<unk>";
  gguf.tokens[1] = "<s>";
  gguf.tokens[2] = "</s>";
  gguf.bos = 1;
  gguf.eos = 2;
  gguf.unknown = 0;
  gguf.add_bos = true;
  TokenizerSource source;
  source.gguf = std::move(gguf);
  return source;
}

/// SentencePiece BPE from its definition: join the neighbours whose joined text has the best score,
/// leftmost first.
std::vector<TokenId> brute_force_scores(const Gguf& gguf, const std::string& text) {
  std::map<std::string, TokenId> normal;
  for (std::size_t i = 0; i < gguf.tokens.size(); ++i)
    if (gguf.types[i] == 1) normal.emplace(gguf.tokens[i], static_cast<TokenId>(i));
  std::vector<std::string> parts;
  std::string spaced = text.empty() ? "" : "\u2581";
  for (const char c : text) spaced += c == ' ' ? std::string("\u2581") : std::string(1, c);
  for (std::size_t at = 0; at < spaced.size();) {
    const auto decoded = text::decode_utf8(spaced, at);
    parts.push_back(spaced.substr(at, decoded.length));
    at += decoded.length;
  }
  while (true) {
    std::size_t best = parts.size();
    float best_score = -1e30F;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = normal.find(parts[i] + parts[i + 1]);
      if (found != normal.end() &&
          gguf.scores[static_cast<std::size_t>(found->second)] > best_score) {
        best = i;
        best_score = gguf.scores[static_cast<std::size_t>(found->second)];
      }
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<TokenId> out;
  for (const std::string& part : parts) {
    const auto found = normal.find(part);
    if (found != normal.end()) {
      out.push_back(found->second);
      continue;
    }
    for (const char c : part) out.push_back(3 + static_cast<unsigned char>(c));
  }
  return out;
}

std::string random_text(Rng& rng, std::size_t characters) {
  static const std::vector<std::string> kPieces = {
      "Once",       " upon", " a",     " time", ",", " ",    "  ", "\n", "\u00e9", "\u4f60",
      "\U0001F600", "</s>",  "<0x41>", "th",    "e", "Lily", "'s", "7",  "\t",     "\u0301"};
  std::string out;
  while (out.size() < characters) {
    if (rng.chance(0.2)) {
      text::append_utf8(out, static_cast<char32_t>(rng.below(0x110000)));
    } else {
      out += kPieces[rng.below(kPieces.size())];
    }
  }
  return out;
}

std::string decode_all(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  std::string bytes;
  Tokenizer::Place place = Tokenizer::Place::first;
  for (const TokenId token : tokens) {
    bytes += tokenizer.piece(token, place);
    if (!tokenizer.is_control(token)) place = Tokenizer::Place::later;
  }
  return bytes;
}

TEST(GgufLlama, Stories_KnownSentence) {
  INFOS_NEEDS_DATA("models/tok512.bin");
  const auto tokenizer = make_tokenizer(read_tok512()).value();
  const auto tokens = tokenizer->encode("Once upon a time", Specials::parse, AddBos::if_model_does);
  ASSERT_FALSE(tokens.empty());
  EXPECT_EQ(tokens[0], 1);
  EXPECT_EQ(decode_all(*tokenizer, tokens), "Once upon a time");
  EXPECT_THAT(tokenizer->encode("", Specials::parse, AddBos::if_model_does), ElementsAre(1));
  EXPECT_THAT(tokenizer->encode("", Specials::parse, AddBos::no), ElementsAre());
}

TEST(GgufLlama, RandomText_AgreesWithBruteForceAndComesBack) {
  INFOS_NEEDS_DATA("models/tok512.bin");
  const TokenizerSource source = read_tok512();
  const auto tokenizer = make_tokenizer(source).value();
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed);
    const std::string text = random_text(rng, rng.below(200));
    const auto tokens = tokenizer->encode(text, Specials::as_text, AddBos::no);
    ASSERT_EQ(tokens, brute_force_scores(*source.gguf, text)) << "seed " << seed;
    ASSERT_EQ(decode_all(*tokenizer, tokens), text) << "seed " << seed;
  }
}

TEST(GgufLlama, BytesThatAreNotUtf8_KeepTheirValue) {
  INFOS_NEEDS_DATA("models/tok512.bin");
  const auto tokenizer = make_tokenizer(read_tok512()).value();
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    std::string text(rng.below(60), ' ');
    for (char& c : text) c = static_cast<char>(rng.below(256));
    ASSERT_EQ(decode_all(*tokenizer, tokenizer->encode(text, Specials::as_text, AddBos::no)), text)
        << "seed " << seed;
  }
}

TEST(GgufLlama, ControlTokens_OnlyWhenAskedFor) {
  INFOS_NEEDS_DATA("models/tok512.bin");
  const auto tokenizer = make_tokenizer(read_tok512()).value();
  const auto parsed = tokenizer->encode("</s>", Specials::parse, AddBos::no);
  EXPECT_THAT(parsed, ElementsAre(2));
  const auto plain = tokenizer->encode("</s>", Specials::as_text, AddBos::no);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 2), 0);
  EXPECT_EQ(tokenizer->find("</s>"), 2);
  EXPECT_EQ(tokenizer->find("nothing like it"), -1);
  EXPECT_TRUE(tokenizer->is_control(2));
  EXPECT_EQ(tokenizer->piece(2, Tokenizer::Place::later), "");
}

TEST(GgufLlama, MillionEqualLetters_EncodeInOneGo) {
  INFOS_NEEDS_DATA("models/tok512.bin");
  const auto tokenizer = make_tokenizer(read_tok512()).value();
  const std::string text(1U << 20, 'e');
  EXPECT_EQ(decode_all(*tokenizer, tokenizer->encode(text, Specials::parse, AddBos::no)), text);
}

// "abc" is a token and "ab" too, but 'c' alone is not: merging must still reach it.
TEST(GgufLlama, CharacterThatOccursOnlyInsideTokens_StillMerges) {
  TokenizerSource source;
  source.gguf = Gguf{"llama",
                     "",
                     {"<unk>", "\u2581", "a", "b", "ab", "abc"},
                     {0, -1, -2, -3, -4, -5},
                     {2, 1, 1, 1, 1, 1}};
  source.gguf->unknown = 0;
  source.gguf->add_space_prefix = false;
  const auto tokenizer = make_tokenizer(source).value();
  EXPECT_THAT(tokenizer->encode("abcab", Specials::parse, AddBos::no), ElementsAre(5, 4));
  EXPECT_THAT(tokenizer->encode("c", Specials::parse, AddBos::no), ElementsAre(0));
}

/// A byte-level vocabulary: 256 bytes, then one token per merge.
TokenizerSource byte_level(const std::vector<std::pair<std::string, std::string>>& merges,
                           const std::string& pre) {
  Gguf gguf;
  gguf.model = "gpt2";
  gguf.pre = pre;
  const auto visible = [](unsigned char byte) {
    std::string out;
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    int below = 0;
    for (int other = 0; other < byte; ++other)
      below += !((other >= 33 && other <= 126) || (other >= 161 && other <= 172) || other >= 174);
    text::append_utf8(out, itself ? byte : 256 + static_cast<char32_t>(below));
    return out;
  };
  const auto visible_all = [&](const std::string& text) {
    std::string out;
    for (const char c : text) out += visible(static_cast<unsigned char>(c));
    return out;
  };
  for (int byte = 0; byte < 256; ++byte)
    gguf.tokens.push_back(visible(static_cast<unsigned char>(byte)));
  for (const auto& [left, right] : merges) {
    gguf.tokens.push_back(visible_all(left + right));
    gguf.merges.push_back(visible_all(left) + " " + visible_all(right));
  }
  gguf.types.assign(gguf.tokens.size(), 1);
  gguf.tokens.push_back("<|end|>");
  gguf.types.push_back(3);
  gguf.tokens.push_back("[tool]");
  gguf.types.push_back(4);
  TokenizerSource source;
  source.gguf = std::move(gguf);
  return source;
}

const std::vector<std::pair<std::string, std::string>> kMerges = {
    {"t", "h"},       {"th", "e"}, {" ", "the"}, {"i", "n"}, {"in", "g"},
    {"\xC3", "\xA9"}, {"l", "l"},  {"'", "ll"},  {"1", "2"}};

TEST(GgufGpt2, MergesByRankInsideWords) {
  const auto tokenizer = make_tokenizer(byte_level(kMerges, "gpt-2")).value();
  const auto encode = [&](std::string_view text) {
    return tokenizer->encode(text, Specials::parse, AddBos::no);
  };
  EXPECT_THAT(encode("the thing"),
              ElementsAre(257, 32, 256, 260));  // " th" is no token: ' ' stays alone
  EXPECT_THAT(encode(" the"), ElementsAre(258));
  EXPECT_THAT(encode("\u00e9"), ElementsAre(261));
  EXPECT_THAT(encode("we'll"), ElementsAre('w', 'e', 263));
  EXPECT_THAT(encode("12"), ElementsAre(264));
  EXPECT_THAT(encode("a<|end|>[tool]"), ElementsAre('a', 265, 266));
  EXPECT_EQ(tokenizer->encode("<|end|>", Specials::as_text, AddBos::no).size(), 7U);
  EXPECT_THAT(tokenizer->encode("[tool]", Specials::as_text, AddBos::no), ElementsAre(266));
  EXPECT_EQ(tokenizer->piece(258, Tokenizer::Place::first), " the");
}

TEST(GgufGpt2, Qwen2_NeverJoinsDigits) {
  const auto tokenizer = make_tokenizer(byte_level(kMerges, "qwen2")).value();
  EXPECT_THAT(tokenizer->encode("12", Specials::parse, AddBos::no), ElementsAre('1', '2'));
}

// A token that merging does not reach is taken whole where the model says so (Llama 3), and only
// there.
TEST(GgufGpt2, WholeWord_WinsOverMergingOnlyInLlama3) {
  TokenizerSource source = byte_level(kMerges, "llama-bpe");
  source.gguf->tokens.push_back("xyz");
  source.gguf->types.push_back(1);
  EXPECT_THAT(make_tokenizer(source).value()->encode("xyz", Specials::parse, AddBos::no),
              ElementsAre(267));
  source.gguf->pre = "qwen2";
  EXPECT_THAT(make_tokenizer(source).value()->encode("xyz", Specials::parse, AddBos::no),
              ElementsAre('x', 'y', 'z'));
}

TEST(GgufGpt2, AnyBytes_ComeBack) {
  for (const char* pre : {"default", "gpt-2", "llama-bpe", "qwen2", "tekken"}) {
    const auto tokenizer = make_tokenizer(byte_level(kMerges, pre)).value();
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      Rng rng(seed);
      std::string text = random_text(rng, rng.below(100));
      if (rng.chance(0.5))
        for (int i = 0; i < 10 && !text.empty(); ++i)
          text[rng.below(text.size())] = static_cast<char>(rng.below(256));
      const auto tokens = tokenizer->encode(text, Specials::as_text, AddBos::no);
      ASSERT_EQ(decode_all(*tokenizer, tokens), text) << pre << " seed " << seed;
    }
  }
}

TEST(GgufT5, UnigramTakesTheLikeliestCut) {
  TokenizerSource source;
  source.gguf =
      Gguf{"t5",
           "",
           {"<pad>", "</s>", "<unk>", "\u2581", "a", "b", "ab", "\u2581a", "\u2581ab", "bc"},
           {0, 0, 0, -3, -2, -2, -3, -4, -9, -1},
           {3, 3, 2, 1, 1, 1, 1, 1, 1, 1}};
  source.gguf->unknown = 2;
  const auto tokenizer = make_tokenizer(source).value();
  const auto encode = [&](std::string_view text) {
    return tokenizer->encode(text, Specials::parse, AddBos::no);
  };
  EXPECT_THAT(encode("ab"), ElementsAre(3, 6));   // -3-3 and -4-2 tie: the longer last token wins
  EXPECT_THAT(encode("abc"), ElementsAre(7, 9));  // -4-1 beats the rest
  EXPECT_THAT(encode("azzb"), ElementsAre(7, 2, 5));  // a run of unknown characters is one token
}

TEST(Detokenizer, PushingOneByOne_IsDecodingAll) {
  const auto tokenizer = make_tokenizer(byte_level(kMerges, "gpt-2")).value();
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed);
    std::vector<TokenId> tokens(rng.below(60));
    for (TokenId& token : tokens)
      token = static_cast<TokenId>(rng.below(rng.chance(0.5) ? 267 : 128));
    if (rng.chance(0.5))
      tokens = tokenizer->encode(random_text(rng, 80), Specials::parse, AddBos::no);
    Detokenizer stream(*tokenizer);
    std::string out;
    for (const TokenId token : tokens) {
      const std::string piece = stream.push(token);
      ASSERT_EQ(text::make_valid_utf8(piece), piece)
          << "seed " << seed;  // each piece is whole by itself
      out += piece;
    }
    out += stream.flush();
    ASSERT_EQ(out, text::make_valid_utf8(decode_all(*tokenizer, tokens))) << "seed " << seed;
  }
}

TEST(Detokenizer, FirstPieceLosesItsSpace_UnlessTheTextGoesOn) {
  INFOS_NEEDS_DATA("models/tok512.bin");
  const auto tokenizer = make_tokenizer(read_tok512()).value();
  const auto tokens = tokenizer->encode("a cat", Specials::parse, AddBos::if_model_does);
  const auto all = [&](Detokenizer stream) {
    std::string out;
    for (const TokenId token : tokens) out += stream.push(token);
    return out + stream.flush();
  };
  EXPECT_EQ(all(Detokenizer(*tokenizer)), "a cat");
  EXPECT_EQ(all(Detokenizer(*tokenizer, Tokenizer::Place::later)), " a cat");
}

TEST(GgufTokenizer, LyingFiles_AreRefusedByName) {
  const auto message = [](const std::function<void(Gguf&)>& spoil) {
    TokenizerSource source = byte_level(kMerges, "gpt-2");
    spoil(*source.gguf);
    const auto result = make_tokenizer(source);
    return result.ok() ? std::string("accepted") : result.error().message;
  };
  EXPECT_EQ(message([](Gguf&) {}), "accepted");
  EXPECT_THAT(message([](Gguf& g) { g.tokens.clear(); }),
              HasSubstr("tokenizer.ggml.tokens: empty"));
  EXPECT_THAT(message([](Gguf& g) { g.types.pop_back(); }),
              HasSubstr("tokenizer.ggml.token_type: 266 values, want 267"));
  EXPECT_THAT(message([](Gguf& g) { g.types[3] = 9; }),
              HasSubstr("value 9 of token 3, want 1 to 6"));
  EXPECT_THAT(message([](Gguf& g) { g.types[3] = 6; }), HasSubstr("byte token 3"));
  EXPECT_THAT(message([](Gguf& g) { g.scores = {1}; }),
              HasSubstr("tokenizer.ggml.scores: 1 values"));
  EXPECT_THAT(message([](Gguf& g) { g.merges[0] = "th"; }), HasSubstr("merge 0 'th' has no space"));
  EXPECT_THAT(message([](Gguf& g) { g.merges[0] = "q qqq"; }), HasSubstr("names a token"));
  EXPECT_THAT(message([](Gguf& g) { g.bos = 99999; }),
              HasSubstr("tokenizer.ggml.bos_token_id: 99999"));
  EXPECT_THAT(message([](Gguf& g) { g.model = "rwkv"; }),
              HasSubstr("'rwkv' is not supported; supported: llama, gpt2, t5"));
  EXPECT_THAT(message([](Gguf& g) { g.model = "llama"; }),
              HasSubstr("tokenizer.ggml.scores: missing"));
  EXPECT_THAT(message([](Gguf& g) { g.tokens[3] = std::string(9000, 'x'); }),
              HasSubstr("token 3 has 9000 bytes"));
  EXPECT_THAT(make_tokenizer(TokenizerSource{}).error().message, HasSubstr("no tokenizer"));
}

}  // namespace
}  // namespace infos
