// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/http_server.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include <netinet/tcp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <ctime>
#include <utility>

#include "daemon/gateway/openai_response.h"
#include "topology/base/check.h"
#include "topology/base/log.h"

namespace infos {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

Error io_error(const std::string& what, const error_code& ec) {
  return Error{ErrorCode::io, what + ": " + ec.message()};
}

HttpAnswer too_many(const char* message) {
  ApiError error;
  error.status = 503;
  error.type = "server_error";
  error.code = "too_many_connections";
  error.message = message;
  HttpAnswer answer;
  answer.status = 503;
  answer.body = error_body(error);
  answer.retry_after = seconds(1);
  answer.after = AfterReply::close;
  return answer;
}

std::string peer_address(const HttpSession::Socket& socket) {
  error_code ec;
  const auto generic = socket.remote_endpoint(ec);
  if (ec) return "?";
  tcp::endpoint endpoint;
  if (generic.size() > endpoint.capacity()) return "?";
  std::memcpy(endpoint.data(), generic.data(), generic.size());
  endpoint.resize(generic.size());
  return endpoint.address().to_string(ec);
}

// A socket file that nobody listens on any more is removed; anything else is left alone.
Status clear_socket_path(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode)) {
    return Error{ErrorCode::already_exists,
                 "cannot listen on " + path + ": a file that is not a socket is there"};
  }
  asio::io_context io;
  asio::local::stream_protocol::socket probe(io);
  error_code ec;
  probe.connect(asio::local::stream_protocol::endpoint(path), ec);
  if (!ec)
    return Error{ErrorCode::already_exists, "cannot listen on " + path + ": another process does"};
  ::unlink(path.c_str());
  return {};
}

}  // namespace

Time monotonic_now() {
  return Time{std::chrono::duration_cast<std::chrono::nanoseconds>(
                  std::chrono::steady_clock::now().time_since_epoch())
                  .count()};
}

HttpServer::HttpServer(asio::io_context& io, const GatewayOptions& options, HttpApi& api)
    : io_(io),
      options_(options),
      api_(api),
      sweep_timer_(io),
      alive_(std::make_shared<bool>(true)) {}

HttpServer::~HttpServer() { stop(); }

Result<std::uint16_t> HttpServer::listen(const std::string& address, std::uint16_t port) {
  const std::string where = address + ":" + std::to_string(port);
  error_code ec;
  const auto ip = asio::ip::make_address(address == "localhost" ? "127.0.0.1" : address, ec);
  if (ec) {
    return Error{ErrorCode::invalid_argument, "cannot listen on " + where + ": '" + address +
                                                  "' is not an IP address or localhost"};
  }
  if (!ip.is_loopback() && options_.insecure != Insecure::allowed) {
    return Error{
        ErrorCode::invalid_argument,
        "cannot listen on " + where +
            ": this address is off loopback and the connection is not encrypted; " +
            "listen on 127.0.0.1 behind a proxy that speaks TLS, or allow it with --insecure"};
  }
  auto listener = std::make_shared<Listener>(io_);
  if (Status status = open(*listener, Protocol::endpoint(tcp::endpoint(ip, port))); !status.ok())
    return status.error();
  const auto generic = listener->acceptor.local_endpoint(ec);
  if (ec) return io_error("cannot listen on " + where, ec);
  tcp::endpoint bound;
  std::memcpy(bound.data(), generic.data(),
              std::min<std::size_t>(generic.size(), bound.capacity()));
  listeners_.push_back(listener);
  accept(listener);
  return bound.port();
}

Status HttpServer::listen_unix(const std::string& path) {
  if (path.empty() || path.size() > 100) {
    return Error{ErrorCode::invalid_argument,
                 "cannot listen on '" + path + "': a Unix socket's path has 1 to 100 bytes"};
  }
  if (Status status = clear_socket_path(path); !status.ok()) return status.error();
  auto listener = std::make_shared<Listener>(io_);
  listener->origin = Origin::unix_socket;
  // The file is born with the rights it is to have: nobody else can connect in between.
  const mode_t before = ::umask(0177);
  const Status opened =
      open(*listener, Protocol::endpoint(asio::local::stream_protocol::endpoint(path)));
  ::umask(before);
  if (!opened.ok()) return Error{opened.error().code, path + ": " + opened.error().message};
  listener->path = path;
  listeners_.push_back(listener);
  accept(listener);
  return {};
}

Status HttpServer::open(Listener& listener, const Protocol::endpoint& endpoint) {
  error_code ec;
  const Protocol protocol = endpoint.protocol();
  listener.acceptor.open(protocol, ec);
  if (ec) return io_error("cannot open a listening socket", ec);
  if (listener.origin == Origin::tcp) {
    listener.acceptor.set_option(asio::socket_base::reuse_address(true), ec);
    if (ec) return io_error("cannot set the socket's options", ec);
  }
  listener.acceptor.bind(endpoint, ec);
  if (ec) return io_error("cannot bind the listening socket", ec);
  listener.acceptor.listen(asio::socket_base::max_listen_connections, ec);
  if (ec) return io_error("cannot listen", ec);
  return {};
}

void HttpServer::accept(const std::shared_ptr<Listener>& listener) {
  listener->acceptor.async_accept(
      [this, alive = alive_, listener](error_code ec, asio::basic_stream_socket<Protocol> socket) {
        if (!*alive || ec == asio::error::operation_aborted || !listener->acceptor.is_open())
          return;
        if (!ec) {
          accepted(std::move(socket), listener->origin);
          return accept(listener);
        }
        // Out of descriptors, or the peer left early. Not at once again: that would spin.
        log_warn("gateway", "cannot accept a connection", {{"error", ec.message()}});
        listener->retry.expires_after(std::chrono::milliseconds(50));
        listener->retry.async_wait([this, alive, listener](error_code wait_ec) {
          if (*alive && !wait_ec && listener->acceptor.is_open()) accept(listener);
        });
      });
}

void HttpServer::accepted(HttpSession::Socket socket, Origin origin) {
  std::string peer = "unix";
  if (origin == Origin::tcp) {
    peer = peer_address(socket);
    const int on = 1;
    ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const int bytes = static_cast<int>(options_.http.send_buffer_bytes);
    if (bytes > 0)
      ::setsockopt(socket.native_handle(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  }
  const bool full = sessions_.size() >= options_.http.connections;
  // Refused ones need a place too, for as long as it takes to tell them.
  if (sessions_.size() >= std::size_t{options_.http.connections} + 64) return;
  const bool hog =
      origin == Origin::tcp && per_address_[peer] >= options_.http.connections_per_address;
  auto session =
      std::make_shared<HttpSession>(std::move(socket), origin, peer, static_cast<HttpHost&>(*this));
  sessions_.emplace(session.get(), session);
  if (origin == Origin::tcp) ++per_address_[peer];
  api_.count_connections(sessions_.size());
  if (!sweeping_) sweep();
  if (full || hog) {
    session->refuse(too_many(full ? "Too many connections are open; try again."
                                  : "Too many connections from this address are open."));
  } else {
    session->start();
  }
}

void HttpServer::request(const std::shared_ptr<HttpSession>& session, HttpMessage message) {
  if (draining_) session->close_when_idle();
  api_.request(session, std::move(message));
}

bool HttpServer::book_body(std::int64_t delta) {
  if (delta > 0 && body_bytes_ + delta > static_cast<std::int64_t>(options_.http.body_bytes_total))
    return false;
  body_bytes_ += delta;
  return true;
}

void HttpServer::closed(HttpSession& session) {
  if (session.origin() == Origin::tcp) {
    const auto it = per_address_.find(session.peer());
    if (it != per_address_.end() && --it->second == 0) per_address_.erase(it);
  }
  sessions_.erase(&session);
  api_.count_connections(sessions_.size());
}

// One timer for all: a quarter of the shortest limit is close enough, and nothing ticks while
// nobody is connected.
void HttpServer::sweep() {
  const Time now = monotonic_now();
  std::vector<std::shared_ptr<HttpSession>> late;
  for (const auto& [key, session] : sessions_) {
    if (session->deadline() <= now) late.push_back(session);
  }
  for (const auto& session : late) session->timed_out();
  sweeping_ = !sessions_.empty();
  if (!sweeping_) return;
  const HttpLimits& l = options_.http;
  const Duration shortest =
      std::min({l.header_timeout, l.body_timeout, l.idle_timeout, l.write_timeout, l.linger});
  const std::int64_t ns = std::clamp<std::int64_t>(shortest.ns / 4, 5'000'000, 250'000'000);
  sweep_timer_.expires_after(std::chrono::nanoseconds(ns));
  sweep_timer_.async_wait([this, alive = alive_](error_code ec) {
    if (*alive && !ec) sweep();
  });
}

std::string_view HttpServer::date() {
  const std::time_t second = std::time(nullptr);
  if (second != date_second_) {
    std::tm parts{};
    ::gmtime_r(&second, &parts);
    std::array<char, 64> text;
    const std::size_t n =
        std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    date_.assign(text.data(), n);
    date_second_ = second;
  }
  return date_;
}

void HttpServer::drain() {
  draining_ = true;
  for (const auto& listener : listeners_) {
    error_code ignored;
    listener->acceptor.close(ignored);
    listener->retry.cancel();
  }
  std::vector<std::shared_ptr<HttpSession>> sessions;
  for (const auto& [key, session] : sessions_) sessions.push_back(session);
  for (const auto& session : sessions) session->close_when_idle();
}

void HttpServer::stop() {
  if (!*alive_) return;
  drain();
  std::vector<std::shared_ptr<HttpSession>> sessions;
  for (const auto& [key, session] : sessions_) sessions.push_back(session);
  for (const auto& session : sessions) session->close_now();
  for (const auto& listener : listeners_) {
    if (!listener->path.empty()) ::unlink(listener->path.c_str());
  }
  listeners_.clear();
  sweep_timer_.cancel();
  *alive_ = false;
}

}  // namespace infos
