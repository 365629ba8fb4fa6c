// SPDX-License-Identifier: Apache-2.0
// What the HTTP layer and the API layer say to each other, and the pure parts of HTTP that need no
// socket: response heads, request ids, path splitting. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "topology/base/units.h"

namespace infos {

/// Where a connection came from.
enum class Origin : std::uint8_t { tcp, unix_socket };

/// The headers that matter here, empty when absent.
struct HttpHead {
  std::string method;
  std::string target;
  std::string authorization;
  std::string content_type;
  std::string content_encoding;
  std::string request_id;
  std::string traceparent;
  Origin origin = Origin::tcp;

  std::string_view path() const { return std::string_view(target).substr(0, target.find('?')); }
  std::string_view query() const {
    const std::size_t at = target.find('?');
    return at == std::string::npos ? std::string_view() : std::string_view(target).substr(at + 1);
  }
};

struct HttpMessage {
  HttpHead head;
  std::string body;
};

enum class AfterReply : std::uint8_t { keep_alive, close };

/// A whole answer.
struct HttpAnswer {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::string allow;     ///< header Allow, empty: none
  Duration retry_after;  ///< header Retry-After, 0: none
  AfterReply after = AfterReply::keep_alive;
};

std::string_view reason_phrase(int status);

/// How the body of an answer is framed.
enum class Framing : std::uint8_t {
  length,   ///< Content-Length
  chunked,  ///< HTTP/1.1 stream
  close,    ///< HTTP/1.0 stream: until the connection closes
};
struct ResponseHead {
  const HttpAnswer* answer = nullptr;
  Framing framing = Framing::length;
  std::string_view server, date, request_id;
  bool closing = false;
  bool http_1_0 = false;
};
/// Status line and headers, with the blank line.
void append_response_head(std::string& out, const ResponseHead& head);
/// One chunk of a chunked body. Requires: data is not empty (that would end the body).
void append_chunk(std::string& out, std::string_view data);

/// The client's id when it is 1 to 128 of [A-Za-z0-9._:/+=@-]; otherwise nothing.
std::optional<std::string> safe_request_id(std::string_view id);
/// True for W3C version 00 shape "00-<32 hex>-<16 hex>-<2 hex>".
bool valid_traceparent(std::string_view value);
/// %XX and nothing else; nothing when malformed.
std::optional<std::string> percent_decode(std::string_view text);
/// The token of "Bearer <token>" (any case of the scheme), empty otherwise.
std::string_view bearer_token(std::string_view authorization);

}  // namespace infos
