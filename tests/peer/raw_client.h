// SPDX-License-Identifier: Apache-2.0
// A blocking TLS client that may say anything: what hostile and foreign programs look like to a
// peer listener.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>

#include "daemon/runtime/peer/openssl.h"
#include "daemon/runtime/peer/peer_messages.h"
#include "daemon/runtime/unique_fd.h"
#include "tests/peer/peer_support.h"

namespace infos::test {

class RawClient {
 public:
  struct Frame {
    PeerFrameKind kind;
    std::string payload;
  };

  explicit RawClient(std::uint16_t port, const std::optional<Credential>& shown = {},
                     int version = TLS1_3_VERSION)
      : context_(SSL_CTX_new(TLS_client_method())),
        socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    ::signal(SIGPIPE, SIG_IGN);  // the other side may be gone at any time
    SSL_CTX_set_min_proto_version(context_.get(), version);
    SSL_CTX_set_max_proto_version(context_.get(), version);
    if (shown) {
      const auto certificate = ssl::read_certificate(shown->certificate, "test").value();
      const auto key = ssl::read_private_key(shown->key, "test").value();
      SSL_CTX_use_certificate(context_.get(), certificate.get());
      SSL_CTX_use_PrivateKey(context_.get(), key.get());
    }
    const timeval limit{30, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      return;
    session_.reset(SSL_new(context_.get()));
    SSL_set_fd(session_.get(), socket_.get());
    secured_ = SSL_connect(session_.get()) == 1;
    ERR_clear_error();
  }

  bool secured() const { return secured_; }
  void send_bytes(const std::string& bytes) {
    SSL_write(session_.get(), bytes.data(), static_cast<int>(bytes.size()));
    ERR_clear_error();
  }
  void send(std::uint16_t kind, const std::string& payload) {
    std::string bytes;
    append_peer_frame(bytes, kind, payload);
    send_bytes(bytes);
  }
  void send(PeerFrameKind kind, const std::string& payload) {
    send(static_cast<std::uint16_t>(kind), payload);
  }
  /// The next frame; nothing at the end of the connection.
  std::optional<Frame> read() {
    while (true) {
      const auto frame = reader_.next().value();
      if (frame) return Frame{static_cast<PeerFrameKind>(frame->kind), std::string(frame->payload)};
      char buffer[4096];
      const int got = SSL_read(session_.get(), buffer, sizeof buffer);
      ERR_clear_error();
      if (got <= 0) return std::nullopt;
      reader_.append({buffer, static_cast<std::size_t>(got)});
    }
  }
  /// The reason of the refusal that ends the connection; "" when it ends without one.
  std::string refusal() {
    while (const auto frame = read())
      if (frame->kind == PeerFrameKind::refusal)
        return decode_peer<Refusal>(frame->payload)->reason;
    return "";
  }
  /// Reads until a frame of this kind.
  std::optional<Frame> read(PeerFrameKind kind) {
    while (auto frame = read())
      if (frame->kind == kind) return frame;
    return std::nullopt;
  }

 private:
  std::unique_ptr<SSL_CTX, ssl::Freer<SSL_CTX_free>> context_;
  UniqueFd socket_;
  std::unique_ptr<SSL, ssl::Freer<SSL_free>> session_;
  bool secured_ = false;
  PeerFrameReader reader_;
};

/// What node `node` of cluster "lab" says first.
inline Hello hello_of(std::uint32_t node) {
  Hello hello;
  hello.cluster = "lab";
  hello.node = NodeId{node};
  hello.incarnation = 1;
  hello.version = kPeerVersion;
  hello.version_min = kPeerVersionMin;
  return hello;
}

}  // namespace infos::test
