// SPDX-License-Identifier: Apache-2.0
// A small blocking HTTP/1.1 client over TCP and Unix sockets: what commands use to talk to infosd.
// Bounded in time and size; no TLS, so it is for loopback, Unix sockets and trusted networks. One
// request a connection. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "topology/base/result.h"
#include "topology/base/units.h"

namespace infos::cli {

/// Where a server listens.
struct Endpoint {
  std::string host;  ///< empty: `unix_path`
  std::uint16_t port = 0;
  std::string unix_path;
  std::string prefix;  ///< path part of the URL, without a slash at the end
  /// For messages and the Host header.
  std::string name() const;
};
/// "http://HOST:PORT[/PREFIX]" or "unix:PATH". Errors: invalid_argument.
Result<Endpoint> parse_endpoint(const std::string& url);

/// The Unix socket of this machine's infosd: $INFOS_ADMIN_SOCKET, else /run/infos/admin.sock if it
/// is there, else the user's own.
std::string default_admin_socket();
/// $XDG_RUNTIME_DIR/infos/admin.sock, or under /tmp.
std::string user_admin_socket();

struct HttpCall {
  std::string method = "GET";
  std::string target = "/";
  std::string body;
  std::string api_key;
  Duration connect_timeout = seconds(5);
  Duration silence_timeout = seconds(60);  ///< longest wait for the next bytes
  std::size_t body_max = 64u << 20;
};
struct HttpAnswer {
  int status = 0;
  std::string body;
};
/// Errors: unavailable (cannot connect, cut off), deadline_exceeded, corrupt, resource_exhausted.
Result<HttpAnswer> http_call(const Endpoint& endpoint, const HttpCall& call);

/// As http_call, but hands the body on as it comes when the status is 200; other bodies are
/// gathered. `on_piece` returns whether to go on.
enum class Stream { go_on, stop };
Result<HttpAnswer> http_stream(const Endpoint& endpoint, const HttpCall& call,
                               const std::function<Stream(std::string_view piece)>& on_piece);

/// The request's bytes on the wire.
enum class KeepAlive { no, yes };
std::string http_request_text(const Endpoint& endpoint, const HttpCall& call, KeepAlive keep_alive);

/// The message of an OpenAI-style error body, or the body itself, shortened.
std::string error_message(const HttpAnswer& answer);

}  // namespace infos::cli
