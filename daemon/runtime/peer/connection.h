// SPDX-License-Identifier: Apache-2.0
// PeerConnection: one TCP connection with TLS, as frames. Owns the socket, the handshake, the queue
// of what is not yet written, and the facts of the other side's certificate. Knows nothing of
// peers, time or what frames mean. Runs on the thread of its io_context.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/runtime/peer/certificate.h"
#include "daemon/runtime/peer/peer_messages.h"
#include "daemon/runtime/peer/tls_context.h"

namespace infos {

class PeerConnection : public std::enable_shared_from_this<PeerConnection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  enum class Side : std::uint8_t { client, server };
  struct Callbacks {
    std::function<void()> secured;  ///< the handshake is done
    std::function<void(const PeerFrame&)> said;
    std::function<void()> heard;  ///< bytes came
    /// The end, once; not after close(). `why` is one clause.
    std::function<void(const std::string& why)> ended;
  };

  PeerConnection(Socket socket, std::shared_ptr<TlsContext> tls, Side side);

  void start(Callbacks callbacks);
  /// Without effect once it has ended.
  void send(std::uint16_t kind, std::string_view payload);
  void send(PeerFrameKind kind, std::string_view payload) {
    send(static_cast<std::uint16_t>(kind), payload);
  }
  /// Bytes that wait for the socket.
  std::size_t unsent() const { return writing_.size() + pending_.size(); }
  /// Since the last call: whether the other side's system acknowledged bytes.
  bool took_bytes();
  void set_frame_limit(std::size_t bytes) { reader_.set_limit(bytes); }

  /// Writes what is queued, says the end, and waits for the other side's; reads nothing more.
  void finish();
  /// At once; no callback comes any more.
  void close();
  bool closed() const { return !callbacks_; }

  /// The certificate of the other side; nothing: it showed none. Requires: secured.
  const std::optional<std::string>& certificate() const { return certificate_; }
  /// 32 bytes that only the two ends of this TLS session know. Requires: secured.
  std::string session_secret();
  /// What it was begun with.
  const std::shared_ptr<TlsContext>& tls() const { return tls_; }
  /// "10.0.0.2", for limits and logs.
  const std::string& remote() const { return remote_; }

 private:
  void secured(const boost::system::error_code& error);
  void read();
  void got(std::size_t bytes);
  void write();
  void fail(const std::string& why);

  boost::asio::ssl::stream<Socket> stream_;
  std::shared_ptr<TlsContext> tls_;
  const Side side_;
  std::shared_ptr<const Callbacks> callbacks_;  // shared with the call that is under way
  std::optional<std::string> certificate_;
  std::string remote_;
  PeerFrameReader reader_;
  std::array<char, 16384> input_;
  std::string writing_, pending_;
  std::uint64_t acknowledged_ = 0;
  bool finishing_ = false;
};

}  // namespace infos
