// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/http_message.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "topology/base/check.h"

namespace infos {
namespace {

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Entity";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Status";
  }
}

void append_response_head(std::string& out, const ResponseHead& head) {
  INFOS_CHECK(head.answer != nullptr);
  const HttpAnswer& answer = *head.answer;
  const auto field = [&](std::string_view name, std::string_view value) {
    out += name;
    out += ": ";
    out += value;
    out += "\r\n";
  };
  out += "HTTP/1.1 ";
  out += std::to_string(answer.status);
  out += ' ';
  out += reason_phrase(answer.status);
  out += "\r\n";
  field("Server", head.server);
  field("Date", head.date);
  if (!head.request_id.empty()) field("X-Request-Id", head.request_id);
  if (answer.status != 204) field("Content-Type", answer.content_type);
  if (!answer.allow.empty()) field("Allow", answer.allow);
  if (answer.status == 401) field("WWW-Authenticate", "Bearer");
  if (answer.retry_after.ns > 0) {
    field("Retry-After", std::to_string(std::max<std::int64_t>(
                             1, (answer.retry_after.ns + 999'999'999) / 1'000'000'000)));
  }
  if (head.framing == Framing::length) {
    if (answer.status != 204) field("Content-Length", std::to_string(answer.body.size()));
  } else {
    if (head.framing == Framing::chunked) field("Transfer-Encoding", "chunked");
    field("Cache-Control", "no-cache");
    field("X-Accel-Buffering", "no");  // nginx would hold a stream back
  }
  if (head.closing) {
    field("Connection", "close");
  } else if (head.http_1_0) {
    field("Connection", "keep-alive");
  }
  out += "\r\n";
}

void append_chunk(std::string& out, std::string_view data) {
  INFOS_CHECK(!data.empty());
  std::array<char, 16> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), data.size(), 16).ptr;
  out.append(digits.data(), static_cast<std::size_t>(end - digits.data()));
  out += "\r\n";
  out += data;
  out += "\r\n";
}

std::optional<std::string> safe_request_id(std::string_view id) {
  if (id.empty() || id.size() > 128) return std::nullopt;
  const bool safe = std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._:/+=@-").find(c) != std::string_view::npos;
  });
  return safe ? std::optional<std::string>(id) : std::nullopt;
}

bool valid_traceparent(std::string_view v) {
  return v.size() == 55 && v.substr(0, 3) == "00-" && v[35] == '-' && v[52] == '-' &&
         is_hex(v.substr(3, 32)) && is_hex(v.substr(36, 16)) && is_hex(v.substr(53, 2));
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
    if (low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

std::string_view bearer_token(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() <= kScheme.size()) return {};
  for (std::size_t i = 0; i < kScheme.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(authorization[i])) != kScheme[i]) return {};
  }
  authorization.remove_prefix(kScheme.size());
  const std::size_t first = authorization.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  authorization.remove_prefix(first);
  return authorization.substr(0, authorization.find_last_not_of(' ') + 1);
}

}  // namespace infos
