// SPDX-License-Identifier: Apache-2.0
// Goal: HTTP as clients speak it: keep-alive, pipelining, methods, limits, slow
// clients, API keys, the other endpoints and registered handlers. Method: exact bytes through real
// sockets.
#include <gtest/gtest.h>
#include <boost/json.hpp>

#include <prometheus/counter.h>
#include <prometheus/registry.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/gateway/gateway_harness.h"

namespace infos {
namespace {

namespace json = boost::json;
using test::Client;
using test::get;
using test::Harness;
using test::post;
using test::Response;

const std::string kChat = R"({"model":"m","messages":[{"role":"user","content":"hi"}]})";

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "infos-gw-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string code_of(const Response& r) {
  return std::string(json::parse(r.body).at("error").at("code").as_string());
}

TEST(GatewayHttp, ModelsAndHealth_AreAnswered) {
  Harness h;
  Client c(h.port());
  c.send(get("/v1/models"));
  const json::value list = json::parse(c.read().body);
  EXPECT_EQ(list.at("object"), "list");
  EXPECT_EQ(list.at("data").at(0).at("id"), "m");
  EXPECT_EQ(list.at("data").at(0).at("object"), "model");
  c.send(get("/v1/models/m"));
  EXPECT_EQ(json::parse(c.read().body).at("id"), "m");
  c.send(get("/v1/models/%6d"));
  EXPECT_EQ(c.read().status, 200);
  c.send(get("/v1/models/no%2Fsuch"));
  const Response missing = c.read();
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(code_of(missing), "model_not_found");
  c.send(get("/live"));
  EXPECT_EQ(c.read().status, 200);
  c.send(get("/ready"));
  EXPECT_EQ(c.read().status, 200);
  h.worker_down();
  c.send(get("/ready"));
  const Response down = c.read();
  EXPECT_EQ(down.status, 503);
  EXPECT_TRUE(down.headers.contains("retry-after"));
  h.worker_up();
  h.on_gateway([](Gateway& g) { g.set_ready(Gateway::Ready::no); });
  c.send(get("/ready"));
  EXPECT_EQ(c.read().status, 503);
}

TEST(GatewayHttp, RemovedModel_IsGone) {
  Harness h;
  Client c(h.port());
  h.on_gateway([](Gateway& g) { g.remove_model("m"); });
  c.send(post("/v1/chat/completions", kChat));
  EXPECT_EQ(c.read().status, 404);
  c.send(get("/v1/models"));
  EXPECT_TRUE(json::parse(c.read().body).at("data").as_array().empty());
}

TEST(GatewayHttp, MethodsAndPaths_HaveTheirStatus) {
  Harness h;
  Client c(h.port());
  c.send(get("/v1/chat/completions"));
  Response r = c.read();
  EXPECT_EQ(r.status, 405);
  EXPECT_EQ(r.headers.at("allow"), "POST, OPTIONS");
  c.send(get("/live", "", "DELETE"));
  r = c.read();
  EXPECT_EQ(r.status, 405);
  EXPECT_EQ(r.headers.at("allow"), "GET, HEAD, OPTIONS");
  c.send(get("/v1/models", "", "OPTIONS"));
  r = c.read();
  EXPECT_EQ(r.status, 204);
  EXPECT_EQ(r.headers.at("allow"), "GET, HEAD, OPTIONS");
  c.send(get("/live", "", "HEAD"));
  r = c.read(true);
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.headers.at("content-length"), "5");
  c.send(get("/nothing"));
  EXPECT_EQ(c.read().status, 404);
  c.send(get("/live?x=1"));
  EXPECT_EQ(c.read().status, 200);
}

TEST(GatewayHttp, PipelinedRequests_AreAnsweredInOrder) {
  Harness h;
  h.script = [](const Submit& s) { return "n" + std::to_string(s.prompt_tokens); };
  Client c(h.port());
  const auto completion = [](const std::string& prompt) {
    return post("/v1/completions", R"({"model":"m","stream":true,"prompt":")" + prompt + "\"}");
  };
  c.send(completion("a") + get("/live") + completion("bbb") + get("/v1/models") + completion("cc"));
  EXPECT_NE(c.read().body.find("\"text\":\"n\""), std::string::npos);
  EXPECT_EQ(c.read().body, "live\n");
  EXPECT_NE(c.read().body.find("\"text\":\"4\""), std::string::npos);
  EXPECT_EQ(c.read().status, 200);
  EXPECT_NE(c.read().body.find("\"text\":\"3\""), std::string::npos);
}

TEST(GatewayHttp, BytesOneByOne_AreARequest) {
  Harness h;
  h.script = [](const Submit&) { return "ok"; };
  Client c(h.port());
  for (const char byte : post("/v1/chat/completions", kChat)) c.send(std::string_view(&byte, 1));
  EXPECT_EQ(c.read().status, 200);
  c.send("POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (std::size_t at = 0; at < kChat.size(); at += 10) {
    const std::string part = kChat.substr(at, 10);
    char size[16];
    std::snprintf(size, sizeof size, "%zx\r\n", part.size());
    c.send(size + part + "\r\n");
  }
  c.send("0\r\n\r\n");
  EXPECT_EQ(c.read().status, 200);
}

TEST(GatewayHttp, ConnectionClose_AndHttp10_EndTheConnection) {
  Harness h;
  h.script = [](const Submit&) { return "ok"; };
  {
    Client c(h.port());
    c.send(get("/live", "Connection: close\r\n"));
    const Response r = c.read();
    EXPECT_EQ(r.headers.at("connection"), "close");
    EXPECT_TRUE(c.closed_by_peer());
  }
  {
    Client c(h.port());
    c.send("GET /live HTTP/1.0\r\n\r\n");
    EXPECT_EQ(c.read().body, "live\n");
    EXPECT_TRUE(c.closed_by_peer());
  }
  Client c(h.port());
  const std::string body =
      R"({"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]})";
  c.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body);
  const Response r = c.read();
  EXPECT_FALSE(r.headers.contains("transfer-encoding"));
  EXPECT_TRUE(r.body.ends_with("data: [DONE]\n\n"));
}

TEST(GatewayHttp, ExpectContinue_IsAnswered) {
  Harness h;
  h.script = [](const Submit&) { return "ok"; };
  Client c(h.port());
  c.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: " +
      std::to_string(kChat.size()) + "\r\n\r\n");
  EXPECT_EQ(c.read().status, 100);
  c.send(kChat);
  EXPECT_EQ(c.read().status, 200);
}

TEST(GatewayHttp, ApiKeys_AreAskedFor) {
  const TempDir dir;
  std::ofstream(dir.file("keys")) << "# keys\nsecret-key-1 alice\n";
  GatewayOptions options;
  options.api_keys_file = dir.file("keys");
  Harness h(options);
  h.script = [](const Submit&) { return "ok"; };
  Client c(h.port());
  c.send(get("/v1/models"));
  Response r = c.read();
  EXPECT_EQ(r.status, 401);
  EXPECT_EQ(code_of(r), "invalid_api_key");
  EXPECT_EQ(r.headers.at("www-authenticate"), "Bearer");
  c.send(get("/v1/models", "Authorization: Bearer secret-key-2\r\n"));
  EXPECT_EQ(c.read().status, 401);
  c.send(get("/v1/models", "Authorization: Bearer secret-key-1\r\n"));
  EXPECT_EQ(c.read().status, 200);
  c.send(post("/v1/chat/completions", kChat, "authorization: bearer secret-key-1\r\n"));
  EXPECT_EQ(c.read().status, 200);
  for (const char* open : {"/live", "/ready", "/metrics"}) {
    c.send(get(open));
    EXPECT_EQ(c.read().status, 200) << open;
  }
  std::ofstream(dir.file("keys")) << "secret-key-3\n";
  h.on_gateway([](Gateway& g) { EXPECT_TRUE(g.reload_api_keys().ok()); });
  c.send(get("/v1/models", "Authorization: Bearer secret-key-1\r\n"));
  EXPECT_EQ(c.read().status, 401);
  std::ofstream(dir.file("keys")) << "short\n";
  h.on_gateway([](Gateway& g) { EXPECT_FALSE(g.reload_api_keys().ok()); });
  c.send(get("/v1/models", "Authorization: Bearer secret-key-3\r\n"));
  EXPECT_EQ(c.read().status, 200) << "a bad file changes nothing";
  // Refused before its body is read.
  c.send("POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\n\r\n");
  EXPECT_EQ(c.read().status, 401);
  EXPECT_TRUE(c.closed_by_peer());
}

TEST(GatewayHttp, UnixSocket_ServesTheAdminHandlers_TcpDoesNot) {
  const TempDir dir;
  Harness h;
  h.on_gateway([&](Gateway& g) {
    g.handle("POST", "/admin/echo", Exposure::unix_only,
             [](const HttpRequest& request, HttpRespond respond) {
               respond({201, "text/plain",
                        std::string(request.method) + " " + std::string(request.query) + " " +
                            std::string(request.body)});
               respond({500, "text/plain", "said twice"});
             });
    g.handle("GET", "/admin/forgets", Exposure::unix_only, [](const HttpRequest&, HttpRespond) {});
    g.handle("GET", "/ui/*", Exposure::open, [](const HttpRequest& request, HttpRespond respond) {
      respond({200, "text/plain", std::string(request.path)});
    });
    ASSERT_TRUE(g.listen_unix(dir.file("socket")).ok());
    ASSERT_FALSE(g.listen_unix(dir.file("socket")).ok()) << "a live socket is not taken over";
  });
  struct stat info {};
  ASSERT_EQ(::stat(dir.file("socket").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  Client u(dir.file("socket"));
  u.send(post("/admin/echo?a=b", "body"));
  const Response r = u.read();
  EXPECT_EQ(r.status, 201);
  EXPECT_EQ(r.body, "POST a=b body");
  u.send(get("/admin/forgets"));
  EXPECT_EQ(u.read().status, 500) << "a handler that never answers";
  u.send(get("/admin/echo"));
  EXPECT_EQ(u.read().headers.at("allow"), "POST, OPTIONS");
  Client c(h.port());
  c.send(post("/admin/echo", "body"));
  EXPECT_EQ(c.read().status, 404);
  c.send(get("/ui/a/b.js"));
  EXPECT_EQ(c.read().body, "/ui/a/b.js");
  c.send(get("/ui/a/b.js", "", "HEAD"));
  EXPECT_EQ(c.read(true).status, 200);
}

TEST(GatewayHttp, DeadUnixSocketFile_IsReplaced_OtherFilesAreNot) {
  const TempDir dir;
  {
    Harness h;
    h.on_gateway([&](Gateway& g) { ASSERT_TRUE(g.listen_unix(dir.file("s")).ok()); });
  }
  EXPECT_FALSE(std::filesystem::exists(dir.file("s"))) << "removed at the end";
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s", dir.file("s").c_str());
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(fd);
  std::ofstream(dir.file("file")) << "precious";
  Harness h;
  h.on_gateway([&](Gateway& g) {
    EXPECT_TRUE(g.listen_unix(dir.file("s")).ok());
    EXPECT_FALSE(g.listen_unix(dir.file("file")).ok());
  });
  EXPECT_TRUE(std::filesystem::exists(dir.file("file")));
}

TEST(GatewayHttp, AddressesOffLoopback_NeedInsecure) {
  Harness h;
  h.on_gateway([](Gateway& g) {
    const auto refused = g.listen("0.0.0.0", 0);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("--insecure"), std::string::npos);
    EXPECT_FALSE(g.listen("no.such.name", 0).ok());
    EXPECT_TRUE(g.listen("localhost", 0).ok());
  });
  GatewayOptions options;
  options.insecure = Insecure::allowed;
  Harness open(options);
  open.on_gateway([](Gateway& g) { EXPECT_TRUE(g.listen("0.0.0.0", 0).ok()); });
}

TEST(GatewayHttp, RequestIds_AreRepeatedOrMade) {
  Harness h;
  h.script = [](const Submit&) { return "ok"; };
  Client c(h.port());
  c.send(post("/v1/chat/completions", kChat, "X-Request-Id: mine-1\r\n"));
  EXPECT_EQ(c.read().headers.at("x-request-id"), "mine-1");
  c.send(post("/v1/chat/completions", kChat, "X-Request-Id: not safe\r\n"));
  EXPECT_TRUE(c.read().headers.at("x-request-id").starts_with("req-"));
}

TEST(GatewayHttp, Metrics_CountWhatHappened) {
  Harness h;
  h.script = [](const Submit&) { return "Hello!"; };
  Client c(h.port());
  c.send(post("/v1/chat/completions", kChat));
  c.read();
  c.send(post("/v1/chat/completions", "{"));
  c.read();
  h.on_gateway([](Gateway& g) {
    prometheus::BuildCounter()
        .Name("infos_test_total")
        .Help("x")
        .Register(g.registry())
        .Add({})
        .Increment();
  });
  c.send(get("/metrics"));
  const Response r = c.read();
  for (const char* line :
       {"infos_requests_total{model=\"m\",outcome=\"ok\"} 1",
        "infos_requests_total{model=\"\",outcome=\"rejected\"} 1",
        "infos_generated_tokens_total{model=\"m\"} 6", "infos_prompt_tokens_total{model=\"m\"} 18",
        "infos_cached_prompt_tokens_total{model=\"m\"} 2",
        "infos_time_to_first_token_seconds_count{model=\"m\"} 1",
        "infos_inter_token_seconds_count{model=\"m\"} 5",
        "infos_request_seconds_count{model=\"m\"} 1", "infos_http_responses_total{code=\"400\"} 1",
        "infos_http_connections 1", "infos_queue_depth 0",
        "infos_kv_blocks_used{worker=\"1\",model=\"m\"} 25", "infos_test_total 1",
        "vllm:num_requests_running{model_name=\"m\"} 0",
        "vllm:num_requests_waiting{model_name=\"m\"} 0",
        "vllm:kv_cache_usage_perc{model_name=\"m\"} 0.25",
        "vllm:generation_tokens_total{model_name=\"m\"} 6"}) {
    EXPECT_NE(r.body.find(line), std::string::npos) << line << "\n" << r.body;
  }
}

TEST(GatewayHttp, Steps_AreToldToTheTap) {
  Harness h;
  h.script = [](const Submit&) { return "ab"; };
  std::vector<std::size_t> kinds;
  std::size_t delivered = 0;
  h.on_gateway([&](Gateway& g) {
    g.on_step([&](Time, const GatewayEvent& event, const GatewayEffects& effects) {
      kinds.push_back(event.index());
      for (const GatewayEffect& e : effects) delivered += std::holds_alternative<Deliver>(e);
    });
  });
  Client c(h.port());
  c.send(post("/v1/chat/completions", kChat));
  c.read();
  h.on_gateway([&](Gateway& g) { g.on_step(nullptr); });
  EXPECT_EQ(GatewayEvent(Arrive{}).index(), kinds.at(0));
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), GatewayEvent(WorkerSaid{}).index()), 3);
  EXPECT_EQ(delivered, 2u);
}

TEST(GatewayHttp, Drain_LetsWhatRunsEnd_AndTakesNothingNew) {
  Harness h;
  Client running(h.port()), idle(h.port());
  running.send(post("/v1/chat/completions", kChat));
  idle.send(get("/live"));
  EXPECT_EQ(idle.read().status, 200);
  const Submit submit = h.next_submit();
  std::promise<void> done;
  h.on_gateway([&](Gateway& g) { g.drain([&] { done.set_value(); }); });
  EXPECT_TRUE(idle.closed_by_peer());
  h.say(submit, "end", 0);
  h.end(submit, FinishReason::stop, 3);
  const Response r = running.read();
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.headers.at("connection"), "close");
  EXPECT_EQ(done.get_future().wait_for(test::kWaitMax), std::future_status::ready);
}

TEST(GatewayHttp, Stop_CancelsWhatRunsAndTellsTheClient) {
  Harness h;
  Client c(h.port());
  c.send(post("/v1/chat/completions", kChat));
  const Submit submit = h.next_submit();
  h.on_gateway([](Gateway& g) { g.stop(); });
  EXPECT_EQ(h.next_cancel().request, submit.request);
  const Response r = c.read();
  EXPECT_EQ(r.status, 503);
  EXPECT_EQ(r.headers.count("retry-after"), 1U);
  EXPECT_NE(r.body.find("shutting_down"), std::string::npos);
  EXPECT_TRUE(c.closed_by_peer());
}

}  // namespace
}  // namespace infos
