// SPDX-License-Identifier: Apache-2.0
// A TCP proxy on loopback that swallows one direction or resets one side: the network faults of the
// peer tests, without privileges.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

namespace infos::test {

class CutProxy {
 public:
  enum class Direction { to_server, to_client };

  explicit CutProxy(std::uint16_t server)
      : acceptor_(io_, Tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0)),
        server_(boost::asio::ip::address_v4::loopback(), server) {
    accept();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~CutProxy() {
    io_.stop();
    thread_.join();
  }
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

  /// From now on, on every connection.
  void swallow(Direction direction) {
    (direction == Direction::to_server ? swallow_to_server_ : swallow_to_client_) = true;
  }
  /// Those who dialled see a reset; the server's side stays open and silent.
  void reset_clients() {
    boost::asio::post(io_, [this] {
      for (const auto& pair : pairs_) {
        boost::system::error_code ignored;
        pair->client.set_option(boost::asio::socket_base::linger(true, 0), ignored);
        pair->client.close(ignored);
      }
    });
  }

 private:
  using Tcp = boost::asio::ip::tcp;
  struct Pair {
    explicit Pair(boost::asio::io_context& io) : client(io), server(io) {}
    Tcp::socket client, server;
    std::array<char, 16384> up{}, down{};
  };

  void accept() {
    const auto pair = std::make_shared<Pair>(io_);
    acceptor_.async_accept(pair->client, [this, pair](boost::system::error_code error) {
      if (error) return;
      pairs_.push_back(pair);
      pair->server.async_connect(server_, [this, pair](boost::system::error_code failed) {
        if (failed) return pair->client.close(failed), void();
        pump(pair, pair->client, pair->server, pair->up, swallow_to_server_);
        pump(pair, pair->server, pair->client, pair->down, swallow_to_client_);
      });
      accept();
    });
  }
  void pump(const std::shared_ptr<Pair>& pair, Tcp::socket& from, Tcp::socket& to,
            std::array<char, 16384>& buffer, const std::atomic<bool>& swallow) {
    from.async_read_some(
        boost::asio::buffer(buffer), [this, pair, &from, &to, &buffer, &swallow](
                                         boost::system::error_code error, std::size_t bytes) {
          if (error) {
            boost::system::error_code ignored;
            if (error == boost::asio::error::eof) to.shutdown(Tcp::socket::shutdown_send, ignored);
            return;
          }
          if (swallow) return pump(pair, from, to, buffer, swallow);
          boost::asio::async_write(to, boost::asio::buffer(buffer, bytes),
                                   [this, pair, &from, &to, &buffer, &swallow](
                                       boost::system::error_code failed, std::size_t) {
                                     if (!failed) pump(pair, from, to, buffer, swallow);
                                   });
        });
  }

  boost::asio::io_context io_{1};
  Tcp::acceptor acceptor_;
  Tcp::endpoint server_;
  std::vector<std::shared_ptr<Pair>> pairs_;
  std::atomic<bool> swallow_to_server_{false}, swallow_to_client_{false};
  std::thread thread_;
};

}  // namespace infos::test
