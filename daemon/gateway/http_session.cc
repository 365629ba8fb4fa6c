// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/http_session.h"

#include <boost/asio/socket_base.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/rfc7230.hpp>

#include <algorithm>
#include <utility>

#include "daemon/gateway/openai_response.h"
#include "topology/base/check.h"

namespace infos {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

std::string field(const http::fields& fields, http::field name) {
  const auto it = fields.find(name);
  return it == fields.end() ? std::string() : std::string(it->value());
}
std::string field(const http::fields& fields, std::string_view name) {
  const auto it = fields.find(boost::beast::string_view(name.data(), name.size()));
  return it == fields.end() ? std::string() : std::string(it->value());
}

HttpAnswer failure(int status, std::string code, std::string message) {
  ApiError error;
  error.status = status;
  error.code = std::move(code);
  error.message = std::move(message);
  if (status == 503) {
    error.type = "server_error";
    error.retry_after = seconds(1);
  }
  HttpAnswer answer;
  answer.status = status;
  answer.body = error_body(error);
  answer.retry_after = error.retry_after;
  answer.after = AfterReply::close;
  return answer;
}

}  // namespace

HttpSession::HttpSession(Socket socket, Origin origin, std::string peer, HttpHost& host)
    : host_(host), socket_(std::move(socket)), origin_(origin), peer_(std::move(peer)) {
  idle_since_ = progress_ = host_.now();
  error_code ignored;
  socket_.non_blocking(true, ignored);
}

HttpSession::~HttpSession() = default;

void HttpSession::start() { read(); }

void HttpSession::refuse(const HttpAnswer& answer) {
  busy_ = true;
  close_after_ = true;
  reply(answer);
  if (!closed_) read();
}

void HttpSession::close_now() {
  if (closed_) return;
  closed_ = true;
  book(-booked_);
  error_code ignored;
  socket_.close(ignored);
  const auto self = shared_from_this();  // the host may hold the last reference
  if (auto gone = std::exchange(gone_, nullptr); gone && busy_) gone();
  busy_ = false;
  host_.closed(*this);
}

void HttpSession::close_when_idle() {
  close_after_ = true;
  if (!busy_ && !lingering_ && sent_ == out_.size()) close_now();
}

Time HttpSession::deadline() const {
  if (closed_) return kNever;
  if (lingering_) return linger_until_;
  if (sent_ < out_.size()) return progress_ + host_.limits().write_timeout;
  if (busy_) return kNever;
  if (!parser_)
    return idle_since_ +
           (requests_ == 0 ? host_.limits().header_timeout : host_.limits().idle_timeout);
  return request_start_ +
         (header_read_ ? host_.limits().body_timeout : host_.limits().header_timeout);
}

void HttpSession::timed_out() {
  if (closed_ || host_.now() < deadline()) return;
  if (lingering_ || sent_ < out_.size() || !parser_) return close_now();
  fail_request(failure(408, "request_timeout",
                       header_read_ ? "The request's body did not arrive in time."
                                    : "The request's headers did not arrive in time."));
}

// ---- reading ----

void HttpSession::read() {
  if (reading_ || closed_ || half_closed_) return;
  // A client that sends ahead waits; so does the notice of its end, until its answer is complete.
  if (busy_ && !lingering_ && in_.size() >= host_.limits().pipelined_bytes) return;
  reading_ = true;
  socket_.async_read_some(asio::buffer(chunk_),
                          [self = shared_from_this()](error_code ec, std::size_t bytes) {
                            self->reading_ = false;
                            if (self->closed_) return;
                            if (ec) return self->on_end();
                            self->on_read(bytes);
                          });
}

void HttpSession::on_read(std::size_t bytes) {
  if (!lingering_) {
    in_.append(chunk_.data(), bytes);
    if (!busy_) parse();
  }
  read();
}

// End of stream or an error: nothing more will come.
void HttpSession::on_end() {
  half_closed_ = true;
  if (lingering_ || busy_ || sent_ == out_.size()) return close_now();
  close_after_ = true;  // an answer is still on its way to a client that has closed its own side
}

void HttpSession::parse() {
  if (parsing_) return;
  parsing_ = true;
  const auto self = shared_from_this();
  while (!closed_ && !busy_ && !lingering_ && !in_.empty()) {
    if (close_after_) break;
    if (!parse_some()) break;
  }
  parsing_ = false;
}

// Returns: false when more bytes are needed.
bool HttpSession::parse_some() {
  if (!parser_) {
    parser_.emplace();
    parser_->eager(true);
    parser_->header_limit(host_.limits().header_bytes);
    parser_->body_limit(host_.limits().body_bytes);
    request_start_ = host_.now();
    header_read_ = false;
  }
  error_code ec;
  const std::size_t used = parser_->put(asio::const_buffer(in_.data(), in_.size()), ec);
  in_.erase(0, used);
  if (ec && ec != http::error::need_more) {
    protocol_error(ec);
    return false;
  }
  if (!header_read_ && parser_->is_header_done()) {
    header_read_ = true;
    header_done();
    if (!parser_) return !closed_;  // answered already
  }
  if (header_read_) {
    const auto held = static_cast<std::int64_t>(parser_->get().body().size());
    if (!host_.book_body(held - booked_)) {
      fail_request(
          failure(503, "overloaded", "Too many request bodies are being read; try again."));
      return false;
    }
    booked_ = held;
  }
  if (parser_->is_done()) {
    message_done();
    return true;
  }
  return used > 0 && !in_.empty() && ec != http::error::need_more;
}

void HttpSession::header_done() {
  const auto& message = parser_->get();
  head_ = HttpHead{};
  head_.method = std::string(message.method_string());
  head_.target = std::string(message.target());
  head_.authorization = field(message, http::field::authorization);
  head_.content_type = field(message, http::field::content_type);
  head_.content_encoding = field(message, http::field::content_encoding);
  head_.request_id = field(message, "X-Request-Id");
  head_.traceparent = field(message, "traceparent");
  head_.origin = origin_;
  http_1_0_ = message.version() < 11;
  head_request_ = message.method() == http::verb::head;
  if (message.version() != 10 && message.version() != 11) {
    return fail_request(
        failure(505, "http_version", "Only HTTP/1.0 and HTTP/1.1 are spoken here."));
  }
  if (!http_1_0_ && message.count(http::field::host) != 1) {
    return fail_request(
        failure(400, "bad_request", "The request must have exactly one Host header."));
  }
  if (auto refusal = host_.admit(head_)) {
    // Without its body read, what follows on this connection cannot be told apart.
    if (!parser_->is_done()) refusal->after = AfterReply::close;
    return fail_request(*std::move(refusal));
  }
  const std::string expect = field(message, http::field::expect);
  if (expect.empty() || parser_->is_done() || http_1_0_) return;
  if (!boost::beast::iequals(expect, "100-continue")) {
    return fail_request(
        failure(417, "expectation_failed", "The only expectation met here is 100-continue."));
  }
  out_ += "HTTP/1.1 100 Continue\r\n\r\n";
  send();
}

void HttpSession::message_done() {
  HttpMessage message;
  message.head = std::move(head_);
  message.body = std::move(parser_->get().body());
  close_after_ = close_after_ || !parser_->get().keep_alive() ||
                 ++requests_ >= host_.limits().requests_per_connection;
  parser_.reset();
  book(-booked_);
  busy_ = true;
  framing_ = Framing::length;
  host_.request(shared_from_this(), std::move(message));
}

void HttpSession::book(std::int64_t bytes) {
  if (bytes == 0) return;
  host_.book_body(bytes);
  booked_ += bytes;
}

void HttpSession::protocol_error(const error_code& ec) {
  if (ec == http::error::header_limit) {
    return fail_request(failure(431, "header_too_large",
                                "The request's headers are longer than " +
                                    std::to_string(host_.limits().header_bytes) + " bytes."));
  }
  if (ec == http::error::body_limit) {
    return fail_request(failure(413, "request_too_large",
                                "The request's body is longer than " +
                                    std::to_string(host_.limits().body_bytes) + " bytes."));
  }
  if (ec == http::error::bad_version) {
    return fail_request(
        failure(505, "http_version", "Only HTTP/1.0 and HTTP/1.1 are spoken here."));
  }
  fail_request(failure(400, "bad_request", "The request is not valid HTTP: " + ec.message() + "."));
}

// Answers a request that is not, or not wholly, read.
void HttpSession::fail_request(HttpAnswer answer) {
  parser_.reset();
  book(-booked_);
  busy_ = true;
  framing_ = Framing::length;
  if (answer.after == AfterReply::close) close_after_ = true;
  reply(answer);
}

// ---- writing ----

void HttpSession::reply(const HttpAnswer& answer) {
  if (closed_ || !busy_) return;
  INFOS_CHECK(framing_ == Framing::length);
  if (answer.after == AfterReply::close) close_after_ = true;
  ResponseHead head;
  head.answer = &answer;
  head.server = host_.server_name();
  head.date = host_.date();
  head.request_id = request_id_;
  head.closing = close_after_;
  head.http_1_0 = http_1_0_;
  append_response_head(out_, head);
  if (!head_request_ && answer.status != 204) out_ += answer.body;
  host_.count_response(answer.status);
  answer_done();
}

void HttpSession::begin_stream(const HttpAnswer& answer) {
  if (closed_ || !busy_) return;
  framing_ = http_1_0_ ? Framing::close : Framing::chunked;
  if (http_1_0_) close_after_ = true;
  ResponseHead head;
  head.answer = &answer;
  head.framing = framing_;
  head.server = host_.server_name();
  head.date = host_.date();
  head.request_id = request_id_;
  head.closing = close_after_;
  append_response_head(out_, head);
  host_.count_response(answer.status);
}

void HttpSession::flush() {
  if (closed_) return;
  if (!stream_.empty() && streaming()) {
    if (framing_ == Framing::chunked) {
      append_chunk(out_, stream_);
    } else {
      out_ += stream_;
    }
    stream_.clear();
  }
  send();
  if (!closed_ && streaming() && out_.size() - sent_ > host_.limits().output_bytes) close_now();
}

void HttpSession::end_stream() {
  if (closed_ || !streaming()) return;
  if (!stream_.empty()) {
    if (framing_ == Framing::chunked) {
      append_chunk(out_, stream_);
    } else {
      out_ += stream_;
    }
    stream_.clear();
  }
  if (framing_ == Framing::chunked) out_ += "0\r\n\r\n";
  answer_done();
}

// The whole answer is in out_: sends it, then the next request's turn comes.
void HttpSession::answer_done() {
  busy_ = false;
  framing_ = Framing::length;
  gone_ = nullptr;
  request_id_.clear();
  head_request_ = false;
  idle_since_ = host_.now();
  const auto self = shared_from_this();
  send();
  if (closed_) return;
  if (half_closed_ && sent_ == out_.size()) return close_now();
  // A client that does not take its answers gets no further ones.
  if (!close_after_ && out_.size() - sent_ <= host_.limits().output_bytes) parse();
  read();
}

void HttpSession::send() {
  if (closed_ || write_waiting_) return;
  while (sent_ < out_.size()) {
    error_code ec;
    const std::size_t n =
        socket_.write_some(asio::buffer(out_.data() + sent_, out_.size() - sent_), ec);
    if (ec == asio::error::would_block || ec == asio::error::try_again) {
      write_waiting_ = true;
      progress_ = host_.now();
      socket_.async_wait(Socket::wait_write, [self = shared_from_this()](error_code wait_ec) {
        self->write_waiting_ = false;
        if (self->closed_) return;
        if (wait_ec) return self->close_now();
        self->send();
        if (!self->closed_ && !self->busy_ && !self->close_after_ &&
            self->sent_ == self->out_.size()) {
          self->parse();
          self->read();
        }
      });
      return;
    }
    if (ec) return close_now();
    sent_ += n;
    progress_ = host_.now();
  }
  out_.clear();
  sent_ = 0;
  if (out_.capacity() > host_.limits().output_bytes) out_.shrink_to_fit();
  progress_ = host_.now();
  if (close_after_ && !busy_ && !lingering_) start_lingering();
}

// Closing with bytes unread would reset the connection and take the answer away from the client:
// say that no more comes, and read on for a little.
void HttpSession::start_lingering() {
  if (half_closed_) return close_now();
  lingering_ = true;
  in_.clear();
  linger_until_ = host_.now() + host_.limits().linger;
  error_code ec;
  socket_.shutdown(Socket::shutdown_send, ec);
  if (ec) return close_now();
  read();
}

}  // namespace infos
