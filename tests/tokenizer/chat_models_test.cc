// SPDX-License-Identifier: Apache-2.0
// Goal: templates shaped as those of Llama 3, Qwen, Mistral and ChatML give the prompts that their
// models were trained on, to the byte. Method: templates written here from the models' published
// formats, with the exact prompt beside each.
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

Input talk() {
  Input input;
  input.messages = {{"system", "Be brief.", ""},
                    {"user", " Hi there ", ""},
                    {"assistant", "Hello!", ""},
                    {"user", "Bye", ""}};
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  return input;
}

constexpr std::string_view kChatMl = R"({% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}
{%- endfor %}

{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
)";

TEST(ChatTemplate, ChatMl_MarksEachTurn) {
  EXPECT_EQ(
      render(
          R"({% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})",
          talk()),
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi there <|im_end|>\n"
      "<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>"
      "assistant\n");
  Input input = talk();
  input.add_generation_prompt = false;
  input.messages.resize(1);
  EXPECT_EQ(render(kChatMl, input), "<|im_start|>system\nBe brief.<|im_end|>\n");
}

constexpr std::string_view kLlama3 = R"({{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{#- The system message goes into a slot of its own. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\n" }}
{{- "Today Date: " + date_string + "\n\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("No first user message to put the tools into") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' -}}
    {{- "Functions you may call:\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+
            message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One call at a time") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
)";

TEST(ChatTemplate, Llama3_SystemDateAndTrimmedTurns) {
  Input input = talk();
  input.bos_token = "<|begin_of_text|>";
  EXPECT_EQ(render(kLlama3, input),
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge "
            "Date: December 2023\n"
            "Today Date: 26 Jul 2024\n\nBe "
            "brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi there<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|><|start_header_id|>"
            "user<|end_header_id|>\n\nBye<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST(ChatTemplate, Llama3_ToolsAndTheirCalls) {
  Input input;
  input.bos_token = "B";
  input.add_generation_prompt = false;
  input.extra_json =
      R"({"date_string":"1 Jan 2026","tools":[{"name":"f","parameters":{"x":1,"s":"a\"b"}}],"messages":[
    {"role":"user","content":"q"},
    {"role":"assistant","tool_calls":[{"function":
      {"name":"f","arguments":{"x":[1,2.5],"y":null}}}]},
    {"role":"tool","content":{"ok":true}}]})";
  EXPECT_EQ(
      render(kLlama3, input),
      "B<|start_header_id|>system<|end_header_id|>\n\nEnvironment: ipython\nCutting Knowledge "
      "Date: December 2023\n"
      "Today Date: 1 Jan 2026\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nFunctions "
      "you may call:\n\n"
      "{\n    \"name\": \"f\",\n    \"parameters\": {\n        \"x\": 1,\n        \"s\": "
      "\"a\\\"b\"\n    }\n}\n\nq<|eot_id|>"
      "<|start_header_id|>assistant<|end_header_id|>\n\n{\"name\": \"f\", \"parameters\": {\"x\": "
      "[1, 2.5], \"y\": null}}<|eot_id|>"
      "<|start_header_id|>ipython<|end_header_id|>\n\n{\"ok\": true}<|eot_id|>");
}

// Qwen 3: where the last real question is, found from the end; thinking parts of older answers are
// left out.
constexpr std::string_view kQwen3 = R"({%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string and
           not(message.content.startswith('<tool_response>') and
               message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning =
                content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or (not loop.last and reasoning)) %}
            {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning.strip('\n') +
                '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %})";

TEST(ChatTemplate, Qwen3_DropsOldThinkingAndGroupsToolAnswers) {
  Input input;
  input.messages = {{"system", "S", ""},
                    {"user", "1", ""},
                    {"assistant", "<think>\nhm\n</think>\n\nA", ""},
                    {"user", "2", ""},
                    {"assistant", "<think>\nso\n</think>\n\nB", ""},
                    {"tool", "x", ""},
                    {"tool", "y", ""}};
  input.extra_json = R"({"enable_thinking": false})";
  EXPECT_EQ(
      render(kQwen3, input),
      "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\nA<|"
      "im_end|>\n"
      "<|im_start|>user\n2<|im_end|>\n<|im_start|>assistant\n<think>\nso\n</think>\n\nB<|im_end|>\n"
      "<|im_start|>user\n<tool_response>\nx\n</tool_response>\n<tool_response>\ny\n</"
      "tool_response><|im_end|>\n"
      "<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

constexpr std::string_view kQwen2 =
    R"({% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful assistant.<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %})";

TEST(ChatTemplate, Qwen2_PutsItsOwnSystemMessageFirst) {
  Input input;
  input.messages = {{"user", "Hi", ""}};
  EXPECT_EQ(render(kQwen2, input),
            "<|im_start|>system\nYou are a helpful "
            "assistant.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

constexpr std::string_view kMistral = R"({%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Turns of user and assistant must alternate') }}
    {%- endif %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- else %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- endif %}
{%- endfor %}
)";

TEST(ChatTemplate, Mistral_AlternatesAndRefusesOtherwise) {
  EXPECT_EQ(render(kMistral, talk()),
            "<s>[INST]  Hi there [/INST] Hello!</s>[INST] Be brief.\n\nBye[/INST]");
  Input input = talk();
  input.messages.erase(input.messages.begin() + 1);
  EXPECT_THAT(render(kMistral, input),
              StartsWith("RENDER: chat template 10:28: the template refuses: Turns of user"));
}

TEST(ChatTemplate, LongConversation_StaysFarFromTheLimits) {
  Input input;
  for (int i = 0; i < 2000; ++i)
    input.messages.push_back({i % 2 ? "assistant" : "user", std::string(500, 'x'), ""});
  EXPECT_EQ(render(kQwen3, input).substr(0, 19), "<|im_start|>user\nxx");
}

}  // namespace
}  // namespace infos
