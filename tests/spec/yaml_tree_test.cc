// SPDX-License-Identifier: Apache-2.0
// Goal: no text makes the YAML library hang, eat memory or throw through read_yaml. Method: its
// known traps and texts of the greatest size, under the test's time limit.
#include "topology/spec/yaml_tree.h"

#include <gtest/gtest.h>

#include "topology/spec/spec.h"

namespace infos {
namespace {

std::string repeat(std::string_view text, std::size_t bytes) {
  std::string out;
  while (out.size() + text.size() <= bytes) out += text;
  return out;
}

TEST(YamlTree, LoneComma_IsRefusedInsteadOfReadForEver) {
  for (const char* text :
       {",", "a: 1\n,", "- a\n- b\n: c\n,\n", "---\n,", ", ,", "]", "}", "[a]\n]"}) {
    const YamlText yaml = read_yaml(text);
    EXPECT_TRUE(yaml.problem.has_value()) << text;
  }
}

TEST(YamlTree, MarksCountFromOneInBytes) {
  const YamlText yaml = read_yaml("# \xC3\xA4\r\nkey: {a: \"\xC3\xA4\", b: 1}\n---\nx\n");
  ASSERT_FALSE(yaml.problem) << yaml.problem->message;
  ASSERT_EQ(yaml.documents.size(), 2U);
  const YamlNode& map = yaml.documents[0].values.at(0);
  EXPECT_EQ(map.line, 2U);
  EXPECT_EQ(map.column, 6U);
  EXPECT_TRUE(map.values.at(0).quoted);
  EXPECT_FALSE(map.values.at(1).quoted);
  EXPECT_EQ(yaml.documents[1].line, 4U);
}

TEST(YamlTree, BillionLaughs_StopsAtTheFirstAnchor) {
  const YamlText yaml = read_yaml("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n");
  ASSERT_TRUE(yaml.problem);
  EXPECT_NE(yaml.problem->message.find("anchor"), std::string::npos);
}

TEST(YamlTree, LargestTexts_AreReadOrRefused) {
  for (const char* unit :
       {"[",           "{",           "- ",         "? ",    "a: ",   "- - ", "[a, ",
        "{a: ",        "\"",          "'",          "|\n",   ">\n ",  "&a ",  "*a ",
        "!t ",         "%YAML 1.2\n", "%TAG ! x\n", "---\n", "...\n", "a\n",  "a: b\n",
        "\n",          " ",           "#",          "# c\n", "[]",    "{}",   ",",
        "\"\\u0041\"", "a: [b\n",     "- a\n-b\n",  "?\n",   ":\n",   ": ",   "{a, b}, ",
        "\\",          "\"\\x",       "\xC3\xA4"}) {
    const std::string text = repeat(unit, kSpecBytesMax);
    const YamlText yaml = read_yaml(text);
    EXPECT_LE(yaml.documents.size(), kSpecDocumentsMax) << unit;
  }
  EXPECT_TRUE(read_yaml(std::string(kSpecBytesMax + 1, 'a')).problem);
}

TEST(YamlTree, UnclosedQuotes_AreRefused) {
  for (const char* text : {"a: \"b", "a: 'b", "a: \"b\\\"", "a: 'b''", "a: \"b\nc", "\"", "'"})
    EXPECT_TRUE(read_yaml(text).problem.has_value()) << text;
  for (const char* text :
       {"a: \"b\"", "a: 'b'", "a: \"b\\\"\"", "a: 'b'''", "a: \"\"", "a: ''", "a: |\n  'text\n"})
    EXPECT_FALSE(read_yaml(text).problem.has_value()) << text;
}

}  // namespace
}  // namespace infos
