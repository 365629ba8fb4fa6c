// SPDX-License-Identifier: Apache-2.0
// Goal: the small pure parts of HTTP and the API key file. Method: tables.
#include "daemon/gateway/http_message.h"

#include <gtest/gtest.h>

#include "daemon/gateway/api_keys.h"

namespace infos {
namespace {

TEST(HttpMessage, ResponseHeads_SayWhatFollows) {
  HttpAnswer answer;
  answer.status = 429;
  answer.body = "{}";
  answer.retry_after = milliseconds(1500);
  answer.allow = "GET";
  ResponseHead head;
  head.answer = &answer;
  head.server = "s";
  head.date = "d";
  head.request_id = "r";
  head.closing = true;
  std::string out;
  append_response_head(out, head);
  EXPECT_EQ(out,
            "HTTP/1.1 429 Too Many Requests\r\nServer: s\r\nDate: d\r\nX-Request-Id: "
            "r\r\nContent-Type: application/json\r\n"
            "Allow: GET\r\nRetry-After: 2\r\nContent-Length: 2\r\nConnection: close\r\n\r\n");
}

TEST(HttpMessage, Chunks_HaveTheirSizeInHex) {
  std::string out;
  append_chunk(out, std::string(26, 'x'));
  EXPECT_EQ(out, "1a\r\n" + std::string(26, 'x') + "\r\n");
}

TEST(HttpMessage, RequestIds_AreRepeatedOnlyWhenSafe) {
  EXPECT_EQ(safe_request_id("a-B_9.:/+=@"), "a-B_9.:/+=@");
  EXPECT_FALSE(safe_request_id(""));
  EXPECT_FALSE(safe_request_id("a b"));
  EXPECT_FALSE(safe_request_id("a\r\nX: y"));
  EXPECT_FALSE(safe_request_id(std::string(129, 'a')));
}

TEST(HttpMessage, Traceparents_AreChecked) {
  EXPECT_TRUE(valid_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
  EXPECT_FALSE(valid_traceparent("00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
  EXPECT_FALSE(valid_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"));
  EXPECT_FALSE(valid_traceparent(""));
}

TEST(HttpMessage, PercentDecode_RefusesWhatIsCutShort) {
  EXPECT_EQ(percent_decode("a%2Fb%20"), "a/b ");
  EXPECT_EQ(percent_decode("%e9"), "\xE9");
  EXPECT_FALSE(percent_decode("%2"));
  EXPECT_FALSE(percent_decode("%zz"));
  EXPECT_FALSE(percent_decode("abc%"));
}

TEST(HttpMessage, BearerToken_IsTakenWhateverTheCase) {
  EXPECT_EQ(bearer_token("Bearer abc"), "abc");
  EXPECT_EQ(bearer_token("bEARER   abc "), "abc");
  EXPECT_EQ(bearer_token("Basic abc"), "");
  EXPECT_EQ(bearer_token("Bearer "), "");
  EXPECT_EQ(bearer_token("Bearer"), "");
}

TEST(ApiKeys, Lines_GiveKeysAndTenants) {
  const auto keys = ApiKeys::parse("# people\n\nsecret-one  alice\r\n\tsecret-two\n", "keys");
  ASSERT_TRUE(keys.ok()) << keys.error().message;
  EXPECT_TRUE(keys->required());
  EXPECT_EQ(keys->tenant("secret-one"), "alice");
  EXPECT_EQ(keys->tenant("secret-two"), "default");
  EXPECT_FALSE(keys->tenant("secret-onf"));
  EXPECT_FALSE(keys->tenant(""));
  EXPECT_FALSE(ApiKeys().required());
}

TEST(ApiKeys, BadFiles_NameTheLineAndNotTheKey) {
  for (const auto& [text, place] : {std::pair{"secret-one a b", "keys:1:"},
                                    {"\nshort", "keys:2:"},
                                    {"# none", "keys:1:"},
                                    {"secret-one\nsecret-one x", "keys:2:"}}) {
    const auto keys = ApiKeys::parse(text, "keys");
    ASSERT_FALSE(keys.ok()) << text;
    EXPECT_NE(keys.error().message.find(place), std::string::npos) << keys.error().message;
    EXPECT_EQ(keys.error().message.find("secret"), std::string::npos);
  }
  EXPECT_FALSE(ApiKeys::load("/nonexistent/keys").ok());
}

}  // namespace
}  // namespace infos
