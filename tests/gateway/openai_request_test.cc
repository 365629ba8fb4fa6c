// SPDX-License-Identifier: Apache-2.0
// Goal: bodies of the OpenAI API are read as its documentation says; what is not served is refused
// by name. Method: tables of bodies with the parameter at fault.
#include "daemon/gateway/openai_request.h"

#include <gtest/gtest.h>

namespace infos {
namespace {

const RequestLimits kLimits;

GenerateRequest good(Api api, const std::string& body) {
  auto result = parse_generate(api, body, kLimits);
  if (const auto* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << body << "\n" << error->message;
    return {};
  }
  return std::get<0>(result);
}

ApiError bad(Api api, const std::string& body, const RequestLimits& limits = kLimits) {
  auto result = parse_generate(api, body, limits);
  if (result.index() == 0) {
    ADD_FAILURE() << "accepted: " << body;
    return {};
  }
  return std::get<1>(result);
}

std::string chat(const std::string& more) {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}])" +
         (more.empty() ? "" : "," + more) + "}";
}
std::string completion(const std::string& more) {
  return R"({"model":"m","prompt":"hi")" + (more.empty() ? "" : "," + more) + "}";
}

TEST(OpenAiRequest, PlainChat_LeavesDefaultsToTheModel) {
  const auto r = good(Api::chat, chat(""));
  EXPECT_EQ(r.model, "m");
  ASSERT_EQ(r.messages.size(), 1u);
  EXPECT_EQ(r.messages[0].role, "user");
  EXPECT_EQ(r.messages[0].content, "hi");
  EXPECT_EQ(r.n, 1u);
  EXPECT_FALSE(r.stream);
  EXPECT_FALSE(r.temperature || r.top_p || r.top_k || r.seed || r.max_tokens);
  EXPECT_EQ(r.top_logprobs, -1);
}

TEST(OpenAiRequest, EveryServedParameter_IsRead) {
  const auto r =
      good(Api::chat,
           chat(R"("n":3,"stop":["a","b"],"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,
      "presence_penalty":-1,"frequency_penalty":2,"repetition_penalty":1.1,
      "logit_bias":{"7":-100,"3":1.5},"seed":-1,
      "max_tokens":5,"max_completion_tokens":9,"stream":true,
      "stream_options":{"include_usage":true},"logprobs":true,
      "top_logprobs":4,"ignore_eos":true,"stop_token_ids":[1,2],
      "chat_template_kwargs":{"a":1},"user":"u",
      "add_generation_prompt":false)"));
  EXPECT_EQ(r.n, 3u);
  EXPECT_EQ(r.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r.temperature, 0.5);
  EXPECT_EQ(r.top_p, 0.9);
  EXPECT_EQ(r.top_k, 40);
  EXPECT_EQ(r.min_p, 0.1);
  EXPECT_EQ(r.presence_penalty, -1.0);
  EXPECT_EQ(r.frequency_penalty, 2.0);
  EXPECT_EQ(r.repetition_penalty, 1.1);
  EXPECT_EQ(r.logit_bias, (std::vector<std::pair<TokenId, float>>{{3, 1.5F}, {7, -100.0F}}));
  EXPECT_EQ(r.seed, ~std::uint64_t{0});
  EXPECT_EQ(r.max_tokens, 9u) << "max_completion_tokens wins over max_tokens";
  EXPECT_TRUE(r.stream && r.include_usage && r.ignore_eos);
  EXPECT_EQ(r.top_logprobs, 4);
  EXPECT_EQ(r.stop_token_ids, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(r.template_kwargs, R"({"a":1})");
  EXPECT_FALSE(r.add_generation_prompt);
}

TEST(OpenAiRequest, PromptForms_AreAllRead) {
  EXPECT_EQ(good(Api::completions, R"({"model":"m","prompt":"x"})").prompts,
            (std::vector<Prompt>{"x"}));
  EXPECT_EQ(good(Api::completions, R"({"model":"m","prompt":["x","y"]})").prompts,
            (std::vector<Prompt>{"x", "y"}));
  EXPECT_EQ(good(Api::completions, R"({"model":"m","prompt":[1,2]})").prompts,
            (std::vector<Prompt>{std::vector<TokenId>{1, 2}}));
  EXPECT_EQ(good(Api::completions, R"({"model":"m","prompt":[[1],[2,3]]})").prompts,
            (std::vector<Prompt>{std::vector<TokenId>{1}, std::vector<TokenId>{2, 3}}));
}

TEST(OpenAiRequest, MessageForms_AreAllRead) {
  const auto r = good(Api::chat, R"({"model":"m","messages":[{"role":"developer","content":"s"},
      {"role":"user","name":"bob","content":
      [{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"assistant","content":null,"tool_calls":[]},
      {"role":"tool","content":"t","tool_call_id":"1"}]})");
  ASSERT_EQ(r.messages.size(), 4u);
  EXPECT_EQ(r.messages[0].role, "system");
  EXPECT_EQ(r.messages[1].content, "ab");
  EXPECT_EQ(r.messages[1].name, "bob");
  EXPECT_EQ(r.messages[2].content, "");
  EXPECT_EQ(r.messages[3].role, "tool");
}

TEST(OpenAiRequest, HarmlessValues_AreAccepted) {
  good(
      Api::chat,
      chat(
          R"("tools":[],"tool_choice":"auto","response_format":{"type":"text"},"modalities":["text"],"store":true,
      "metadata":{"a":"b"},"service_tier":"auto","parallel_tool_calls":true,
      "audio":null,"n":null,"stop":null,"seed":null,
      "length_penalty":1.0,"best_of":1)"));
  good(Api::completions,
       completion(R"("suffix":null,"best_of":1,"logprobs":null,"n":1.0,"echo":true)"));
  EXPECT_EQ(good(Api::completions, completion(R"("logprobs":0)")).top_logprobs, 0);
  EXPECT_EQ(good(Api::completions, completion(R"("logprobs":5)")).top_logprobs, 5);
  EXPECT_EQ(good(Api::chat, chat(R"("logprobs":true)")).top_logprobs, 0);
  EXPECT_EQ(good(Api::chat, chat(R"("seed":18446744073709551615)")).seed, ~std::uint64_t{0});
}

struct Refused {
  Api api;
  const char* more;
  const char* param;
};

TEST(OpenAiRequest, WhatIsNotServed_IsRefusedByName) {
  const Refused table[] = {
      {Api::chat, R"("temperature":2.1)", "temperature"},
      {Api::chat, R"("temperature":"hot")", "temperature"},
      {Api::chat, R"("top_p":-0.1)", "top_p"},
      {Api::chat, R"("top_k":-2)", "top_k"},
      {Api::chat, R"("n":0)", "n"},
      {Api::chat, R"("n":1.5)", "n"},
      {Api::chat, R"("n":129)", "n"},
      {Api::chat, R"("n":1e400)", "n"},
      {Api::chat, R"("max_tokens":0)", "max_tokens"},
      {Api::chat, R"("max_completion_tokens":-3)", "max_completion_tokens"},
      {Api::chat, R"("stop":["1","2","3","4","5"])", "stop"},
      {Api::chat, R"("stop":"")", "stop"},
      {Api::chat, R"("stop":[""])", "stop[0]"},
      {Api::chat, R"("stop":5)", "stop"},
      {Api::chat, R"("stream":"yes")", "stream"},
      {Api::chat, R"("stream_options":{"x":1})", "stream_options.x"},
      {Api::chat, R"("logit_bias":{"a":1})", "logit_bias"},
      {Api::chat, R"("logit_bias":{"-1":1})", "logit_bias"},
      {Api::chat, R"("logit_bias":{"99999999999":1})", "logit_bias"},
      {Api::chat, R"("logit_bias":{"1":101})", "logit_bias.1"},
      {Api::chat, R"("logit_bias":[1])", "logit_bias"},
      {Api::chat, R"("logprobs":1)", "logprobs"},
      {Api::chat, R"("top_logprobs":3)", "top_logprobs"},
      {Api::chat, R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
      {Api::chat, R"("tools":[{"type":"function"}])", "tools"},
      {Api::chat, R"("tool_choice":"required")", "tool_choice"},
      {Api::chat, R"("response_format":{"type":"json_object"})", "response_format"},
      {Api::chat, R"("prompt":"x")", "prompt"},
      {Api::chat, R"("echo":true)", "echo"},
      {Api::chat, R"("tempreature":1)", "tempreature"},
      {Api::completions, R"("messages":[])", "messages"},
      {Api::completions, R"("max_completion_tokens":3)", "max_completion_tokens"},
      {Api::completions, R"("best_of":2)", "best_of"},
      {Api::completions, R"("suffix":"x")", "suffix"},
      {Api::completions, R"("echo":true,"logprobs":1)", "echo"},
  };
  for (const Refused& row : table) {
    const auto error = bad(row.api, row.api == Api::chat ? chat(row.more) : completion(row.more));
    EXPECT_EQ(error.status, 400) << row.more;
    EXPECT_EQ(error.param, row.param) << row.more << ": " << error.message;
    EXPECT_FALSE(error.message.empty()) << row.more;
  }
}

TEST(OpenAiRequest, WrongMessagesAndPrompts_NameTheirPlace) {
  const std::pair<const char*, const char*> messages[] = {
      {"[]", "messages"},
      {"\"hi\"", "messages"},
      {R"([{"content":"x"}])", "messages[0].role"},
      {R"([{"role":"user"}])", "messages[0].content"},
      {R"([{"role":"king","content":"x"}])", "messages[0].role"},
      {R"([{"role":"user","content":7}])", "messages[0].content"},
      {R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])",
       "messages[0].content[0].type"},
      {R"([{"role":"user","content":"a"},{"role":"assistant","content":"x","tool_calls":[{}]}])",
       "messages[1].tool_calls"},
  };
  for (const auto& [text, param] : messages) {
    EXPECT_EQ(bad(Api::chat, std::string(R"({"model":"m","messages":)") + text + "}").param, param)
        << text;
  }
  for (const auto& [text, param] : {std::pair{"[]", "prompt"},
                                    {"7", "prompt"},
                                    {"[1,\"a\"]", "prompt"},
                                    {"[\"a\",{}]", "prompt[1]"},
                                    {"[-1]", "prompt"},
                                    {"[[1],[-5]]", "prompt[1]"}}) {
    EXPECT_EQ(bad(Api::completions, std::string(R"({"model":"m","prompt":)") + text + "}").param,
              param)
        << text;
  }
  EXPECT_EQ(bad(Api::chat, R"({"messages":[{"role":"user","content":"x"}]})").param, "model");
  EXPECT_EQ(bad(Api::chat, R"({"model":"m"})").param, "messages");
  EXPECT_EQ(bad(Api::completions, R"({"model":"m"})").param, "prompt");
}

TEST(OpenAiRequest, BrokenBodies_AreInvalidJson) {
  for (const char* body : {"", "{", "[]", "null", "{\"model\":\"\\ud800\"}", "{\"model\":\"\xff\"}",
                           "{} x", "{\"a\":1,}"}) {
    const auto error = bad(Api::chat, body);
    EXPECT_EQ(error.code, "invalid_json") << body;
    EXPECT_EQ(error.status, 400) << body;
  }
}

TEST(OpenAiRequest, DeepBodies_AreRefused) {
  const std::string deep = R"({"model":)" + std::string(100, '[') + std::string(100, ']') + "}";
  EXPECT_NE(bad(Api::chat, deep).message.find("deeper than 32"), std::string::npos);
  const std::string very_deep(5'000'000, '[');
  EXPECT_EQ(bad(Api::chat, "{\"model\":" + very_deep).status, 400);
}

TEST(OpenAiRequest, BodyThatWouldFillMemory_IsRefusedAsTooLarge) {
  std::string body = R"({"model":"m","prompt":[)";
  for (int i = 0; i < 100'000; ++i) body += "1,";
  body += "1]}";
  RequestLimits limits;
  EXPECT_TRUE(
      std::holds_alternative<GenerateRequest>(parse_generate(Api::completions, body, limits)));
  limits.json_bytes = 1 << 20;
  const auto refused = parse_generate(Api::completions, body, limits);
  ASSERT_TRUE(std::holds_alternative<ApiError>(refused));
  EXPECT_EQ(std::get<ApiError>(refused).status, 413);
}

TEST(OpenAiRequest, PromptsTimesN_IsBounded) {
  RequestLimits limits;
  limits.choices = 4;
  EXPECT_EQ(bad(Api::completions, R"({"model":"m","prompt":["a","b","c"],"n":2})", limits).param,
            "n");
  EXPECT_EQ(bad(Api::completions, R"({"model":"m","prompt":["a","b","c","d","e"]})", limits).param,
            "prompt");
}

TEST(OpenAiRequest, Tokenize_ReadsPromptOrMessages) {
  const auto text = parse_tokenize(
      R"({"model":"m","prompt":"x","add_special_tokens":false,"return_token_strs":true})", kLimits);
  ASSERT_EQ(text.index(), 0u);
  EXPECT_EQ(std::get<0>(text).prompt, "x");
  EXPECT_FALSE(std::get<0>(text).add_special_tokens);
  EXPECT_TRUE(std::get<0>(text).return_token_strs);
  EXPECT_EQ(parse_tokenize(R"({"messages":[{"role":"user","content":"x"}]})", kLimits).index(), 0u);
  EXPECT_EQ(parse_tokenize(R"({"model":"m"})", kLimits).index(), 1u);
  EXPECT_EQ(parse_tokenize(R"({"prompt":"x","messages":[{"role":"user","content":"x"}]})", kLimits)
                .index(),
            1u);
  const auto tokens = parse_detokenize(R"({"model":"m","tokens":[1,2]})", kLimits);
  ASSERT_EQ(tokens.index(), 0u);
  EXPECT_EQ(std::get<0>(tokens).tokens, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(parse_detokenize(R"({"model":"m"})", kLimits).index(), 1u);
}

}  // namespace
}  // namespace infos
