// SPDX-License-Identifier: Apache-2.0
// Goal: the template language works as Jinja does where chat templates use it, says where it fails,
// and cannot run away. Method: tables of small templates with their exact output or error; hostile
// templates that must end in an error.
#include "daemon/gateway/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace infos {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Input = ChatTemplate::Input;

std::string render(std::string_view text, const Input& input = {}) {
  const auto parsed = ChatTemplate::parse(text);
  if (!parsed.ok()) return "PARSE: " + parsed.error().message;
  const auto out = parsed.value()->render(input);
  return out.ok() ? *out : "RENDER: " + out.error().message;
}

TEST(ChatTemplate, WhiteSpaceControl_IsJinjas) {
  EXPECT_EQ(render("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"),
            "a\n  b\nc");  // trim_blocks, lstrip_blocks, last newline
  EXPECT_EQ(render("a {%- if true -%} b {%- endif -%} c"), "abc");
  EXPECT_EQ(render("a {% if true %} b {% endif %} c"), "a  b  c");  // no line begins there
  EXPECT_EQ(render("  {{ 1 }}\n  {# x #}\n2"), "  1\n2");
  EXPECT_EQ(render("x\n  {%+ if true %}y{% endif %}"), "x\n  y");
  EXPECT_EQ(render("{% if true +%}\ny{% endif %}"), "\ny");
  EXPECT_EQ(render("{{- 'a' -}}  \n b"), "ab");
  EXPECT_EQ(render("{% raw %}{{ x }}{% endraw %}"), "{{ x }}");
  EXPECT_EQ(render("a\r\nb\r\n"), "a\nb");
  EXPECT_EQ(render("{% generation %}x{% endgeneration %}"), "x");
}

struct Case {
  const char* text;
  const char* want;
};

TEST(ChatTemplate, Expressions) {
  const std::vector<Case> cases = {
      {"{{ 1 + 2 * 3 ** 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 6 / 3 }} {{ "
       "2.0 }} {{ 1e20 }} {{ 2 ** -1 }}",
       "19 3 -4 2 3.5 2.0 2.0 1e+20 0.5"},
      {"{{ 'a' ~ 1 ~ none ~ true ~ 1.5 }}", "a1NoneTrue1.5"},
      {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' in 'cat' }} {{ 3 not in [1, 2] }} {{ 'k' in {'k': "
       "1} }}",
       "True False True True True"},
      {"{{ 'x' if false else 'y' }} [{{ 'x' if false }}] {{ not false and 1 or 2 }}", "y [] 1"},
      {"{{ [1, 'a', none, true, {'k': 'v\\'s'}] }}", "[1, 'a', None, True, {'k': \"v's\"}]"},
      {"{{ 'hello'[1:3] }} {{ 'hello'[::-1] }} {{ [1, 2, 3][-1] }} {{ [1, 2, 3][:-1] }} {{ "
       "'h\u00e9llo'[1] }}",
       "el olleh 3 [1, 2] \u00e9"},
      {"{{ {'a': {'b': [10, 20]}}.a.b[1] }} {{ [[1, 2], [3]].1 }}", "20 [3]"},
      {"{{ 'ab' * 2 }} {{ [1] + [2] }} {{ 3 * 'x' }}", "abab [1, 2] xxx"},
      {"{{ x is defined }} {{ x is undefined }} {{ none is none }} {{ 1 is number }} {{ 'a' is "
       "string }} {{ {} is mapping }}",
       "False True True True True True"},
      {"{{ 4 is even }} {{ 4 is odd }} {{ 9 is divisibleby 3 }} {{ 1 is eq 1 }} {{ 2 is in [1, 2] "
       "}} {{ 1 is not string }}",
       "True False True True True True"},
      {"{{ 'a' 'b' }} {{ '\\u00e9\\x41\\n' }}|", "ab \u00e9A\n|"},
      {"[{{ missing }}] {{ missing == none }} {{ missing or 'd' }} {{ 'x' in missing }}",
       "[] False d False"},
      {"{% set a, b = [1, 2] %}{{ a }}{{ b }} {{ (1, 2) }} {{ (1) }}", "12 [1, 2] 1"},
  };
  for (const Case& one : cases) EXPECT_EQ(render(one.text), one.want) << one.text;
}

TEST(ChatTemplate, FiltersAndMethods) {
  const std::vector<Case> cases = {
      {"{{ '  x ' | trim }}|{{ 'xxaxx'.strip('x') }}|{{ ' a'.lstrip() }}|{{ 'a '.rstrip() }}",
       "x|a|a|a"},
      {"{{ [1, 2] | join(', ') }} {{ ['a', 'b'] | join }} {{ [{'n': 1}, {'n': 2}] | join('-', "
       "attribute='n') }}",
       "1, 2 ab 1-2"},
      {"{{ x | default('d') }} {{ '' | default('d') }}. {{ '' | default('d', true) }}", "d . d"},
      {"{{ {'b': [1, true, none, 'q\"\\n\u00e9'], 'a': 1.0} | tojson }}",
       "{\"b\": [1, true, null, \"q\\\"\\n\u00e9\"], \"a\": 1.0}"},
      {"{{ {'b': 1, 'a': []} | tojson(indent=2) }}", "{\n  \"b\": 1,\n  \"a\": []\n}"},
      {"{{ 'aBc' | upper }} {{ 'aBc' | lower }} {{ 'it is' | title }} {{ 'aBC' | capitalize }}",
       "ABC abc It Is Abc"},
      {"{{ 'a-b-a' | replace('a', 'xx') }} {{ 'aaa'.replace('a', 'b', 2) }}", "xx-b-xx bba"},
      {"{{ [3, 1, 2] | sort }} {{ [1, 2] | reverse | list }} {{ [1, 1, 2] | unique }} {{ [1, 5, 2] "
       "| max }}",
       "[1, 2, 3] [2, 1] [1, 2] 5"},
      {"{{ [1, 2] | first }}{{ [1, 2] | last }} {{ 'h\u00e9' | length }} {{ '12' | int + 1 }} {{ "
       "'1.5' | float }} {{ 3 | string + 'x' }}",
       "12 2 13 1.5 3x"},
      {"{{ [{'r': 'u'}, {'r': 'a'}] | selectattr('r', 'equalto', 'u') | list }} {{ [1, 2, 3] | "
       "reject('odd') | list }}",
       "[{'r': 'u'}] [2]"},
      {"{{ [{'r': 'u'}] | map(attribute='r') | list }} {{ ['a'] | map('upper') | list }}",
       "['u'] ['A']"},
      {"{% for k, v in {'b': 1, 'a': 2} | dictsort %}{{ k }}{{ v }}{% endfor %} {% for k, v in "
       "{'b': 1}.items() %}{{ k }}{{ v }}{% endfor %}",
       "a2b1 b1"},
      {"{{ 'a,b,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.rsplit(',', 1) }} {{ "
       "'a,b,c'.split(',', 1)[-1] }}",
       "['a', 'b', 'c'] ['a', 'b'] ['a,b', 'c'] b,c"},
      {"{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'abc'.find('c') }} {{ "
       "'aXa'.count('a') }}",
       "True True 2 2"},
      {"{{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b', 7) }} {{ {'a': 1}.keys() | list }} {{ 'x\ny' "
       "| indent(2) }}",
       "1 7 ['a'] x\n  y"},
  };
  for (const Case& one : cases) EXPECT_EQ(render(one.text), one.want) << one.text;
}

TEST(ChatTemplate, StatementsAndScopes) {
  const std::vector<Case> cases = {
      {"{% for i in range(3) %}{{ loop.index }}{{ loop.first }}{{ loop.last }} {% endfor %}",
       "1TrueFalse 2FalseFalse 3FalseTrue "},
      {"{% for i in [] %}x{% else %}none{% endfor %}", "none"},
      {"{% for i in [1, 2, 3, 4] if i is even %}{{ i }}{{ loop.index0 }} {% endfor %}", "20 41 "},
      {"{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break "
       "%}{% endif %}{{ i }}{% endfor %}",
       "02"},
      {"{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}",
       "1"},  // a loop's scope is its own
      {"{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}", "2"},
      {"{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ "
       "ns.n }}",
       "3"},
      {"{% set b %}a{{ 1 }}{% endset %}[{{ b }}]", "[a1]"},
      {"{% macro m(a, b=2) %}<{{ a }}{{ b }}>{% endmacro %}{{ m(1) }}{{ m(1, b=3) }}{{ m('x', 'y') "
       "| upper }}",
       "<12><13><XY>"},
      {"{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
       "3210"},
      {"{% set v = 1 %}{% macro m() %}{{ v }}{{ i }}{% endmacro %}{% for i in [5] %}{{ m() }}{% "
       "endfor %}",
       "1"},  // sees no loop variables
      {"{% if false %}a{% elif 0 %}b{% elif 1 %}c{% else %}d{% endif %}", "c"},
      {"{% for a in [1, 2] %}{% for b in 'xy' %}{{ loop.index }}{{ a }}{{ b }} {% endfor %}{% "
       "endfor %}",
       "11x 21y 12x 22y "},
      {"{% for x in [1, 2, 3] %}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}", "2;13;2;"},
  };
  for (const Case& one : cases) EXPECT_EQ(render(one.text), one.want) << one.text;
}

TEST(ChatTemplate, Errors_SayWhereAndWhat) {
  const std::vector<Case> cases = {
      {"ab\n{{ x", "PARSE: chat template 2:1: the tag is not closed"},
      {"{% if x %}",
       "PARSE: chat template 1:11: the block that begins here is not closed, want 'endif'"},
      {"{% include 'f' %}",
       "PARSE: chat template 1:4: the tag 'include' is not supported; supported: if, for"},
      {"{{ 1 + }}", "PARSE: chat template 1:8: found '}}', want an expression"},
      {"{{ 'a }}", "PARSE: chat template 1:4: the string is not closed"},
      {"{{ (1 }}", "PARSE: chat template 1:7: '}' closes nothing"},
      {"{{ a ? b }}", "PARSE: chat template 1:6: the character '?'"},
      {"{{ f(*a) }}", "PARSE: chat template 1:6: '*' before an argument is not supported"},
      {"{% break %}", "PARSE: chat template 1:4: 'break' outside of a loop"},
      {"{{ 99999999999999999999 }}",
       "PARSE: chat template 1:4: the number 99999999999999999999 is out of range"},
      {"x\n  {{ a.b }}", "RENDER: chat template 2:7: 'a' is undefined"},
      {"{{ 1 + 'a' }}",
       "RENDER: chat template 1:6: '+' does not work between an integer and a string"},
      {"{{ 'a' | frobnicate }}",
       "RENDER: chat template 1:8: the filter 'frobnicate' is not supported; supported: abs"},
      {"{{ 1 is frob }}", "RENDER: chat template 1:6: the test 'frob' is not supported"},
      {"{{ 'a'.frob() }}", "RENDER: chat template 1:12: a string has no method 'frob'"},
      {"{{ [].append(1) }}", "RENDER: chat template 1:13: a list has no method 'append'"},
      {"{{ frob() }}", "RENDER: chat template 1:8: 'frob' is undefined, so it cannot be called"},
      {"{{ strftime_now('%Y') }}", "RENDER: chat template 1:16: 'strftime_now' is not supported"},
      {"{{ 1 // 0 }}", "RENDER: chat template 1:6: division by zero"},
      {"{{ 9223372036854775807 + 1 }}",
       "RENDER: chat template 1:24: the result of '+' is out of range"},
      {"{{ 'a' < 1 }}", "RENDER: chat template 1:8: a string and an integer cannot be ordered"},
      {"{% for a in 5 %}{% endfor %}",
       "RENDER: chat template 1:4: an integer cannot be looped over"},
      {"{% for a, b in [[1]] %}{% endfor %}",
       "RENDER: chat template 1:4: found 1 values for 2 variables"},
      {"{{ 'x' | join(sep=1) }}", "RENDER: chat template 1:8: join has no parameter 'sep'"},
      {"{% set a.b = 1 %}", "RENDER: chat template 1:4: 'a' is no namespace"},
      {"{{ raise_exception('no') }}", "RENDER: chat template 1:19: the template refuses: no"},
  };
  for (const Case& one : cases) EXPECT_THAT(render(one.text), StartsWith(one.want)) << one.text;
}

TEST(ChatTemplate, ExtraVariables_MustBeAnObject) {
  Input input;
  input.extra_json = "[1]";
  EXPECT_THAT(render("x", input),
              HasSubstr("template variables: found a list, want a JSON object"));
  input.extra_json = "{";
  EXPECT_THAT(render("x", input), HasSubstr("template variables: not JSON"));
}

TEST(ChatTemplate, RunawayTemplates_EndInAnError) {
  const std::vector<Case> cases = {
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
       "too many steps"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nests deeper"},
      {"{{ 'x' * 999999999999 }}", "more than"},
      {"{{ [1] * 999999999999 }}", "holds too much"},
      {"{{ range(1000000000) }}", "range has more than"},
      {"{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s "
       "%}{% endfor %}",
       "more than"},
      {"{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s "
       "%}{% endfor %}",
       "more than"},
      {"{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% "
       "endfor %}{{ ns.l }}",
       "holds too much"},
      {"{% set ns = namespace(l=[]) %}{% for i in range(99) %}{% set ns.l = [ns.l] %}{% endfor %}",
       "nested deeper"},
      {"{% set ns = namespace() %}{% set ns.a = ns %}", "cannot be kept in a namespace"},
      {"{{ [namespace()] }}", "cannot be put into a list"},
      {"{% for i in range(9000) %}{{ 'x' * 1000 }}{% endfor %}", "more than"},
      {"{{ ('a' * 100000) | replace('a', 'b' * 100000) }}", "more than"},
      {"{{ (['a' * 10000] * 1000) | join('b' * 10000) }}", "more than"},
      {"{{ {} | tojson(indent=1000000) }}", "want 0 to 16"},
  };
  for (const Case& one : cases) EXPECT_THAT(render(one.text), HasSubstr(one.want)) << one.text;
  std::string deep = "{{ ";
  for (int i = 0; i < 5000; ++i) deep += "(";
  EXPECT_THAT(render(deep), HasSubstr("PARSE"));
  EXPECT_THAT(render("{{ " + std::string(5000, '[') + std::string(5000, ']') + " }}"),
              HasSubstr("nested deeper"));
  std::string sum = "{{ 1";
  for (int i = 0; i < 5000; ++i) sum += "+1";
  EXPECT_THAT(render(sum + " }}"), HasSubstr("nested deeper"));
  std::string ifs;
  for (int i = 0; i < 5000; ++i) ifs += "{% if 1 %}";
  EXPECT_THAT(render(ifs), HasSubstr("nested deeper"));
  EXPECT_THAT(render(std::string(300 << 10, 'x')), HasSubstr("bytes, want at most"));
}

}  // namespace
}  // namespace infos
