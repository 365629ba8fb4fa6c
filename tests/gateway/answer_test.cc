// SPDX-License-Identifier: Apache-2.0
// Goal: what an answer says does not depend on how its tokens and deliveries are cut, and has the
// OpenAI API's shape. Method: answers of known tokens, their JSON parsed again; stop strings and
// partial characters across deliveries.
#include "daemon/gateway/answer.h"

#include <gtest/gtest.h>
#include <boost/json.hpp>

#include "daemon/gateway/json_text.h"
#include "tests/gateway/byte_tokenizer.h"
#include "topology/base/rng.h"

namespace infos {
namespace {

namespace json = boost::json;
using test::ByteTokenizer;
using test::sampled;

AnswerHead head(Api api, std::int32_t top_logprobs = -1, bool usage = false) {
  AnswerHead h;
  h.api = api;
  h.id = "id-1";
  h.model = "mod\"el";
  h.fingerprint = "fp";
  h.created = 1700000000;
  h.include_usage = usage;
  h.top_logprobs = top_logprobs;
  return h;
}

Finish finish(FinishReason reason, std::uint32_t prompt = 7, std::uint32_t cached = 4) {
  Finish f;
  f.reason = reason;
  f.prompt_tokens = prompt;
  f.cached_tokens = cached;
  return f;
}

// The JSON of each event; "[DONE]" becomes a string.
std::vector<json::value> events_of(const std::string& stream) {
  std::vector<json::value> events;
  for (std::size_t at = 0; at < stream.size();) {
    EXPECT_EQ(stream.compare(at, 6, "data: "), 0);
    const std::size_t end = stream.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    const std::string data = stream.substr(at + 6, end - at - 6);
    events.push_back(data == "[DONE]" ? json::value("[DONE]") : json::parse(data));
    at = end + 2;
  }
  return events;
}

// A chat answer of one choice whose bytes come in deliveries of the sizes that `cuts` draws.
std::string streamed_text(const std::string& bytes, const std::vector<std::string>& stops,
                          Rng& cuts, bool& stopped) {
  Answer answer(head(Api::chat), AnswerMode::stream, std::make_shared<ByteTokenizer>(), 1, {{}},
                stops);
  std::string stream;
  stopped = false;
  for (std::size_t at = 0; at < bytes.size() && !stopped;) {
    const std::size_t n = std::min<std::size_t>(1 + cuts.below(4), bytes.size() - at);
    stopped = answer.deliver(0, sampled(bytes.substr(at, n)));
    at += n;
    answer.take_events(stream);
  }
  answer.finish(0, finish(FinishReason::length));
  answer.take_events(stream);
  std::string text;
  for (const json::value& e : events_of(stream)) {
    const json::object& delta = e.at("choices").at(0).at("delta").as_object();
    if (const auto* content = delta.if_contains("content")) text += content->as_string();
  }
  return text;
}

TEST(Answer, ChatStream_HasTheApisShape) {
  Answer answer(head(Api::chat, -1, true), AnswerMode::stream, std::make_shared<ByteTokenizer>(), 1,
                {{}}, {});
  EXPECT_FALSE(answer.deliver(0, sampled("a\"")));
  EXPECT_FALSE(answer.deliver(0, sampled("\n")));
  EXPECT_FALSE(answer.complete());
  answer.finish(0, finish(FinishReason::length));
  ASSERT_TRUE(answer.complete());
  std::string stream;
  answer.take_events(stream);
  answer.close(stream);
  const auto events = events_of(stream);
  ASSERT_EQ(events.size(), 6u);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(events[i].at("id"), "id-1");
    EXPECT_EQ(events[i].at("object"), "chat.completion.chunk");
    EXPECT_EQ(events[i].at("created"), 1700000000);
    EXPECT_EQ(events[i].at("model"), "mod\"el");
    EXPECT_EQ(events[i].at("system_fingerprint"), "fp");
  }
  EXPECT_EQ(events[0].at("choices").at(0).at("delta").at("role"), "assistant");
  EXPECT_EQ(events[0].at("choices").at(0).at("delta").at("content"), "");
  EXPECT_EQ(events[1].at("choices").at(0).at("delta").at("content"), "a\"");
  EXPECT_EQ(events[1].at("choices").at(0).at("finish_reason"), nullptr);
  EXPECT_EQ(events[1].at("choices").at(0).at("logprobs"), nullptr);
  EXPECT_EQ(events[1].at("usage"), nullptr);
  EXPECT_EQ(events[2].at("choices").at(0).at("delta").at("content"), "\n");
  EXPECT_EQ(events[3].at("choices").at(0).at("finish_reason"), "length");
  EXPECT_TRUE(events[3].at("choices").at(0).at("delta").as_object().empty());
  EXPECT_TRUE(events[4].at("choices").as_array().empty());
  EXPECT_EQ(events[4].at("usage"),
            json::parse(R"({"prompt_tokens":7,"completion_tokens":3,"total_tokens":10,
                                                  "prompt_tokens_details":{"cached_tokens":4}})"));
  EXPECT_EQ(events[5], "[DONE]");
}

TEST(Answer, StreamWithoutUsage_DoesNotMentionIt) {
  Answer answer(head(Api::completions), AnswerMode::stream, std::make_shared<ByteTokenizer>(), 1,
                {{}}, {});
  answer.deliver(0, sampled("x"));
  answer.finish(0, finish(FinishReason::stop));
  std::string stream;
  answer.take_events(stream);
  answer.close(stream);
  const auto events = events_of(stream);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].at("object"), "text_completion");
  EXPECT_EQ(events[0].at("choices").at(0).at("text"), "x");
  EXPECT_FALSE(events[0].as_object().contains("usage"));
  EXPECT_EQ(events[1].at("choices").at(0).at("finish_reason"), "stop");
}

TEST(Answer, WholeBodies_HaveTheApisShape) {
  Answer chat(head(Api::chat), AnswerMode::whole, std::make_shared<ByteTokenizer>(), 2, {{}, {}},
              {});
  chat.deliver(1, sampled("two"));
  chat.deliver(0, sampled("one"));
  chat.finish(0, finish(FinishReason::stop, 5, 0));
  chat.finish(1, finish(FinishReason::length, 5, 5));
  const json::value body = json::parse(chat.body());
  EXPECT_EQ(body.at("object"), "chat.completion");
  EXPECT_EQ(body.at("choices").at(0).at("message"),
            json::parse(R"({"role":"assistant","content":"one","refusal":null})"));
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(body.at("choices").at(1).at("message").at("content"), "two");
  EXPECT_EQ(body.at("choices").at(1).at("index"), 1);
  EXPECT_EQ(body.at("choices").at(1).at("finish_reason"), "length");
  EXPECT_EQ(body.at("usage"),
            json::parse(R"({"prompt_tokens":5,"completion_tokens":6,"total_tokens":11,
                                              "prompt_tokens_details":{"cached_tokens":0}})"))
      << "a prompt counts once for its two choices";
  Answer text(head(Api::completions), AnswerMode::whole, std::make_shared<ByteTokenizer>(), 1,
              {{"pro", {}}, {"mpt", {}}}, {});
  text.deliver(0, sampled("a"));
  text.finish(0, finish(FinishReason::stop, 3, 1));
  text.finish(1, finish(FinishReason::stop, 4, 2));
  const json::value other = json::parse(text.body());
  EXPECT_EQ(other.at("object"), "text_completion");
  EXPECT_EQ(other.at("choices").at(0).at("text"), "proa");
  EXPECT_EQ(other.at("choices").at(1).at("text"), "mpt");
  EXPECT_EQ(other.at("usage").at("prompt_tokens"), 7);
  EXPECT_EQ(other.at("usage").at("prompt_tokens_details").at("cached_tokens"), 3);
}

TEST(Answer, StopString_EndsTheChoiceOnceAndCutsIt) {
  Answer answer(head(Api::chat), AnswerMode::whole, std::make_shared<ByteTokenizer>(), 1, {{}},
                {"END"});
  EXPECT_FALSE(answer.deliver(0, sampled("one E")));
  EXPECT_TRUE(answer.deliver(0, sampled("NDxyz")));
  EXPECT_FALSE(answer.deliver(0, sampled("more"))) << "said once";
  answer.finish(0, finish(FinishReason::length));
  const json::value body = json::parse(answer.body());
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content"), "one ");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 7)
      << "tokens after the stop string do not count";
}

TEST(Answer, DeliveriesCutAnywhere_GiveTheSameText) {
  const std::string bytes = "a\xC3\xA9\xE2\x82\xACz\xF0\x9F\x98\x80 \xFF stop! and more st";
  Rng rng(5);
  for (const auto& stops : std::vector<std::vector<std::string>>{
           {}, {"stop!"}, {"z\xF0\x9F\x98\x80"}, {"\xEF\xBF\xBD"}}) {
    std::optional<std::string> first;
    for (int round = 0; round < 200; ++round) {
      bool stopped = false;
      const std::string text = streamed_text(bytes, stops, rng, stopped);
      if (!first) first = text;
      EXPECT_EQ(text, *first);
      EXPECT_EQ(stopped, !stops.empty());
    }
  }
  bool stopped = false;
  EXPECT_EQ(streamed_text(bytes, {}, rng, stopped),
            "a\xC3\xA9\xE2\x82\xACz\xF0\x9F\x98\x80 \xEF\xBF\xBD stop! and more st");
}

TEST(Answer, ChatLogprobs_StandWithTheirText) {
  Answer answer(head(Api::chat, 1), AnswerMode::stream, std::make_shared<ByteTokenizer>(), 1, {{}},
                {"XY"});
  std::vector<SampledToken> tokens = sampled("a\xC3\xA9X");
  tokens[0].logprob = -0.25F;
  tokens[0].top = {{'b', -0.125F}, {'a', -0.25F}};
  EXPECT_FALSE(answer.deliver(0, tokens));
  std::string stream;
  answer.take_events(stream);
  const auto events = events_of(stream);
  ASSERT_EQ(events.size(), 2u);
  const json::value& content = events[1].at("choices").at(0).at("logprobs").at("content");
  ASSERT_EQ(content.as_array().size(), 3u)
      << "a and both halves of the character, not the X that is held back";
  EXPECT_EQ(content.at(0), json::parse(R"({"token":"a","logprob":-0.25,"bytes":[97],
      "top_logprobs":[{"token":"b","logprob":-0.125,"bytes":[98]}]})"));
  EXPECT_EQ(content.at(1).at("bytes"), json::parse("[195]"));
  EXPECT_EQ(content.at(1).at("token"), "\xEF\xBF\xBD");
  EXPECT_TRUE(answer.deliver(0, sampled("Y")));
  answer.finish(0, finish(FinishReason::stop));
  stream.clear();
  answer.take_events(stream);
  for (const json::value& e : events_of(stream))
    EXPECT_EQ(e.at("choices").at(0).at("logprobs"), nullptr) << "cut off";
}

TEST(Answer, LegacyLogprobs_HaveOffsetsInCharacters) {
  Answer answer(head(Api::completions, 2), AnswerMode::whole,
                std::make_shared<ByteTokenizer>(std::vector<std::string>{"\xC3\xA9", "n"}), 1, {{}},
                {});
  std::vector<SampledToken> tokens = {
      {ByteTokenizer::kWords, -1.0F, {{'q', -0.5F}, {ByteTokenizer::kWords, -1.0F}}},
      {'x', -2.0F, {{'n', -0.1F}, {ByteTokenizer::kWords + 1, -0.2F}}}};
  answer.deliver(0, tokens);
  answer.finish(0, finish(FinishReason::length));
  const json::value body = json::parse(answer.body());
  const json::value& lp = body.at("choices").at(0).at("logprobs");
  EXPECT_EQ(lp.at("tokens"), json::parse("[\"\xC3\xA9\",\"x\"]"));
  EXPECT_EQ(lp.at("text_offset"), json::parse("[0,1]"));
  EXPECT_EQ(lp.at("token_logprobs").at(1).to_number<double>(), -2.0);
  EXPECT_EQ(lp.at("top_logprobs").at(0).as_object().size(), 2u);
  EXPECT_EQ(lp.at("top_logprobs").at(1).as_object().size(), 2u)
      << "n once, the likelier, and the chosen x";
  EXPECT_FLOAT_EQ(lp.at("top_logprobs").at(1).at("n").to_number<float>(), -0.1F);
}

TEST(Answer, ImpossibleLogprob_IsANumber) {
  Answer answer(head(Api::chat, 0), AnswerMode::whole, std::make_shared<ByteTokenizer>(), 1, {{}},
                {});
  answer.deliver(0, std::vector<SampledToken>{{'a', -std::numeric_limits<float>::infinity(), {}}});
  answer.finish(0, finish(FinishReason::stop));
  EXPECT_EQ(json::parse(answer.body())
                .at("choices")
                .at(0)
                .at("logprobs")
                .at("content")
                .at(0)
                .at("logprob")
                .to_number<double>(),
            -9999.0);
}

TEST(ErrorBody, HasTheApisShape) {
  ApiError error;
  error.message = "bad \"n\"";
  error.param = "n";
  EXPECT_EQ(
      json::parse(error_body(error)),
      json::parse(
          R"({"error":{"message":"bad \"n\"","type":"invalid_request_error","param":"n","code":null}})"));
}

TEST(JsonText, EveryString_ReadsBackTheSame) {
  Rng rng(9);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes(rng.below(20), '\0');
    for (char& c : bytes) c = static_cast<char>(rng.chance(0.5) ? rng.below(128) : rng.below(256));
    std::string text;
    append_json_string(text, bytes);
    EXPECT_EQ(json::parse(text).as_string(), utf8_lossy(bytes)) << "round " << round;
  }
}

}  // namespace
}  // namespace infos
