// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/http_parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace infos::cli {
namespace {

Error corrupt(std::string what) {
  return {ErrorCode::corrupt, "the server's answer is not HTTP: " + std::move(what)};
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() &&
         (text.back() == ' ' || text.back() == '\t' || text.back() == '\r' || text.back() == '\n'))
    text.remove_suffix(1);
  return text;
}

bool same_word(std::string_view a, std::string_view b) {
  const auto low = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return low(x) == low(y); });
}

}  // namespace

void HttpAnswerParser::reset() {
  state_ = State::head;
  framing_ = Framing::until_end;
  line_.clear();
  left_ = 0;
  status_ = 0;
  keeps_alive_ = true;
}

Status HttpAnswerParser::read_header(std::string_view name, std::string_view value) {
  if (same_word(name, "content-length")) {
    std::uint64_t length = 0;
    const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), length);
    if (code != std::errc{} || end != value.data() + value.size())
      return corrupt(fmt::format("content-length '{}'", value.substr(0, 40)));
    if (framing_ != Framing::chunked) framing_ = Framing::length;
    left_ = length;
  } else if (same_word(name, "transfer-encoding")) {
    if (!same_word(value, "chunked"))
      return corrupt(fmt::format("transfer-encoding '{}'", value.substr(0, 40)));
    framing_ = Framing::chunked;
  } else if (same_word(name, "connection")) {
    keeps_alive_ = !same_word(value, "close");
  }
  return {};
}

Status HttpAnswerParser::read_head() {
  std::string_view rest = line_;
  const std::string_view first = trim(rest.substr(0, rest.find('\n')));
  if (!first.starts_with("HTTP/1.") || first.size() < 12)
    return corrupt(fmt::format("it begins with '{}'", first.substr(0, 40)));
  const auto [end, code] = std::from_chars(first.data() + 9, first.data() + 12, status_);
  if (code != std::errc{} || end != first.data() + 12 || status_ < 100)
    return corrupt(fmt::format("status line '{}'", first.substr(0, 40)));
  keeps_alive_ = first[7] != '0';
  rest.remove_prefix(rest.find('\n') + 1);
  while (!rest.empty()) {
    const std::string_view header = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), header.size() + 1));
    const std::size_t colon = header.find(':');
    if (colon == std::string_view::npos) continue;
    INFOS_TRY(read_header(trim(header.substr(0, colon)), trim(header.substr(colon + 1))));
  }
  line_.clear();
  if (status_ < 200) {  // 100 Continue: the real answer follows
    reset();
  } else if (status_ == 204 || status_ == 304 || (framing_ == Framing::length && left_ == 0)) {
    framing_ = Framing::length;
    state_ = State::done;
  } else {
    state_ = framing_ == Framing::chunked ? State::chunk_size : State::body;
  }
  return {};
}

Status HttpAnswerParser::read_chunk_size() {
  const std::string_view text = trim(std::string_view(line_).substr(0, line_.find(';')));
  std::uint64_t size = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), size, 16);
  if (code != std::errc{} || end != text.data() + text.size() || size > (1ULL << 40))
    return corrupt(fmt::format("chunk size '{}'", text.substr(0, 40)));
  left_ = size;
  state_ = size == 0 ? State::trailer : State::chunk_data;
  line_.clear();
  return {};
}

Result<std::size_t> HttpAnswerParser::feed(std::string_view bytes) {
  std::size_t used = 0;
  while (used < bytes.size() && state_ != State::done) {
    const std::string_view rest = bytes.substr(used);
    if (state_ == State::body || state_ == State::chunk_data) {
      const bool endless = state_ == State::body && framing_ == Framing::until_end;
      const std::size_t take =
          endless ? rest.size()
                  : static_cast<std::size_t>(std::min<std::uint64_t>(left_, rest.size()));
      on_body_(rest.substr(0, take));
      used += take;
      if (endless) continue;
      left_ -= take;
      if (left_ == 0) state_ = state_ == State::body ? State::done : State::chunk_end;
      continue;
    }
    const std::size_t newline = rest.find('\n');
    const std::size_t take = newline == std::string_view::npos ? rest.size() : newline + 1;
    line_ += rest.substr(0, take);
    used += take;
    if (line_.size() > (state_ == State::head ? kHeadMax : kLineMax))
      return corrupt("a line or head without end");
    if (newline == std::string_view::npos) continue;
    switch (state_) {
      case State::head:
        if (line_.ends_with("\r\n\r\n") || line_.ends_with("\n\n")) INFOS_TRY(read_head());
        break;
      case State::chunk_size:
        INFOS_TRY(read_chunk_size());
        break;
      case State::chunk_end:
        if (!trim(line_).empty()) return corrupt("a chunk longer than its size");
        line_.clear();
        state_ = State::chunk_size;
        break;
      case State::trailer:
        if (trim(line_).empty()) state_ = State::done;
        line_.clear();
        break;
      default:
        break;
    }
  }
  return used;
}

Status HttpAnswerParser::end() {
  if (state_ == State::body && framing_ == Framing::until_end) state_ = State::done;
  if (state_ == State::done) return {};
  return Error{ErrorCode::unavailable, state_ == State::head && line_.empty()
                                           ? "the server closed the connection without an answer"
                                           : "the server's answer ended in the middle"};
}

Status EventParser::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    if (newline == std::string_view::npos) {
      line_ += bytes;
      if (line_.size() > kLineMax)
        return Error{ErrorCode::resource_exhausted, "an event longer than 4 MiB"};
      return {};
    }
    if (line_.empty()) {
      line(bytes.substr(0, newline));
    } else {
      line_ += bytes.substr(0, newline);
      line(line_);
      line_.clear();
    }
    bytes.remove_prefix(newline + 1);
  }
  return {};
}

void EventParser::line(std::string_view text) {
  if (text.ends_with('\r')) text.remove_suffix(1);
  if (!text.starts_with("data:")) return;
  text.remove_prefix(5);
  if (text.starts_with(' ')) text.remove_prefix(1);
  on_data_(text);
}

}  // namespace infos::cli
