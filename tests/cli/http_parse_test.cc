// SPDX-License-Identifier: Apache-2.0
// Goal: answers are read alike however they are cut into pieces, and what is not HTTP is refused.
// Method: known answers, cut at every place; bad ones.
#include "daemon/cli/http_parse.h"

#include <gtest/gtest.h>

#include "daemon/cli/http_client.h"
#include "daemon/cli/openai.h"

namespace infos::cli {
namespace {

struct Seen {
  int status = 0;
  std::string body;
  bool done = false, keeps_alive = false;
  std::size_t used = 0;
  friend bool operator==(const Seen&, const Seen&) = default;
  friend void PrintTo(const Seen& s, std::ostream* out) {
    *out << s.status << " " << s.body << " " << s.done << s.keeps_alive << " " << s.used;
  }
};

/// Feeds `text` in two pieces, cut at `cut`.
Seen parse(const std::string& text, std::size_t cut) {
  Seen seen;
  HttpAnswerParser parser([&](std::string_view piece) { seen.body += piece; });
  for (const std::string_view piece :
       {std::string_view(text).substr(0, cut), std::string_view(text).substr(cut)}) {
    const auto used = parser.feed(piece);
    EXPECT_TRUE(used.ok()) << used.error().message;
    if (used.ok()) seen.used += *used;
  }
  seen.status = parser.status();
  seen.done = parser.done();
  seen.keeps_alive = parser.keeps_alive();
  return seen;
}

TEST(HttpAnswer, IsTheSameHoweverItIsCut) {
  const std::vector<std::pair<std::string, Seen>> cases = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", {200, "hello", true, true, 0}},
      {"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nConnection: close\r\n\r\nhello",
       {200, "hello", true, false, 0}},
      {"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", {404, "", true, true, 0}},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n",
       {200, "hello!", true, true, 0}},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n0123456789\r\n0\r\nTrailer: "
       "x\r\n\r\n",
       {200, "0123456789", true, true, 0}},
      {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", {204, "", true, true, 0}},
      {"HTTP/1.0 200 OK\r\n\r\nuntil the end", {200, "until the end", false, false, 0}},
      {"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", {200, "hi", true, true, 0}},
  };
  for (auto [text, want] : cases) {
    want.used = text.size();
    for (std::size_t cut = 0; cut <= text.size(); ++cut)
      EXPECT_EQ(parse(text, cut), want) << text << " cut at " << cut;
  }
}

TEST(HttpAnswer, TheNextAnswerIsLeftAlone) {
  const std::string one = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
  std::string body;
  HttpAnswerParser parser([&](std::string_view piece) { body += piece; });
  EXPECT_EQ(parser.feed(one + one).value(), one.size());
  parser.reset();
  EXPECT_EQ(parser.feed(one).value(), one.size());
  EXPECT_EQ(body, "hihi");
}

TEST(HttpAnswer, WhatIsNotHttp_IsRefused) {
  for (const std::string text :
       {"SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 abc\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n"}) {
    HttpAnswerParser parser([](std::string_view) {});
    EXPECT_FALSE(parser.feed(text).ok()) << text;
  }
  HttpAnswerParser parser([](std::string_view) {});
  EXPECT_FALSE(parser.feed(std::string(100'000, 'a')).ok());
}

TEST(HttpAnswer, EndInTheMiddle_IsAnError) {
  for (const std::string text :
       {"", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"}) {
    HttpAnswerParser parser([](std::string_view) {});
    ASSERT_TRUE(parser.feed(text).ok());
    EXPECT_FALSE(parser.end().ok()) << text;
  }
}

TEST(Events, DataLinesHoweverTheyAreCut) {
  const std::string text =
      "data: one\r\n\r\n: comment\nevent: x\ndata:two\n\ndata: {\"a\": 1}\n\ndata: [DONE]\n\n";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    std::vector<std::string> seen;
    EventParser parser([&](std::string_view data) { seen.emplace_back(data); });
    ASSERT_TRUE(parser.feed(std::string_view(text).substr(0, cut)).ok());
    ASSERT_TRUE(parser.feed(std::string_view(text).substr(cut)).ok());
    EXPECT_EQ(seen, (std::vector<std::string>{"one", "two", "{\"a\": 1}", "[DONE]"})) << cut;
  }
  EventParser parser([](std::string_view) {});
  EXPECT_FALSE(parser.feed(std::string(5u << 20, 'x')).ok());
}

TEST(Endpoint, ParsesAndPrints) {
  EXPECT_EQ(parse_endpoint("http://127.0.0.1:8080")->port, 8080);
  EXPECT_EQ(parse_endpoint("http://host/api/")->prefix, "/api");
  EXPECT_EQ(parse_endpoint("http://host")->port, 80);
  EXPECT_EQ(parse_endpoint("http://[::1]:9")->host, "::1");
  EXPECT_EQ(parse_endpoint("http://[::1]:9")->name(), "http://[::1]:9");
  EXPECT_EQ(parse_endpoint("unix:/run/x.sock")->unix_path, "/run/x.sock");
  for (const char* url :
       {"", "https://x", "http://", "http://:80", "http://x:0", "http://x:65536", "http://x:8o",
        "unix:", "http://a b", "http://user@host", "http://h/x\r\ny"})
    EXPECT_FALSE(parse_endpoint(url).ok()) << url;
}

TEST(StreamEvent, ReadsTextReasonUsageAndErrors) {
  EXPECT_TRUE(read_stream_event("[DONE]")->done);
  EXPECT_EQ(
      read_stream_event(R"({"choices":[{"delta":{"content":"hi"},"finish_reason":null}]})")->text,
      "hi");
  EXPECT_EQ(
      read_stream_event(R"({"choices":[{"text":"hi","finish_reason":"stop"}]})")->finish_reason,
      "stop");
  const auto usage = read_stream_event(
      R"({"usage":{"prompt_tokens":3,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":2}}})");
  EXPECT_EQ(usage->completion_tokens, 4U);
  EXPECT_EQ(usage->cached_tokens, 2U);
  EXPECT_EQ(read_stream_event(R"({"error":{"message":"gone"}})")->error, "gone");
  EXPECT_FALSE(read_stream_event("{").ok());
  EXPECT_FALSE(read_stream_event("[1]").ok());
}

}  // namespace
}  // namespace infos::cli
