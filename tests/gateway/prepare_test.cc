// SPDX-License-Identifier: Apache-2.0
// Goal: a request's own values, the model's defaults and the API's defaults come in that order, and
// the model's limits hold. Method: requests against a model of known defaults.
#include "daemon/gateway/prepare.h"

#include <gtest/gtest.h>

#include "tests/gateway/gateway_harness.h"

namespace infos {
namespace {

using test::ByteTokenizer;

constexpr std::uint32_t kContext = 32;

ServedModel model() {
  ServedModel m;
  m.name = "m";
  m.tokenizer = std::make_shared<ByteTokenizer>();
  m.chat_template = std::make_shared<test::PlainTemplate>();
  m.generation.temperature = 0.5F;
  m.generation.top_k = 20;
  m.generation.top_p = 0.75F;
  m.config.vocab = 300;
  m.config.eos = {7, ByteTokenizer::kEos};
  return m;
}

GenerateRequest completion(Prompt prompt) {
  GenerateRequest r;
  r.api = Api::completions;
  r.model = "m";
  r.prompts = {std::move(prompt)};
  return r;
}

PreparedRequest good(const GenerateRequest& request, const ServedModel& m) {
  auto result = prepare(request, m, kContext, 99);
  if (const auto* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<0>(result);
}

ApiError bad(const GenerateRequest& request, const ServedModel& m) {
  auto result = prepare(request, m, kContext, 99);
  if (result.index() == 0) {
    ADD_FAILURE() << "accepted";
    return {};
  }
  return std::get<1>(result);
}

TEST(Prepare, Defaults_AreTheModelsThenTheApis) {
  const auto p = good(completion("a"), model());
  EXPECT_EQ(p.sampling.temperature, 0.5F);
  EXPECT_EQ(p.sampling.top_k, 20);
  EXPECT_EQ(p.sampling.top_p, 0.75F);
  EXPECT_EQ(p.sampling.min_p, 0.0F);
  EXPECT_EQ(p.sampling.repetition_penalty, 1.0F);
  EXPECT_EQ(p.sampling.seed, 99u);
  EXPECT_EQ(p.sampling.top_logprobs, -1);
  EXPECT_EQ(p.max_new_tokens, 16u);
  ServedModel plain = model();
  plain.generation = {};
  EXPECT_EQ(good(completion("a"), plain).sampling.temperature, 1.0F);
}

TEST(Prepare, RequestsOwnValues_Win) {
  GenerateRequest r = completion("a");
  r.temperature = 0;
  r.top_k = 0;
  r.top_p = 1;
  r.seed = 5;
  r.max_tokens = 3;
  const auto p = good(r, model());
  EXPECT_EQ(p.sampling.temperature, 0.0F);
  EXPECT_EQ(p.sampling.top_k, 0);
  EXPECT_EQ(p.sampling.top_p, 1.0F);
  EXPECT_EQ(p.sampling.seed, 5u);
  EXPECT_EQ(p.max_new_tokens, 3u);
}

TEST(Prepare, StopTokens_AreTheModelsAndTheRequests_OnceEach) {
  GenerateRequest r = completion("a");
  r.stop_token_ids = {50, 7};
  EXPECT_EQ(good(r, model()).stop_tokens, (std::vector<TokenId>{7, 50, ByteTokenizer::kEos}));
  r.ignore_eos = true;
  EXPECT_EQ(good(r, model()).stop_tokens, (std::vector<TokenId>{7, 50}));
}

TEST(Prepare, AnswerGoesOnAfterText_ButBeginsAfterControlTokens) {
  EXPECT_EQ(good(completion("a"), model()).prompts[0].answer_start, Tokenizer::Place::later);
  EXPECT_EQ(good(completion(""), model()).prompts[0].answer_start, Tokenizer::Place::first);
  const auto empty = good(completion(std::vector<TokenId>{}), model());
  EXPECT_EQ(empty.prompts[0].tokens, (std::vector<TokenId>{ByteTokenizer::kBos}));
}

TEST(Prepare, Echo_IsTheTextOfThePrompt) {
  GenerateRequest r = completion(std::vector<TokenId>{ByteTokenizer::kBos, 'h', 'i'});
  r.echo = true;
  EXPECT_EQ(good(r, model()).prompts[0].text, "hi");
}

TEST(Prepare, ContextAndVocabulary_AreLimits) {
  EXPECT_EQ(
      good(completion(std::vector<TokenId>(kContext - 1, 'a')), model()).prompts[0].tokens.size(),
      kContext - 1);
  EXPECT_EQ(bad(completion(std::vector<TokenId>(kContext, 'a')), model()).code,
            "context_length_exceeded");
  EXPECT_EQ(bad(completion(std::vector<TokenId>{300}), model()).param, "prompt");
  GenerateRequest r = completion("a");
  r.logit_bias = {{300, 1.0F}};
  EXPECT_EQ(bad(r, model()).param, "logit_bias");
  r.logit_bias.clear();
  r.stop_token_ids = {300};
  EXPECT_EQ(bad(r, model()).param, "stop_token_ids");
}

TEST(Prepare, ChatWithoutTemplate_SaysWhatToDo) {
  ServedModel m = model();
  m.chat_template = nullptr;
  GenerateRequest r;
  r.model = "m";
  r.messages = {{"user", "x", ""}};
  EXPECT_NE(bad(r, m).message.find("/v1/completions"), std::string::npos);
}

}  // namespace
}  // namespace infos
