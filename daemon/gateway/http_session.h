// SPDX-License-Identifier: Apache-2.0
// One HTTP/1.1 connection: reads requests one after another (pipelined ones wait), writes one
// answer at a time, whole or as a stream, and notices at once when its client goes away while an
// answer is under way. Owns the socket and its buffers. Runs on the gateway's thread. Knows nothing
// of the API.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/gateway/gateway_options.h"
#include "daemon/gateway/http_message.h"
#include "topology/base/units.h"

namespace infos {

class HttpSession;

/// What a session asks of its owner. Outlives every session (a session is closed before it ends).
class HttpHost {
 public:
  virtual ~HttpHost() = default;
  virtual const HttpLimits& limits() const = 0;
  virtual Time now() const = 0;
  virtual std::string_view server_name() const = 0;
  /// The value of a Date header.
  virtual std::string_view date() = 0;
  /// May refuse a request before its body is read.
  virtual std::optional<HttpAnswer> admit(const HttpHead& head) = 0;
  /// Takes a request over: it calls reply() or begin_stream() on the session, at once or later.
  virtual void request(const std::shared_ptr<HttpSession>& session, HttpMessage message) = 0;
  /// Books `delta` bytes of bodies that are being read; false: there is no room.
  virtual bool book_body(std::int64_t delta) = 0;
  virtual void count_response(int status) = 0;
  /// The session is closed: forget it.
  virtual void closed(HttpSession& session) = 0;
};

class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  using Socket = boost::asio::basic_stream_socket<boost::asio::generic::stream_protocol>;
  HttpSession(Socket socket, Origin origin, std::string peer, HttpHost& host);
  ~HttpSession();

  void start();
  /// Answers and closes, without reading a request first (too many connections).
  void refuse(const HttpAnswer& answer);
  /// Closes now; a request under way hears it by its on_gone.
  void close_now();
  /// Closes once what is under way is answered.
  void close_when_idle();
  /// When this session wants timed_out(), kNever if never.
  Time deadline() const;
  void timed_out();
  const std::string& peer() const { return peer_; }
  Origin origin() const { return origin_; }

  // ---- answering the request under way ----
  /// Goes back to the client in X-Request-Id.
  void set_request_id(std::string id) { request_id_ = std::move(id); }
  /// Called, once, when the client goes away before the answer is complete.
  void on_gone(std::function<void()> gone) { gone_ = std::move(gone); }
  void reply(const HttpAnswer& answer);
  void begin_stream(const HttpAnswer& head);
  /// Bytes appended here become part of the stream at the next flush().
  std::string& stream() { return stream_; }
  /// Sends what the kernel takes. A client too slow for the bound is dropped.
  void flush();
  void end_stream();
  bool streaming() const { return framing_ != Framing::length && busy_; }
  bool open() const { return !closed_; }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  void read();
  void on_read(std::size_t bytes);
  void on_end();
  void parse();
  bool parse_some();
  void header_done();
  void message_done();
  void protocol_error(const boost::system::error_code& ec);
  void fail_request(HttpAnswer answer);
  void answer_done();
  void start_lingering();
  void send();
  void book(std::int64_t bytes);

  HttpHost& host_;
  Socket socket_;
  const Origin origin_;
  const std::string peer_;

  std::array<char, 8192> chunk_;
  std::string in_;  ///< read, not parsed
  std::optional<Parser> parser_;
  HttpHead head_;
  std::int64_t booked_ = 0;
  std::uint32_t requests_ = 0;

  std::string out_;  ///< from sent_ on: not yet taken by the kernel
  std::size_t sent_ = 0;
  std::string stream_;
  std::string request_id_;
  std::function<void()> gone_;
  Framing framing_ = Framing::length;

  Time request_start_;  ///< first byte of the request being read
  Time idle_since_;
  Time progress_;  ///< the kernel last took bytes, or had none to take
  Time linger_until_ = kNever;
  bool reading_ = false;
  bool parsing_ = false;
  bool header_read_ = false;
  bool busy_ = false;  ///< a request is being answered
  bool write_waiting_ = false;
  bool close_after_ = false;
  bool lingering_ = false;
  bool half_closed_ = false;  ///< the client will send no more
  bool closed_ = false;
  bool head_request_ = false;
  bool http_1_0_ = false;
};

}  // namespace infos
