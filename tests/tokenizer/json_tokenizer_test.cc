// SPDX-License-Identifier: Apache-2.0
// Goal: tokenizers from tokenizer.json use exactly the components that the file names, in its
// order, and refuse the others by name. Method: small hand-made files whose encodings are worked
// out by hand, and round trips of random bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/gateway/text/utf8.h"
#include "daemon/gateway/tokenizer.h"
#include "topology/base/rng.h"

namespace infos {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct File {
  std::string added = "[]";
  std::string normalizer = "null";
  std::string pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})";
  std::string post_processor = "null";
  std::string decoder = R"({"type":"ByteLevel"})";
  std::string model =
      R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"Ġ":3,"Ġab":4,"Ċ":5,"Ã":6,"©":7,"Ã©":8,"1":9},
                         "merges":["a b","Ġ ab","Ã ©"]})";
  std::string bos, eos;
  bool add_bos = false;

  TokenizerSource source() const {
    TokenizerSource out;
    out.tokenizer_json = "{\"version\":\"1.0\",\"added_tokens\":" + added +
                         ",\"normalizer\":" + normalizer + ",\"pre_tokenizer\":" + pre_tokenizer +
                         ",\"post_processor\":" + post_processor + ",\"decoder\":" + decoder +
                         ",\"model\":" + model + "}";
    out.bos_token = bos;
    out.eos_token = eos;
    out.add_bos = add_bos;
    return out;
  }
};

std::unique_ptr<Tokenizer> load(const File& file) {
  auto result = make_tokenizer(file.source());
  EXPECT_TRUE(result.ok()) << result.error().message;
  return std::move(result).value();
}

std::string refusal(const File& file) {
  const auto result = make_tokenizer(file.source());
  return result.ok() ? std::string("accepted") : result.error().message;
}

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text,
                            Tokenizer::Specials specials = Tokenizer::Specials::parse) {
  return tokenizer.encode(text, specials, Tokenizer::AddBos::no);
}

std::string decode(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  Detokenizer stream(tokenizer);
  std::string out;
  for (const TokenId token : tokens) out += stream.push(token);
  return out + stream.flush();
}

TEST(JsonByteLevel, MergesInWordsAndDropsBytesWithoutToken) {
  const auto tokenizer = load(File{});
  EXPECT_THAT(encode(*tokenizer, "ab ab\n\u00e9"), ElementsAre(2, 4, 5, 8));
  EXPECT_THAT(encode(*tokenizer, "azb"), ElementsAre(0, 1));
  EXPECT_EQ(decode(*tokenizer, {2, 4, 5, 8}), "ab ab\n\u00e9");
  EXPECT_EQ(decode(*tokenizer, {6, 0, 7}), "\uFFFDa\uFFFD");  // halves of a character
}

TEST(JsonByteLevel, PrefixSpaceAndNoRegex) {
  File file;
  file.pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":false})";
  EXPECT_THAT(encode(*load(file), "ab"), ElementsAre(4));
  EXPECT_THAT(encode(*load(file), " ab"), ElementsAre(4));
}

TEST(JsonByteLevel, Llama3Form_SplitByRegexAndWholeWords) {
  File file;
  file.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[
    {"type":"Split","pattern":{"Regex":"\\p{N}{1,3}|[^\\p{N}]+"},
     "behavior":"Isolated","invert":false},
    {"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]})";
  file.model =
      R"({"type":"BPE","ignore_merges":true,"vocab":{"a":0,"b":1,"1":2,"aab":3,"11":4,"ab":5},"merges":[["a","b"],["1","1"]]})";
  EXPECT_THAT(encode(*load(file), "aab"), ElementsAre(3));               // no merge leads to it
  EXPECT_THAT(encode(*load(file), "aab1111"), ElementsAre(3, 4, 2, 2));  // 111 | 1
  file.model =
      R"({"type":"BPE","vocab":{"a":0,"b":1,"1":2,"aab":3,"11":4,"ab":5},"merges":[["a","b"],["1","1"]]})";
  EXPECT_THAT(encode(*load(file), "aab"), ElementsAre(0, 5));
}

TEST(JsonAddedTokens, LongestWinsAndSpecialOnesCanStayText) {
  File file;
  file.added =
      R"([{"id":10,"content":"<a>","special":true},{"id":11,"content":"<a>b","special":true},
                   {"id":12,"content":"[t]","special":false},
                   {"id":13,"content":"<s>","special":true,"lstrip":true,"rstrip":true}])";
  const auto tokenizer = load(file);
  EXPECT_THAT(encode(*tokenizer, "a<a>b[t]<a>a"), ElementsAre(0, 11, 12, 10, 0));
  EXPECT_THAT(encode(*tokenizer, "ab  <s> \n ab"), ElementsAre(2, 13, 2));
  EXPECT_THAT(encode(*tokenizer, "<a>b[t]", Tokenizer::Specials::as_text), ElementsAre(0, 1, 12));
  EXPECT_TRUE(tokenizer->is_control(10));
  EXPECT_FALSE(tokenizer->is_control(12));
  EXPECT_EQ(decode(*tokenizer, {0, 10, 12}), "a[t]");
  EXPECT_EQ(tokenizer->vocabulary(), 14U);
}

TEST(JsonPostProcessor, TemplatePutsBosFirst) {
  File file;
  file.added =
      R"([{"id":10,"content":"<bos>","special":true},{"id":11,"content":"<eos>","special":true}])";
  file.post_processor =
      R"({"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",
    "single":[{"SpecialToken":{"id":"<bos>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
    "pair":[],
    "special_tokens":{"<bos>":{"id":"<bos>","ids":[10],"tokens":["<bos>"]}}}]})";
  file.eos = "<eos>";
  const auto tokenizer = load(file);
  EXPECT_THAT(tokenizer->encode("a", Tokenizer::Specials::parse, Tokenizer::AddBos::if_model_does),
              ElementsAre(10, 0));
  EXPECT_THAT(encode(*tokenizer, "a"), ElementsAre(0));
  EXPECT_EQ(tokenizer->bos(), 10);
  EXPECT_EQ(tokenizer->eos(), 11);
  file.post_processor = "null";
  file.bos = "<bos>";
  file.add_bos = true;
  EXPECT_THAT(load(file)->encode("a", Tokenizer::Specials::parse, Tokenizer::AddBos::if_model_does),
              ElementsAre(10, 0));
}

// Llama 2: normalizer instead of pre-tokenizer, byte fallback, decoder in four steps.
File llama2() {
  File file;
  std::string bytes;
  for (int i = 0; i < 256; ++i) {
    const std::string_view digits = "0123456789ABCDEF";
    bytes += std::string("\"<0x") + digits[static_cast<std::size_t>(i / 16)] +
             digits[static_cast<std::size_t>(i % 16)] + ">\":" + std::to_string(i + 3) + ",";
  }
  file.added =
      R"([{"id":0,"content":"<unk>","special":true},{"id":1,"content":"<s>","special":true},{"id":2,"content":"</s>","special":true}])";
  file.normalizer =
      R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]})";
  file.pre_tokenizer = "null";
  file.decoder =
      R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},
                    {"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})";
  file.model =
      R"({"type":"BPE","dropout":null,"unk_token":"<unk>","fuse_unk":true,"byte_fallback":true,"vocab":{"<unk>":0,"<s>":1,"</s>":2,)" +
      bytes +
      R"("▁":259,"a":260,"b":261,"▁a":262,"ab":263,"▁ab":264,"▁▁":265},"merges":["a b","▁ a","▁ ab","▁ ▁"]})";
  return file;
}

TEST(JsonLlama2, MergesSpacesAndFallsBackToBytes) {
  const auto tokenizer = load(llama2());
  EXPECT_THAT(encode(*tokenizer, "ab a"), ElementsAre(264, 262));
  EXPECT_THAT(encode(*tokenizer, "a  b"), ElementsAre(262, 265, 261));
  EXPECT_THAT(encode(*tokenizer, "\u00e9"), ElementsAre(259, 3 + 0xC3, 3 + 0xA9));
  EXPECT_THAT(encode(*tokenizer, "a</s>b"), ElementsAre(262, 2, 259, 261));
  EXPECT_EQ(decode(*tokenizer, {264, 262, 3 + 0xC3, 3 + 0xA9}), "ab a\u00e9");
  EXPECT_EQ(decode(*tokenizer, {1, 265, 261}),
            " b");  // the Strip takes one space, after control tokens too
}

TEST(JsonLlama2, AnyBytes_ComeBack) {
  const auto tokenizer = load(llama2());
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    std::string text;
    for (std::uint64_t n = rng.below(40); n > 0; --n)
      text += rng.chance(0.5) ? " ab"[rng.below(3)] : static_cast<char>(rng.below(256));
    std::string back;
    Tokenizer::Place place = Tokenizer::Place::first;
    for (const TokenId token : encode(*tokenizer, text, Tokenizer::Specials::as_text)) {
      back += tokenizer->piece(token, place);
      place = Tokenizer::Place::later;
    }
    if (text.find("\xE2\x96\x81") != std::string::npos)
      continue;  // a visible space comes back as a space
    ASSERT_EQ(back, text) << "seed " << seed;
  }
}

TEST(JsonLlama2, WithoutByteFallback_UnknownRunsAreFused) {
  File file = llama2();
  file.model.replace(file.model.find("\"byte_fallback\":true"), 20, "\"byte_fallback\":false");
  EXPECT_THAT(encode(*load(file), "azz\u00e9b"), ElementsAre(262, 0, 261));
  file.model.replace(file.model.find("\"fuse_unk\":true"), 15, "\"fuse_unk\":false");
  EXPECT_THAT(encode(*load(file), "azz\u00e9b"), ElementsAre(262, 0, 0, 0, 261));
}

TEST(JsonUnigram, MetaspaceAndLikeliestCut) {
  File file;
  file.pre_tokenizer =
      R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true})";
  file.decoder = R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true})";
  file.model =
      R"({"type":"Unigram","unk_id":0,"vocab":[["<unk>",0.0],["▁",-3.0],["a",-2.0],["b",-2.5],["ab",-3.0],["▁a",-4.0]]})";
  const auto tokenizer = load(file);
  EXPECT_THAT(encode(*tokenizer, "ab a"), ElementsAre(1, 4, 5));
  EXPECT_THAT(encode(*tokenizer, "azzb"), ElementsAre(5, 0, 3));
  EXPECT_EQ(decode(*tokenizer, {1, 4, 5}), "ab a");
}

TEST(JsonNormalizer, NfcJoinsBeforeTheModelSees) {
  File file;
  file.normalizer = R"({"type":"NFC"})";
  EXPECT_THAT(encode(*load(file), "e\u0301"), ElementsAre(8));
}

TEST(JsonPreTokenizer, DigitsPunctuationAndWhitespace) {
  File file;
  file.pre_tokenizer =
      R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},
    {"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
  file.model =
      R"({"type":"BPE","vocab":{"1":0,"11":1,"a":2,"a1":3,"!":4,"a!":5},"merges":["1 1","a 1","a !"]})";
  EXPECT_THAT(encode(*load(file), "a11"), ElementsAre(2, 0, 0));
  file.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[{"type":"Punctuation"},
    {"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
  EXPECT_THAT(encode(*load(file), "a!11"), ElementsAre(2, 4, 1));
  file.pre_tokenizer =
      R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"String":"."},"behavior":"Removed"},
    {"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
  EXPECT_THAT(encode(*load(file), "1.1a"),
              ElementsAre(0, 0, 2));  // the dot is a dot, not any character
}

TEST(JsonTokenizer, UnknownComponents_AreRefusedByName) {
  const auto with = [](std::string File::*member, const char* text) {
    File file;
    file.*member = text;
    return refusal(file);
  };
  EXPECT_THAT(with(&File::normalizer, R"({"type":"Precompiled"})"),
              HasSubstr("tokenizer.json.normalizer: 'Precompiled' is not supported; supported: "));
  EXPECT_THAT(with(&File::normalizer,
                   R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"NFKC"}]})"),
              HasSubstr("tokenizer.json.normalizer.normalizers[1]: 'NFKC'"));
  EXPECT_THAT(with(&File::pre_tokenizer, R"({"type":"BertPreTokenizer"})"),
              HasSubstr("pre_tokenizer: 'BertPreTokenizer'"));
  EXPECT_THAT(with(&File::pre_tokenizer,
                   R"({"type":"Split","pattern":{"Regex":"a("},"behavior":"Isolated"})"),
              HasSubstr("offset"));
  EXPECT_THAT(
      with(&File::pre_tokenizer, R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Fancy"})"),
      HasSubstr("'Fancy'"));
  EXPECT_THAT(with(&File::decoder, R"({"type":"WordPiece"})"), HasSubstr("decoder: 'WordPiece'"));
  EXPECT_THAT(with(&File::post_processor, R"({"type":"RobertaProcessing"})"),
              HasSubstr("post_processor: 'RobertaProcessing'"));
  EXPECT_THAT(with(&File::model, R"({"type":"WordPiece","vocab":{}})"),
              HasSubstr("model: 'WordPiece'"));
  EXPECT_THAT(with(&File::model,
                   R"({"type":"BPE","vocab":{"a":0},"merges":[],"end_of_word_suffix":"</w>"})"),
              HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(with(&File::added, R"([{"id":10,"content":"x","single_word":true}])"),
              HasSubstr("added_tokens[0]: 'single_word'"));
}

TEST(JsonTokenizer, LyingFiles_AreRefusedWithThePlace) {
  const auto with = [](std::string File::*member, const char* text) {
    File file;
    file.*member = text;
    return refusal(file);
  };
  EXPECT_THAT(with(&File::model, R"({"type":"BPE","vocab":{"a":0,"b":0},"merges":[]})"),
              HasSubstr("token id 0 is taken by 'a'"));
  EXPECT_THAT(with(&File::model, R"({"type":"BPE","vocab":{"a":3999999},"merges":[]})"),
              HasSubstr("3999999 is out of range"));
  EXPECT_THAT(with(&File::model, R"({"type":"BPE","vocab":{"a":-1},"merges":[]})"),
              HasSubstr("-1 is out of range"));
  EXPECT_THAT(with(&File::model, R"({"type":"BPE","vocab":{"a":"x"},"merges":[]})"),
              HasSubstr("no whole number"));
  EXPECT_THAT(with(&File::model, R"({"type":"BPE","vocab":{"a":0},"merges":["a b"]})"),
              HasSubstr("model.merges[0]: 'a' and 'b'"));
  EXPECT_THAT(with(&File::model, R"({"type":"BPE","vocab":{"a":0},"merges":["a"]})"),
              HasSubstr("one space"));
  EXPECT_THAT(with(&File::model, R"({"type":"BPE","vocab":{"a":0}})"),
              HasSubstr("'merges' is missing"));
  EXPECT_THAT(with(&File::model, R"({"type":"BPE","vocab":[],"merges":[]})"),
              HasSubstr("model.vocab: want an object"));
  EXPECT_THAT(with(&File::model, R"({"type":"BPE","vocab":{"a":0},"merges":[],"unk_token":"<u>"})"),
              HasSubstr("unk_token '<u>'"));
  EXPECT_THAT(with(&File::added, R"([{"id":0,"content":"x"}])"), HasSubstr("token id 0 is taken"));
  EXPECT_THAT(with(&File::added, R"([{"id":10,"content":""}])"), HasSubstr("content has 0 bytes"));
  TokenizerSource source;
  source.tokenizer_json = "{\"a\": ";
  EXPECT_THAT(make_tokenizer(source).error().message,
              HasSubstr("tokenizer.json: not JSON at offset"));
  source.tokenizer_json = std::string(5000, '[');
  EXPECT_THAT(make_tokenizer(source).error().message, HasSubstr("not JSON"));
}

}  // namespace
}  // namespace infos
