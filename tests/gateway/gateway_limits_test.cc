// SPDX-License-Identifier: Apache-2.0
// Goal: hostile and broken clients are told so and cost little: malformed requests, oversized ones,
// slow ones, too many. Method: exact bytes through real sockets, limits small enough to reach.
#include <gtest/gtest.h>
#include <poll.h>
#include <boost/json.hpp>

#include "tests/gateway/gateway_harness.h"

namespace infos {
namespace {

namespace json = boost::json;
using test::Client;
using test::get;
using test::Harness;
using test::post;
using test::Response;

std::string code_of(const Response& r) {
  return std::string(json::parse(r.body).at("error").at("code").as_string());
}

TEST(GatewayLimits, BrokenRequests_AreRefusedAndClosed) {
  Harness h;
  for (const auto& [bytes, status] :
       {std::pair<std::string, int>{"nonsense\r\n\r\n", 400},
        {"GET /live HTTP/1.1\r\n\r\n", 400},
        {"GET /live HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
        {"GET /live HTTP/3.0\r\nHost: a\r\n\r\n", 505},
        {"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400},
        {"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: "
         "chunked\r\n\r\n",
         400},
        {"POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
        {"POST /tokenize HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\nContent-Length: 4\r\n\r\n",
         417}}) {
    Client c(h.port());
    c.send(bytes);
    const Response r = c.read();
    EXPECT_EQ(r.status, status) << bytes;
    EXPECT_FALSE(r.body.empty());
    EXPECT_TRUE(c.closed_by_peer());
  }
}

TEST(GatewayLimits, OversizedHeadersAndBodies_AreRefused) {
  GatewayOptions options;
  options.http.header_bytes = 4096;
  options.http.body_bytes = 10000;
  Harness h(options);
  {
    Client c(h.port());
    c.send(get("/live", "X-Long: " + std::string(10000, 'x') + "\r\n"));
    const Response r = c.read();
    EXPECT_EQ(r.status, 431);
    EXPECT_TRUE(c.closed_by_peer());
  }
  {
    Client c(h.port());
    c.send("POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Length: 10001\r\n\r\n");
    const Response r = c.read();
    EXPECT_EQ(r.status, 413);
    EXPECT_EQ(code_of(r), "request_too_large");
  }
  Client c(h.port());  // the size is not said beforehand
  c.send("POST /tokenize HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 11; ++i) c.send("3e8\r\n" + std::string(1000, 'x') + "\r\n");
  EXPECT_EQ(c.read().status, 413);
}

TEST(GatewayLimits, BodiesOfAllTogether_AreBounded) {
  GatewayOptions options;
  options.http.body_bytes_total = 5000;
  Harness h(options);
  Client a(h.port()), b(h.port());
  a.send("POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Length: 6000\r\n\r\n" +
         std::string(4000, ' '));
  b.send("POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Length: 6000\r\n\r\n" +
         std::string(4000, ' '));
  // Whichever came second has no room.
  pollfd fds[2] = {{a.fd(), POLLIN, 0}, {b.fd(), POLLIN, 0}};
  ASSERT_GT(::poll(fds, 2, 30000), 0);
  Client& refused = fds[0].revents ? a : b;
  EXPECT_EQ(refused.read().status, 503);
  // The other one's room comes back with it.
  (fds[0].revents ? b : a).close();
  for (;;) {
    Client c(h.port());
    c.send(post("/tokenize", R"({"prompt":")" + std::string(4000, 'x') + "\"}"));
    if (c.read().status == 200) break;
  }
}

TEST(GatewayLimits, CompressedAndMultipartBodies_AreRefused) {
  Harness h;
  for (const char* header :
       {"Content-Encoding: gzip\r\n", "Content-Type: multipart/form-data; boundary=x\r\n"}) {
    Client c(h.port());
    c.send(std::string("POST /tokenize HTTP/1.1\r\nHost: t\r\n") + header +
           "Content-Length: 2\r\n\r\n{}");
    EXPECT_EQ(c.read().status, 415);
  }
}

TEST(GatewayLimits, SlowHeaders_SlowBodies_AndIdleOnes_AreEnded) {
  GatewayOptions options;
  options.http.header_timeout = options.http.body_timeout = options.http.idle_timeout =
      milliseconds(60);
  Harness h(options);
  Client headers(h.port()), body(h.port()), idle(h.port()), silent(h.port());
  headers.send("GET /live HTTP/1.1\r\nHost:");
  body.send("POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Length: 6000\r\n\r\n{");
  idle.send(get("/live"));
  EXPECT_EQ(headers.read().status, 408);
  EXPECT_EQ(body.read().status, 408);
  EXPECT_EQ(idle.read().status, 200);
  EXPECT_TRUE(idle.closed_by_peer());
  EXPECT_TRUE(silent.closed_by_peer());
}

TEST(GatewayLimits, TooManyConnections_AreToldSo) {
  GatewayOptions options;
  options.http.connections_per_address = 2;
  Harness h(options);
  Client a(h.port()), b(h.port());
  a.send(get("/live"));
  b.send(get("/live"));
  EXPECT_EQ(a.read().status, 200);
  EXPECT_EQ(b.read().status, 200);
  Client c(h.port());
  const Response r = c.read();
  EXPECT_EQ(r.status, 503);
  EXPECT_TRUE(r.headers.contains("retry-after"));
  EXPECT_TRUE(c.closed_by_peer());
}

}  // namespace
}  // namespace infos
