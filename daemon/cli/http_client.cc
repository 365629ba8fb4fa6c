// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/http_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <boost/json.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "daemon/cli/http_parse.h"

namespace infos::cli {
namespace {

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

/// Errors: deadline_exceeded, io.
Status wait_for(int fd, short events, Duration limit, const std::string& what) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(limit.ns);
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                          deadline - std::chrono::steady_clock::now())
                          .count();
    pollfd waiting{fd, events, 0};
    const int n = ::poll(&waiting, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (n > 0) return {};
    if (n == 0)
      return Error{ErrorCode::deadline_exceeded,
                   fmt::format("{}: nothing for {}", what, to_string(limit))};
    if (errno != EINTR) return Error{ErrorCode::io, fmt::format("poll: {}", std::strerror(errno))};
  }
}

Result<Socket> connect_to(const sockaddr* address, socklen_t length, const Endpoint& endpoint,
                          Duration limit) {
  Socket socket(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.fd() < 0) return Error{ErrorCode::io, fmt::format("socket: {}", std::strerror(errno))};
  if (::connect(socket.fd(), address, length) != 0) {
    if (errno != EINPROGRESS)
      return Error{ErrorCode::unavailable,
                   fmt::format("cannot connect to {}: {}", endpoint.name(), std::strerror(errno))};
    INFOS_TRY(wait_for(socket.fd(), POLLOUT, limit, "connecting to " + endpoint.name()));
    int problem = 0;
    socklen_t size = sizeof problem;
    ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &problem, &size);
    if (problem != 0)
      return Error{ErrorCode::unavailable, fmt::format("cannot connect to {}: {}", endpoint.name(),
                                                       std::strerror(problem))};
  }
  return socket;
}

Result<Socket> open_socket(const Endpoint& endpoint, Duration limit) {
  if (endpoint.host.empty()) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (endpoint.unix_path.size() >= sizeof address.sun_path)
      return Error{ErrorCode::invalid_argument,
                   fmt::format("socket path '{}' is longer than {} bytes", endpoint.unix_path,
                               sizeof address.sun_path - 1)};
    std::memcpy(address.sun_path, endpoint.unix_path.data(), endpoint.unix_path.size());
    return connect_to(reinterpret_cast<const sockaddr*>(&address), sizeof address, endpoint, limit);
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code =
      ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (code != 0)
    return Error{ErrorCode::unavailable,
                 fmt::format("cannot find host '{}': {}", endpoint.host, ::gai_strerror(code))};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  Error last{ErrorCode::unavailable, fmt::format("host '{}' has no address", endpoint.host)};
  for (const addrinfo* one = found; one; one = one->ai_next) {
    Result<Socket> socket = connect_to(one->ai_addr, one->ai_addrlen, endpoint, limit);
    if (socket.ok()) return socket;
    last = socket.error();
  }
  return last;
}

Status send_all(int fd, std::string_view bytes, Duration limit) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      INFOS_TRY(wait_for(fd, POLLOUT, limit, "sending"));
    } else if (errno != EINTR) {
      return Error{ErrorCode::unavailable, fmt::format("sending: {}", std::strerror(errno))};
    }
  }
  return {};
}

}  // namespace

std::string Endpoint::name() const {
  if (host.empty()) return "unix:" + unix_path;
  return fmt::format("http://{}:{}{}",
                     host.find(':') == std::string::npos ? host : "[" + host + "]", port, prefix);
}

Result<Endpoint> parse_endpoint(const std::string& url) {
  const auto refuse = [&] {
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("'{}' is not a URL this client can use: want http://HOST:PORT or unix:PATH",
                    url.substr(0, 200))};
  };
  Endpoint out;
  if (url.starts_with("unix:")) {
    out.unix_path = url.substr(5);
    if (out.unix_path.empty()) return refuse();
    return out;
  }
  if (!url.starts_with("http://")) return refuse();
  std::string rest = url.substr(7);
  const std::size_t slash = rest.find('/');
  if (slash != std::string::npos) {
    out.prefix = rest.substr(slash);
    while (out.prefix.ends_with('/')) out.prefix.pop_back();
    rest.resize(slash);
  }
  if (out.prefix.find_first_of(" \r\n") != std::string::npos) return refuse();
  std::string port = "80";
  const std::size_t colon = rest.rfind(':');
  if (colon != std::string::npos && rest.find(']', colon) == std::string::npos) {
    port = rest.substr(colon + 1);
    rest.resize(colon);
  }
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  const auto [end, code] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (rest.empty() || code != std::errc{} || end != port.data() + port.size() || out.port == 0)
    return refuse();
  if (rest.find_first_of(" \r\n/?#@") != std::string::npos) return refuse();
  out.host = rest;
  return out;
}

std::string user_admin_socket() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime && *runtime) return std::string(runtime) + "/infos/admin.sock";
  return fmt::format("/tmp/infos-{}/admin.sock", ::getuid());
}

std::string default_admin_socket() {
  if (const char* given = std::getenv("INFOS_ADMIN_SOCKET"); given && *given) return given;
  const char* system = "/run/infos/admin.sock";
  return ::access(system, R_OK | W_OK) == 0 ? system : user_admin_socket();
}

std::string http_request_text(const Endpoint& endpoint, const HttpCall& call,
                              KeepAlive keep_alive) {
  const std::string host = endpoint.host.empty()
                               ? "localhost"
                               : endpoint.name().substr(7, endpoint.name().find('/', 7) - 7);
  std::string out =
      fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\nUser-Agent: infos\r\nAccept: */*\r\n",
                  call.method, endpoint.prefix, call.target, host);
  if (!call.api_key.empty()) out += fmt::format("Authorization: Bearer {}\r\n", call.api_key);
  if (!call.body.empty()) out += "Content-Type: application/json\r\n";
  if (call.method != "GET") out += fmt::format("Content-Length: {}\r\n", call.body.size());
  if (keep_alive == KeepAlive::no) out += "Connection: close\r\n";
  return out + "\r\n" + call.body;
}

Result<HttpAnswer> http_stream(const Endpoint& endpoint, const HttpCall& call,
                               const std::function<Stream(std::string_view piece)>& on_piece) {
  const Socket socket = INFOS_TRY(open_socket(endpoint, call.connect_timeout));
  INFOS_TRY(send_all(socket.fd(), http_request_text(endpoint, call, KeepAlive::no),
                     call.silence_timeout));
  HttpAnswer answer;
  Stream wish = Stream::go_on;
  bool too_long = false;
  HttpAnswerParser* reading = nullptr;
  HttpAnswerParser parser([&](std::string_view piece) {
    if (reading->status() == 200 && on_piece) {
      if (wish == Stream::go_on) wish = on_piece(piece);
    } else if (answer.body.size() + piece.size() > call.body_max) {
      too_long = true;
    } else {
      answer.body += piece;
    }
  });
  reading = &parser;
  std::array<char, 65536> buffer;
  while (!parser.done() && wish == Stream::go_on) {
    const ssize_t n = ::recv(socket.fd(), buffer.data(), buffer.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      INFOS_TRY(
          wait_for(socket.fd(), POLLIN, call.silence_timeout, "waiting for " + endpoint.name()));
    } else if (n < 0 && errno != EINTR) {
      return Error{ErrorCode::unavailable,
                   fmt::format("{}: {}", endpoint.name(), std::strerror(errno))};
    } else if (n == 0) {
      INFOS_TRY(parser.end());
    } else if (n > 0) {
      INFOS_TRY(parser.feed({buffer.data(), static_cast<std::size_t>(n)}));
    }
    if (too_long)
      return Error{ErrorCode::resource_exhausted,
                   fmt::format("the answer is longer than {}", to_string(Bytes{call.body_max}))};
  }
  answer.status = parser.status();
  return answer;
}

Result<HttpAnswer> http_call(const Endpoint& endpoint, const HttpCall& call) {
  return http_stream(endpoint, call, nullptr);
}

std::string error_message(const HttpAnswer& answer) {
  boost::json::error_code failed;
  const boost::json::value value = boost::json::parse(answer.body, failed);
  if (!failed && value.is_object()) {
    const boost::json::value* error = value.as_object().if_contains("error");
    if (error && error->is_object()) {
      const boost::json::value* message = error->as_object().if_contains("message");
      if (message && message->is_string()) return std::string(message->as_string());
    }
  }
  return fmt::format("HTTP status {}: {}", answer.status, answer.body.substr(0, 500));
}

}  // namespace infos::cli
