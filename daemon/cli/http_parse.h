// SPDX-License-Identifier: Apache-2.0
// Reading HTTP/1.1 answers and server-sent events piece by piece, with bounds, cheaply: what `infos
// bench` does a hundred thousand times a second. Never touches a socket.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "topology/base/result.h"

namespace infos::cli {

/// One answer. Feed bytes as they come; the body is handed on as it comes, without its chunk
/// framing.
class HttpAnswerParser {
 public:
  using OnBody = std::function<void(std::string_view piece)>;
  explicit HttpAnswerParser(OnBody on_body) : on_body_(std::move(on_body)) {}

  /// Returns: how many of `bytes` belong to this answer. Errors: corrupt, naming what is wrong.
  Result<std::size_t> feed(std::string_view bytes);
  /// The connection ended. Errors: corrupt when the answer is not whole.
  Status end();

  bool done() const { return state_ == State::done; }
  bool has_head() const { return state_ != State::head; }
  int status() const { return status_; }
  /// Whether another request may follow on the connection.
  bool keeps_alive() const { return keeps_alive_ && framing_ != Framing::until_end; }
  /// Ready for the next answer on the same connection.
  void reset();

 private:
  enum class State { head, body, chunk_size, chunk_data, chunk_end, trailer, done };
  enum class Framing { length, chunked, until_end };
  static constexpr std::size_t kHeadMax = 64u << 10;
  static constexpr std::size_t kLineMax = 1u << 10;

  Status read_head();
  Status read_header(std::string_view name, std::string_view value);
  Status read_chunk_size();

  OnBody on_body_;
  State state_ = State::head;
  Framing framing_ = Framing::until_end;
  std::string line_;        ///< the head, or a line of the chunk framing
  std::uint64_t left_ = 0;  ///< bytes of the body, or of the chunk
  int status_ = 0;
  bool keeps_alive_ = true;
};

/// Server-sent events: gives the value of each `data:` line. Other fields are skipped.
class EventParser {
 public:
  using OnData = std::function<void(std::string_view data)>;
  explicit EventParser(OnData on_data) : on_data_(std::move(on_data)) {}
  /// Errors: resource_exhausted for a line longer than kLineMax.
  Status feed(std::string_view bytes);
  void reset() { line_.clear(); }

 private:
  static constexpr std::size_t kLineMax = 4u << 20;
  void line(std::string_view text);
  OnData on_data_;
  std::string line_;  ///< an unfinished line
};

}  // namespace infos::cli
