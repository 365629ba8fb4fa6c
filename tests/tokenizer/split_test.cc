// SPDX-License-Identifier: Apache-2.0
// Goal: words are cut as the models' own tokenizers cut them. Method: tables worked out by hand
// from the published patterns, each split behaviour on one text, and bytes that are not UTF-8.
#include "daemon/gateway/text/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace infos::text {
namespace {

using testing::ElementsAre;

std::vector<std::string> cut(const Splitter& splitter, std::string_view text,
                             Splitter::At at = Splitter::At::text_begin) {
  Words words;
  splitter.cut(text, at, words);
  std::vector<std::string> out;
  for (const auto& range : words.ranges)
    out.emplace_back(words.text.substr(range.begin, range.end - range.begin));
  return out;
}

std::vector<std::string> cut_by_name(std::string_view name, std::string_view text) {
  return cut(make_pre_tokenizer(name).value().splitter, text);
}

TEST(PreTokenizer, Gpt2_SplitsContractionsWordsNumbersAndSpaces) {
  EXPECT_THAT(cut_by_name("gpt-2", "Hello world! I'm 1234  years   old.\n\n x"),
              ElementsAre("Hello", " world", "!", " I", "'m", " 1234", " ", " years", "  ", " old",
                          ".", "\n\n", " x"));
  EXPECT_THAT(cut_by_name("gpt-2", "trailing   "), ElementsAre("trailing", "   "));
  EXPECT_THAT(cut_by_name("gpt-2", "It'S"),
              ElementsAre("It", "'", "S"));  // contractions are lower case only
}

TEST(PreTokenizer, Llama3_GroupsDigitsInThreesAndTakesOneSignIntoAWord) {
  EXPECT_THAT(
      cut_by_name("llama-bpe", "It'S 12345 (foo)\r\n\tbar, caf\u00e9"),
      ElementsAre("It", "'S", " ", "123", "45", " (", "foo", ")\r\n", "\tbar", ",", " caf\u00e9"));
  EXPECT_THAT(cut_by_name("llama-bpe", "a  \n  b"), ElementsAre("a", "  \n", " ", " b"));
  EXPECT_THAT(cut_by_name("llama-bpe", "\u4f60\u597d\uff01 \U0001F600x"),
              ElementsAre("\u4f60\u597d", "\uff01", " \U0001F600", "x"));
}

TEST(PreTokenizer, Qwen2_TakesDigitsOneByOne) {
  EXPECT_THAT(cut_by_name("qwen2", "x = 123;\n"),
              ElementsAre("x", " =", " ", "1", "2", "3", ";\n"));
}

TEST(PreTokenizer, Tekken_CutsAtCapitals) {
  EXPECT_THAT(cut_by_name("tekken", "HelloWorld ABCdef 42 a/b//\n"),
              ElementsAre("Hello", "World", " ABCdef", " ", "4", "2", " a", "/b", "//\n"));
}

TEST(PreTokenizer, Gpt4o_KeepsContractionsOnTheWord) {
  EXPECT_THAT(cut_by_name("gpt-4o", "I'm DON'T 1234"),
              ElementsAre("I'm", " DON'T", " ", "123", "4"));
}

TEST(PreTokenizer, Default_CutsPunctuationAndDigitsInThrees) {
  EXPECT_THAT(cut_by_name("default", "a==b 12345"), ElementsAre("a", "==", "b", " ", "123", "45"));
  EXPECT_THAT(cut_by_name("", "a==b"), ElementsAre("a", "==", "b"));
}

TEST(PreTokenizer, Starcoder_CutsDigitsFirst) {
  EXPECT_THAT(cut_by_name("starcoder", "ab 12 c"), ElementsAre("ab", " ", "1", "2", " c"));
}

TEST(PreTokenizer, UnknownName_IsRefusedWithTheKnownOnes) {
  const auto result = make_pre_tokenizer("klingon");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::unsupported);
  EXPECT_NE(result.error().message.find("'klingon'"), std::string::npos);
  EXPECT_NE(result.error().message.find("llama-bpe"), std::string::npos);
}

TEST(PreTokenizer, BytesThatAreNotUtf8_AreWordsOfTheirOwn) {
  EXPECT_THAT(cut_by_name("llama-bpe", "ab\xFF\xFE cd\xC3"),
              ElementsAre("ab", "\xFF\xFE", " cd", "\xC3"));
}

// The words must be the text again, whatever it is.
TEST(PreTokenizer, EveryName_LosesNothing) {
  const std::string text = "A \xF0\x9F\x98\x80 b\xFF 12 \n\n\t'll \u0301x  ";
  for (const char* name :
       {"default", "gpt-2", "llama-bpe", "qwen2", "tekken", "gpt-4o", "smollm"}) {
    std::string joined;
    for (const std::string& word : cut_by_name(name, text)) joined += word;
    EXPECT_EQ(joined, text) << name;
  }
}

TEST(RegexSplit, EachBehavior_OnOneText) {
  using Behavior = RegexSplit::Behavior;
  const auto with = [](Behavior behavior, RegexSplit::Invert invert = RegexSplit::Invert::no) {
    Splitter splitter;
    splitter.add(RegexSplit{Regex::compile("-").value(), behavior, invert});
    return cut(splitter, "the-final--countdown");
  };
  EXPECT_THAT(with(Behavior::removed), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(with(Behavior::isolated), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(with(Behavior::merged_with_previous),
              ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(with(Behavior::merged_with_next), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(with(Behavior::contiguous), ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(with(Behavior::removed, RegexSplit::Invert::yes), ElementsAre("-", "-", "-"));
}

TEST(RegexSplit, PatternThatNeedsTooManySteps_LeavesOneWordAndReturns) {
  Splitter splitter;
  splitter.add(RegexSplit{Regex::compile("(a|aa|aaa)+c").value()});
  const std::string text(200, 'a');
  EXPECT_THAT(cut(splitter, text), ElementsAre(text));
}

TEST(RegexSplit, EmptyMatches_AreSkipped) {
  Splitter splitter;
  splitter.add(RegexSplit{Regex::compile("b*").value()});
  EXPECT_THAT(cut(splitter, "abba"), ElementsAre("a", "bb", "a"));
}

TEST(Regex, BadPattern_SaysWhere) {
  const auto result = Regex::compile("a(b");
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("'a(b', offset 3"), std::string::npos)
      << result.error().message;
}

TEST(Metaspace, PrependsAndCuts) {
  Splitter always, first, never, uncut;
  always.add(MetaspaceStep{});
  first.add(MetaspaceStep{"_", MetaspaceStep::Prepend::first, MetaspaceStep::Cut::yes});
  never.add(MetaspaceStep{"_", MetaspaceStep::Prepend::never, MetaspaceStep::Cut::yes});
  uncut.add(MetaspaceStep{"_", MetaspaceStep::Prepend::always, MetaspaceStep::Cut::no});
  EXPECT_THAT(cut(always, "Hey  you"), ElementsAre("\u2581Hey", "\u2581", "\u2581you"));
  EXPECT_THAT(cut(always, " Hey"), ElementsAre("\u2581Hey"));
  EXPECT_THAT(cut(first, "Hey you"), ElementsAre("_Hey", "_you"));
  EXPECT_THAT(cut(first, "Hey you", Splitter::At::later), ElementsAre("Hey", "_you"));
  EXPECT_THAT(cut(never, "Hey you"), ElementsAre("Hey", "_you"));
  EXPECT_THAT(cut(uncut, "Hey you"), ElementsAre("_Hey_you"));
}

}  // namespace
}  // namespace infos::text
