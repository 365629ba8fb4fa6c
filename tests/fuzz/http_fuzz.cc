// SPDX-License-Identifier: Apache-2.0
// Goal: whatever bytes a client sends, in whatever pieces, a session answers valid responses or
// closes, and gives back what it booked. Method: a real session on one end of a socket pair; the
// first byte says how the rest is cut.
#include <sys/socket.h>
#include <unistd.h>
#include <boost/asio/io_context.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "daemon/gateway/api_keys.h"
#include "daemon/gateway/http_session.h"
#include "topology/base/check.h"

namespace infos {
namespace {

class FuzzHost final : public HttpHost {
 public:
  FuzzHost() {
    limits_.header_bytes = 1024;
    limits_.body_bytes = 2048;
    limits_.pipelined_bytes = 512;
  }
  const HttpLimits& limits() const override { return limits_; }
  Time now() const override { return Time{1}; }
  std::string_view server_name() const override { return "s"; }
  std::string_view date() override { return "d"; }
  std::optional<HttpAnswer> admit(const HttpHead& head) override {
    INFOS_CHECK(head.target.size() <= 1024);
    if (!head.path().starts_with("/no")) return std::nullopt;
    HttpAnswer answer;
    answer.status = 404;
    return answer;
  }
  void request(const std::shared_ptr<HttpSession>& session, HttpMessage message) override {
    INFOS_CHECK(message.body.size() <= limits_.body_bytes);
    session->set_request_id(safe_request_id(message.head.request_id).value_or("made"));
    (void)valid_traceparent(message.head.traceparent);
    (void)bearer_token(message.head.authorization);
    if (message.head.path() == "/wait") return;  // answered never: the end of the client ends it
    HttpAnswer answer;
    answer.body = percent_decode(message.head.query()).value_or("?");
    if (message.head.path() != "/s") return session->reply(answer);
    session->begin_stream(answer);
    session->stream() += "data: 1\n\n";
    session->flush();
    session->stream() += "data: 2\n\n";
    session->end_stream();
  }
  bool book_body(std::int64_t delta) override {
    booked_ += delta;
    INFOS_CHECK(booked_ >= 0);
    return true;
  }
  void count_response(int status) override { INFOS_CHECK(status >= 200 && status <= 599); }
  void closed(HttpSession&) override { ++closed_; }

  int closed_count() const { return closed_; }
  std::int64_t booked() const { return booked_; }

 private:
  HttpLimits limits_;
  int closed_ = 0;
  std::int64_t booked_ = 0;
};

// Reads all there is; checks that it is made of HTTP from its first byte.
void drain(int fd, std::string& seen) {
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n <= 0) break;
    seen.append(buffer, static_cast<std::size_t>(n));
  }
  INFOS_CHECK(seen.empty() ||
              seen.starts_with(std::string_view("HTTP/1.1 ").substr(0, seen.size())));
}

void run_session(std::string_view bytes, std::size_t piece) {
  int fds[2];
  INFOS_CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  FuzzHost host;
  std::string seen;
  {
    boost::asio::io_context io(1);
    HttpSession::Socket socket(io, boost::asio::generic::stream_protocol(AF_UNIX, 0), fds[0]);
    auto session = std::make_shared<HttpSession>(std::move(socket), Origin::tcp, "peer", host);
    session->start();
    while (!bytes.empty() && session->open()) {
      const std::string_view part = bytes.substr(0, piece);
      bytes.remove_prefix(part.size());
      if (::send(fds[1], part.data(), part.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) break;
      io.poll();
      io.restart();
      drain(fds[1], seen);
    }
    ::close(fds[1]);
    io.poll();
    if (session->open()) session->close_now();
    io.restart();
    io.poll();
  }
  INFOS_CHECK(host.closed_count() == 1);
  INFOS_CHECK(host.booked() == 0);
}

}  // namespace
}  // namespace infos

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  infos::run_session(bytes, data[0] == 0 ? bytes.size() + 1 : 1 + data[0] % 64);
  (void)infos::ApiKeys::parse(bytes, "fuzz");
  return 0;
}
