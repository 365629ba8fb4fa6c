// SPDX-License-Identifier: Apache-2.0
// Goal: decoding is strict and never fails, encoding is its inverse, form C is Unicode's. Method:
// all code points, tables of bad bytes, and conformance lines computed by another implementation
// (Python's unicodedata 14).
#include "daemon/gateway/text/utf8.h"

#include <gtest/gtest.h>

#include "daemon/gateway/text/nfc.h"

namespace infos::text {
namespace {

TEST(Utf8, EveryCodePoint_EncodesAndDecodesBack) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    std::string text;
    append_utf8(text, code);
    const Decoded decoded = decode_utf8(text, 0);
    ASSERT_TRUE(decoded.valid) << static_cast<unsigned>(code);
    ASSERT_EQ(decoded.length, text.size());
    const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    ASSERT_TRUE(decoded.code == (surrogate ? kReplacement : code)) << static_cast<unsigned>(code);
    for (std::size_t cut = 1; cut < text.size(); ++cut)
      ASSERT_EQ(unfinished_suffix("a" + text.substr(0, cut)), cut);
    ASSERT_EQ(unfinished_suffix(text), 0U);
  }
}

TEST(Utf8, BadBytes_BecomeOneReplacementEach) {
  EXPECT_EQ(make_valid_utf8("a\x80z"), "a\uFFFDz");
  EXPECT_EQ(make_valid_utf8("\xC0\xAF"), "\uFFFD\uFFFD");                      // overlong
  EXPECT_EQ(make_valid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");            // surrogate
  EXPECT_EQ(make_valid_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // above U+10FFFF
  EXPECT_EQ(make_valid_utf8("\xE2\x96"), "\uFFFD\uFFFD");                      // cut short
  EXPECT_EQ(unfinished_suffix("\xC0"), 0U);
  EXPECT_EQ(unfinished_suffix("\xED\xA0"), 0U);  // can never become a character
  EXPECT_EQ(unfinished_suffix("\x80\x80\x80"), 0U);
}

TEST(Utf8, ValidRuns_CoverTheTextInOrder) {
  const std::string text = "ab\xFF\xFE\u00e9\xC3";
  const auto runs = valid_runs(text);
  ASSERT_EQ(runs.size(), 4U);
  EXPECT_EQ(runs[0].text, "ab");
  EXPECT_EQ(runs[1].text, "\xFF\xFE");
  EXPECT_FALSE(runs[1].valid);
  EXPECT_EQ(runs[2].text, "\u00e9");
  EXPECT_EQ(runs[3].text, "\xC3");
}

TEST(Nfc, ComposesReordersAndKeepsExclusions) {
  EXPECT_EQ(to_nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(to_nfc("a\u0323\u0302"), "\u1ead");       // both marks
  EXPECT_EQ(to_nfc("a\u0302\u0323"), "\u1ead");       // put in order first
  EXPECT_EQ(to_nfc("\u212b"), "\u00c5");              // Angstrom sign
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093c");        // composition exclusion
  EXPECT_EQ(to_nfc("\u1112\u1161\u11ab"), "\ud55c");  // Hangul
  EXPECT_EQ(to_nfc("\uac00\u11a8"), "\uac01");
  EXPECT_EQ(to_nfc("a\u0305\u0301"), "a\u0305\u0301");  // blocked by the same class
  EXPECT_EQ(to_nfc("\u0344"), "\u0308\u0301");
  EXPECT_EQ(to_nfc("\U0001d15e"), "\U0001d157\U0001d165");
  EXPECT_EQ(to_nfc("plain"), "plain");
}

TEST(Nfc, BadBytes_PassAndEndTheSequence) { EXPECT_EQ(to_nfc("e\xFF\u0301"), "e\xFF\u0301"); }

// Every code point, alone and after a base and a mark, hashed. The number is that of Python's
// unicodedata 14.0.0:
//   h = 1469598103934665603; for each byte b of NFC(text).encode(): h = ((h ^ b) * 1099511628211) %
//   2**64
TEST(Nfc, EveryCodePoint_AgreesWithASecondImplementation) {
  std::uint64_t hash = 1469598103934665603ULL;
  for (char32_t code = 1; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, code);
    append_utf8(text, 0x0301);
    append_utf8(text, 0x0061);
    append_utf8(text, 0x0302);
    append_utf8(text, code);
    append_utf8(text, 0x0323);
    for (const char c : to_nfc(text))
      hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  EXPECT_EQ(hash, 13858360704496026765ULL);
}

}  // namespace
}  // namespace infos::text
