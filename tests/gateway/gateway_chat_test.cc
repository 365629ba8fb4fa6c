// SPDX-License-Identifier: Apache-2.0
// Goal: the generation endpoints through real sockets: whole and streamed answers, stop strings,
// several choices, errors, worker death, clients that go away. Method: a scripted worker whose
// tokens are bytes.
#include <gtest/gtest.h>
#include <boost/json.hpp>

#include "tests/gateway/gateway_harness.h"

namespace infos {
namespace {

namespace json = boost::json;
using test::Client;
using test::Harness;
using test::post;
using test::Response;

std::string chat(const std::string& more = "") {
  return post("/v1/chat/completions",
              R"({"model":"m","messages":[{"role":"user","content":"hi"}])" +
                  (more.empty() ? "" : "," + more) + "}");
}
std::string completion(const std::string& more) {
  return post("/v1/completions", R"({"model":"m",)" + more + "}");
}

std::string text_of(const Response& r) {
  const json::value body = json::parse(r.body);
  return std::string(body.at("choices").at(0).at("message").at("content").as_string());
}

// The joined delta.content of a chat stream.
std::string streamed(const Response& r) {
  std::string text;
  for (std::size_t at = r.body.find("data: "); at != std::string::npos;
       at = r.body.find("data: ", at + 1)) {
    const std::string data = r.body.substr(at + 6, r.body.find("\n\n", at) - at - 6);
    if (data == "[DONE]") continue;
    const json::value event = json::parse(data);
    for (const json::value& choice : event.at("choices").as_array()) {
      if (const auto* c = choice.at("delta").as_object().if_contains("content"))
        text += c->as_string();
    }
  }
  return text;
}

TEST(GatewayChat, WholeAnswer_ArrivesWithUsage) {
  Harness h;
  h.script = [](const Submit&) { return "Hello!"; };
  Client c(h.port());
  c.send(chat());
  const Response r = c.read();
  EXPECT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(r.headers.at("content-type"), "application/json");
  EXPECT_FALSE(r.headers.at("x-request-id").empty());
  EXPECT_EQ(text_of(r), "Hello!");
  const json::value body = json::parse(r.body);
  EXPECT_TRUE(body.at("id").as_string().starts_with("chatcmpl-"));
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 6);
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), 18) << "user:hi\\nassistant:";
  EXPECT_EQ(body.at("usage").at("prompt_tokens_details").at("cached_tokens"), 2);
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(h.live_requests(), 0u);
}

TEST(GatewayChat, Stream_EndsWithDone_AndTheConnectionGoesOn) {
  Harness h;
  h.script = [](const Submit&) { return "Hello!"; };
  Client c(h.port());
  for (int round = 0; round < 3; ++round) {
    c.send(chat(R"("stream":true,"stream_options":{"include_usage":true})"));
    const Response r = c.read();
    EXPECT_EQ(r.status, 200);
    EXPECT_TRUE(r.headers.at("content-type").starts_with("text/event-stream"));
    EXPECT_EQ(streamed(r), "Hello!");
    EXPECT_TRUE(r.body.ends_with("data: [DONE]\n\n"));
    EXPECT_NE(r.body.find("\"total_tokens\":24"), std::string::npos);
  }
}

TEST(GatewayChat, StreamedTokens_ArriveBeforeTheEnd) {
  Harness h;
  Client c(h.port());
  c.send(chat(R"("stream":true)"));
  const Submit submit = h.next_submit();
  h.say(submit, "first", 0);
  EXPECT_NE(c.read_until("first").find("200 OK"), std::string::npos);
  h.say(submit, "second", 5);
  c.read_until("second");
  h.end(submit, FinishReason::length, 11);
  c.read_until("\"finish_reason\":\"length\"");
  c.read_until("[DONE]");
}

TEST(GatewayChat, StopAcrossTokens_IsCutAndCancelsTheWorker) {
  Harness h;
  Client c(h.port());
  c.send(chat(R"("stream":true,"stop":["END"])"));
  const Submit submit = h.next_submit();
  h.say(submit, "one E", 0);
  h.say(submit, "N", 5);
  h.say(submit, "D two", 6);
  const Response r = c.read();
  EXPECT_EQ(streamed(r), "one ");
  EXPECT_NE(r.body.find("\"finish_reason\":\"stop\""), std::string::npos);
  EXPECT_EQ(h.next_cancel().request, submit.request);
  EXPECT_EQ(h.live_requests(), 0u);
}

TEST(GatewayChat, SeveralChoices_HaveTheirOwnSeedsAndTexts) {
  Harness h;
  h.script = [](const Submit& s) { return "seed" + std::to_string(s.sampling.seed); };
  Client c(h.port());
  c.send(chat(R"("n":3,"seed":40)"));
  const json::value body = json::parse(c.read().body);
  ASSERT_EQ(body.at("choices").as_array().size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string text(body.at("choices").at(i).at("message").at("content").as_string());
    EXPECT_EQ(text, "seed4" + std::to_string(i));
  }
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), 18);
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 18);
}

TEST(GatewayChat, DefaultSeeds_DifferBetweenRequests) {
  Harness h;
  h.script = [](const Submit&) { return "x"; };
  Client c(h.port());
  c.send(chat());
  c.read();
  c.send(chat());
  c.read();
  EXPECT_NE(h.next_submit().sampling.seed, h.next_submit().sampling.seed);
}

TEST(GatewayChat, Parameters_ReachTheWorker) {
  Harness h;
  h.script = [](const Submit&) { return "x"; };
  Client c(h.port());
  c.send(chat(
      R"("temperature":0.25,"top_p":0.5,"top_k":7,"min_p":0.125,"presence_penalty":1,
                 "frequency_penalty":-1,
                 "repetition_penalty":1.5,"logit_bias":{"65":-100},"seed":9,"max_tokens":3,
                 "logprobs":true,
                 "top_logprobs":2,"stop_token_ids":[10])"));
  EXPECT_EQ(c.read().status, 200);
  const Submit s = h.next_submit();
  EXPECT_EQ(s.max_new_tokens, 3u);
  EXPECT_EQ(s.stop_tokens, (std::vector<TokenId>{10, test::ByteTokenizer::kEos}));
  SamplingParams p;
  p.temperature = 0.25F;
  p.top_p = 0.5F;
  p.top_k = 7;
  p.min_p = 0.125F;
  p.presence_penalty = 1;
  p.frequency_penalty = -1;
  p.repetition_penalty = 1.5F;
  p.logit_bias = {{65, -100.0F}};
  p.seed = 9;
  p.top_logprobs = 2;
  EXPECT_EQ(s.sampling, p);
  c.send(chat(R"("ignore_eos":true)"));
  c.read();
  const Submit other = h.next_submit();
  EXPECT_TRUE(other.stop_tokens.empty());
  EXPECT_EQ(other.max_new_tokens, 4096u - 18u) << "as much as the context leaves";
}

TEST(GatewayCompletions, EveryPromptForm_IsAnswered) {
  Harness h;
  h.script = [](const Submit& s) { return "<" + std::to_string(s.prompt_tokens) + ">"; };
  Client c(h.port());
  const auto texts = [&](const std::string& body) {
    c.send(completion(body));
    const Response r = c.read();
    EXPECT_EQ(r.status, 200) << r.body;
    std::string all;
    const json::value parsed = json::parse(r.body);
    for (const json::value& choice : parsed.at("choices").as_array())
      all += choice.at("text").as_string();
    return all;
  };
  EXPECT_EQ(texts(R"("prompt":"abc")"), "<4>") << "a begin token and three bytes";
  EXPECT_EQ(texts(R"("prompt":["a","abc"],"n":2)"), "<2><2><4><4>");
  EXPECT_EQ(texts(R"("prompt":[65,66])"), "<2>");
  EXPECT_EQ(texts(R"("prompt":[[65],[65,66,67]])"), "<1><3>");
  EXPECT_EQ(texts(R"("prompt":"abc","echo":true)"), "abc<4>");
}

TEST(GatewayCompletions, MaxTokensDefault_IsTheApis) {
  Harness h;
  h.script = [](const Submit&) { return std::string(40, 'x'); };
  Client c(h.port());
  c.send(completion(R"("prompt":"a")"));
  const json::value body = json::parse(c.read().body);
  EXPECT_EQ(body.at("choices").at(0).at("text").as_string().size(), 16u);
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "length");
}

TEST(GatewayErrors, BadRequests_AreAnsweredInTheApisShape) {
  Harness h;
  Client c(h.port());
  const auto expect = [&](const std::string& request, int status, const char* code) {
    SCOPED_TRACE(request.substr(0, 200));
    c.send(request);
    const Response r = c.read();
    EXPECT_EQ(r.status, status) << r.body;
    const json::value body = json::parse(r.body);
    EXPECT_FALSE(body.at("error").at("message").as_string().empty());
    EXPECT_EQ(body.at("error").at("code"), code) << r.body;
  };
  expect(post("/v1/chat/completions", "{"), 400, "invalid_json");
  expect(post("/v1/chat/completions",
              R"({"model":"other","messages":[{"role":"user","content":"x"}]})"),
         404, "model_not_found");
  expect(chat(R"("temperature":9)"), 400, "invalid_value");
  expect(chat(R"("stream":true,"temperature":9)"), 400, "invalid_value");
  expect(chat(R"("logit_bias":{"99999":1})"), 400, "invalid_value");
  expect(post("/v1/chat/completions",
              R"({"model":"m","messages":[{"role":"user","content":"raise"}]})"),
         400, "invalid_value");
  expect(completion(R"("prompt":[])"), 400, "invalid_value");
  expect(completion(R"("prompt":[5000])"), 400, "invalid_value");
  expect(completion("\"prompt\":\"" + std::string(5000, 'a') + "\""), 400,
         "context_length_exceeded");
  expect(completion("\"prompt\":\"" + std::string(50000, 'a') + "\""), 400,
         "context_length_exceeded");
  expect(post("/v1/nothing", "{}"), 404, "unknown_url");
  EXPECT_EQ(h.live_requests(), 0u);
}

TEST(GatewayErrors, WorkerErrorBeforeTheFirstToken_IsAStatus) {
  Harness h;
  Client c(h.port());
  c.send(chat(R"("stream":true)"));
  h.end(h.next_submit(), FinishReason::error, 0, "broken");
  const Response r = c.read();
  EXPECT_EQ(r.status, 500);
  EXPECT_NE(r.body.find("broken"), std::string::npos);
}

TEST(GatewayErrors, WorkerErrorInMidStream_IsAnEventAndTheEnd) {
  Harness h;
  Client c(h.port());
  c.send(chat(R"("stream":true,"n":2)"));
  const Submit first = h.next_submit();
  const Submit second = h.next_submit();
  h.say(first, "a", 0);
  h.end(first, FinishReason::error, 1, "broken");
  const Response r = c.read();
  EXPECT_EQ(r.status, 200);
  EXPECT_NE(r.body.find("data: {\"error\":{\"message\":"), std::string::npos);
  EXPECT_EQ(r.body.find("[DONE]"), std::string::npos);
  EXPECT_EQ(h.next_cancel().request, second.request) << "the other choice is given up";
  EXPECT_EQ(h.live_requests(), 0u);
}

TEST(GatewayErrors, FullQueue_Answers429WithRetryAfter) {
  GatewayOptions options;
  options.core.max_requests = 1;
  Harness h(options);
  Client a(h.port()), b(h.port());
  a.send(chat());
  h.next_submit();
  b.send(chat());
  const Response r = b.read();
  EXPECT_EQ(r.status, 429);
  EXPECT_GE(std::stoi(r.headers.at("retry-after")), 1);
  EXPECT_NE(r.body.find("rate_limit_exceeded"), std::string::npos);
}

TEST(GatewayErrors, OneOfSeveralChoicesRejected_RejectsAll) {
  GatewayOptions options;
  options.core.max_requests = 2;
  Harness h(options);
  Client c(h.port());
  c.send(chat(R"("n":4)"));
  EXPECT_EQ(c.read().status, 429);
  EXPECT_EQ(h.live_requests(), 0u);
}

TEST(GatewayStreams, WorkerDies_StreamGoesOnWithNoTokenLostOrRepeated) {
  Harness h;
  Client c(h.port());
  c.send(chat(R"("stream":true)"));
  const Submit first = h.next_submit();
  h.say(first, "abc", 0);
  c.read_until("\"content\":\"abc\"");
  h.worker_down();
  h.worker_up();
  const Submit second = h.next_submit();
  EXPECT_EQ(second.request, first.request);
  EXPECT_EQ(second.tokens.size(), first.tokens.size() + 3);
  h.say(second, "def", 3);
  h.end(second, FinishReason::stop, 6);
  EXPECT_EQ(c.read_until("[DONE]").find("abc"), std::string::npos);
}

TEST(GatewayStreams, ClientGone_CancelsAtOnce) {
  for (const bool reset : {false, true}) {
    for (const char* more : {R"("stream":true)", R"("stream":false)", R"("stream":true,"n":2)"}) {
      Harness h;
      Client c(h.port());
      c.send(chat(more));
      const Submit submit = h.next_submit();
      h.say(submit, "a", 0);
      reset ? c.reset() : c.close();
      EXPECT_EQ(h.next_cancel().request, submit.request) << more;
      while (h.live_requests() > 0) std::this_thread::yield();
    }
  }
}

TEST(GatewayStreams, ClientGoneWhileWaitingForAWorker_LeavesNothing) {
  Harness h;
  h.worker_down();
  Client c(h.port());
  c.send(chat());
  while (h.live_requests() == 0) std::this_thread::yield();
  c.close();
  while (h.live_requests() > 0) std::this_thread::yield();
}

// Streams far more than the kernel's buffers hold to a client that reads nothing.
void stream_to_nobody(Harness& h, Client& c) {
  c.send(chat(R"("stream":true,"logprobs":true,"top_logprobs":2)"));
  const Submit submit = h.next_submit();
  for (std::uint32_t index = 0; index < 4000; index += 40)
    h.say(submit, std::string(40, 'a'), index);
  EXPECT_EQ(h.next_cancel().request, submit.request);
  EXPECT_EQ(h.live_requests(), 0u);
  EXPECT_TRUE(c.closed_by_peer());
}

TEST(GatewayStreams, ClientThatDoesNotRead_IsDroppedAtTheBound) {
  GatewayOptions options;
  options.http.output_bytes = 64 << 10;
  options.http.send_buffer_bytes = 8 << 10;
  Harness h(options);
  Client c(h.port(), 4096);
  stream_to_nobody(h, c);
}

TEST(GatewayStreams, ClientThatTakesNothingForTooLong_IsDropped) {
  GatewayOptions options;
  options.http.output_bytes = 64u << 20;
  options.http.send_buffer_bytes = 8 << 10;
  options.http.write_timeout = milliseconds(40);
  Harness h(options);
  Client c(h.port(), 4096);
  stream_to_nobody(h, c);
}

TEST(GatewayTokens, TokenizeAndDetokenize_AreInverse) {
  Harness h;
  Client c(h.port());
  c.send(post("/tokenize", R"({"model":"m","prompt":"abc","return_token_strs":true})"));
  Response r = c.read();
  EXPECT_EQ(
      json::parse(r.body),
      json::parse(
          R"({"count":4,"max_model_len":4096,"tokens":[256,97,98,99],"token_strs":["","a","b","c"]})"));
  c.send(post("/tokenize", R"({"prompt":"abc","add_special_tokens":false})"));
  r = c.read();
  EXPECT_EQ(json::parse(r.body).at("tokens"), json::parse("[97,98,99]"));
  c.send(post("/tokenize", R"({"model":"m","messages":[{"role":"user","content":"x"}]})"));
  EXPECT_EQ(json::parse(c.read().body).at("count"), 17);
  c.send(post("/detokenize", R"({"model":"m","tokens":[97,98,195,169]})"));
  EXPECT_EQ(json::parse(c.read().body).at("prompt"), "ab\xC3\xA9");
  c.send(post("/detokenize", R"({"model":"m","tokens":[97000]})"));
  EXPECT_EQ(c.read().status, 400);
  c.send(post("/tokenize", R"({"model":"m","prompt":")" + std::string(100000, 'a') + "\"}"));
  EXPECT_EQ(json::parse(c.read().body).at("count"), 100001) << "on the helper thread";
}

}  // namespace
}  // namespace infos
