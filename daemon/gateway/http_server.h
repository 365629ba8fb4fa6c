// SPDX-License-Identifier: Apache-2.0
// Listens on TCP and Unix sockets and owns the connections: bounds on their number, their time
// limits (one sweep for all), the end. Runs on the gateway's thread. Knows nothing of the API,
// which it hands requests to.
#pragma once

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/gateway/gateway_options.h"
#include "daemon/gateway/http_session.h"
#include "topology/base/result.h"

namespace infos {

/// The monotonic clock that all of the gateway reads.
Time monotonic_now();

/// The API layer.
class HttpApi {
 public:
  virtual ~HttpApi() = default;
  virtual std::optional<HttpAnswer> admit(const HttpHead& head) = 0;
  virtual void request(const std::shared_ptr<HttpSession>& session, HttpMessage message) = 0;
  virtual void count_response(int status) = 0;
  /// Connections open now.
  virtual void count_connections(std::size_t open) = 0;
};

class HttpServer final : private HttpHost {
 public:
  HttpServer(boost::asio::io_context& io, const GatewayOptions& options, HttpApi& api);
  ~HttpServer() override;

  /// Errors: invalid_argument, io.
  Result<std::uint16_t> listen(const std::string& address, std::uint16_t port);
  Status listen_unix(const std::string& path);
  /// No new connections; idle ones are closed, the others when their answer is complete.
  void drain();
  void stop();
  std::size_t connections() const { return sessions_.size(); }

 private:
  using Protocol = boost::asio::generic::stream_protocol;
  struct Listener {
    explicit Listener(boost::asio::io_context& io) : acceptor(io), retry(io) {}
    boost::asio::basic_socket_acceptor<Protocol> acceptor;
    boost::asio::steady_timer retry;
    Origin origin = Origin::tcp;
    std::string path;  ///< Unix: to remove at the end
  };

  const HttpLimits& limits() const override { return options_.http; }
  Time now() const override { return monotonic_now(); }
  std::string_view server_name() const override { return options_.server; }
  std::string_view date() override;
  std::optional<HttpAnswer> admit(const HttpHead& head) override { return api_.admit(head); }
  void request(const std::shared_ptr<HttpSession>& session, HttpMessage message) override;
  bool book_body(std::int64_t delta) override;
  void count_response(int status) override { api_.count_response(status); }
  void closed(HttpSession& session) override;

  Status open(Listener& listener, const Protocol::endpoint& endpoint);
  void accept(const std::shared_ptr<Listener>& listener);
  void accepted(HttpSession::Socket socket, Origin origin);
  void sweep();

  boost::asio::io_context& io_;
  const GatewayOptions& options_;
  HttpApi& api_;
  std::vector<std::shared_ptr<Listener>> listeners_;  // shared with the accept under way
  std::unordered_map<HttpSession*, std::shared_ptr<HttpSession>> sessions_;
  std::map<std::string, std::uint32_t> per_address_;
  boost::asio::steady_timer sweep_timer_;
  std::shared_ptr<bool> alive_;  // false once the server is gone: late completions look here
  std::int64_t body_bytes_ = 0;
  std::string date_;
  std::int64_t date_second_ = -1;
  bool sweeping_ = false;
  bool draining_ = false;
};

}  // namespace infos
