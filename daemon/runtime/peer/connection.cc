// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/peer/connection.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <openssl/pem.h>
#include <sys/socket.h>

#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

#include "daemon/runtime/peer/openssl.h"
#include "daemon/runtime/peer/tcp_progress.h"

namespace infos {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

/// A second line behind heartbeats: unacknowledged bytes end the connection. Units: ms.
constexpr unsigned kUserTimeout = 5000;

std::string reason_of(const error_code& error) {
  if (error == asio::error::eof || error == asio::ssl::error::stream_truncated)
    return "the peer closed the connection";
  return error.message();
}

}  // namespace

PeerConnection::PeerConnection(Socket socket, std::shared_ptr<TlsContext> tls, Side side)
    : stream_(std::move(socket), tls->context), tls_(std::move(tls)), side_(side) {
  Socket& tcp = stream_.next_layer();
  error_code failed;
  tcp.set_option(asio::ip::tcp::no_delay(true), failed);
  ::setsockopt(tcp.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kUserTimeout,
               sizeof kUserTimeout);
  const auto remote = tcp.remote_endpoint(failed);
  if (!failed) remote_ = remote.address().to_string();
}

void PeerConnection::start(Callbacks callbacks) {
  callbacks_ = std::make_shared<const Callbacks>(std::move(callbacks));
  const auto side =
      side_ == Side::client ? asio::ssl::stream_base::client : asio::ssl::stream_base::server;
  stream_.async_handshake(
      side, [self = shared_from_this()](const error_code& error) { self->secured(error); });
}

void PeerConnection::secured(const error_code& error) {
  if (closed()) return;
  if (error) {
    const long verdict = SSL_get_verify_result(stream_.native_handle());
    if (verdict != X509_V_OK && !tls_->pin.empty())
      return fail("it does not prove that it belongs to the authority with the hash " + tls_->pin);
    if (verdict != X509_V_OK)
      return fail(fmt::format("TLS: the peer's certificate is refused: {}",
                              X509_verify_cert_error_string(verdict)));
    return fail("TLS: " + reason_of(error));
  }
  if (const ssl::Certificate shown{SSL_get1_peer_certificate(stream_.native_handle())}) {
    const ssl::Bio bio(BIO_new(BIO_s_mem()));
    char* bytes = nullptr;
    if (!bio || PEM_write_bio_X509(bio.get(), shown.get()) != 1)
      return fail("TLS: the peer's certificate cannot be read");
    const long size = BIO_get_mem_data(bio.get(), &bytes);
    certificate_ = std::string(bytes, static_cast<std::size_t>(size));
  }
  const auto callbacks = callbacks_;
  callbacks->secured();
  if (!closed()) read();
}

void PeerConnection::read() {
  stream_.async_read_some(asio::buffer(input_),
                          [self = shared_from_this()](const error_code& error, std::size_t bytes) {
                            if (self->closed()) return;
                            if (error) return self->fail(reason_of(error));
                            self->got(bytes);
                          });
}

void PeerConnection::got(std::size_t bytes) {
  const auto callbacks = callbacks_;
  if (!finishing_) {
    reader_.append({input_.data(), bytes});
    callbacks->heard();
  }
  while (!finishing_ && !closed()) {
    const Result<std::optional<PeerFrame>> frame = reader_.next();
    if (!frame.ok()) return fail(frame.error().message);
    if (!*frame) break;
    callbacks->said(**frame);
  }
  if (!closed()) read();
}

void PeerConnection::send(std::uint16_t kind, std::string_view payload) {
  if (closed() || finishing_) return;
  append_peer_frame(pending_, kind, payload);
  if (writing_.empty()) write();
}

void PeerConnection::write() {
  writing_.swap(pending_);
  asio::async_write(stream_, asio::buffer(writing_),
                    [self = shared_from_this()](const error_code& error, std::size_t) {
                      if (self->closed()) return;
                      if (error) return self->fail(reason_of(error));
                      self->writing_.clear();
                      if (!self->pending_.empty()) return self->write();
                      if (self->finishing_) self->finish();
                    });
}

void PeerConnection::finish() {
  finishing_ = true;
  if (closed() || !writing_.empty()) return;
  error_code ignored;
  stream_.next_layer().shutdown(Socket::shutdown_send, ignored);
}

bool PeerConnection::took_bytes() {
  if (closed()) return false;
  const std::uint64_t now = acknowledged_bytes(stream_.next_layer().native_handle());
  return std::exchange(acknowledged_, now) != now;
}

void PeerConnection::fail(const std::string& why) {
  const auto callbacks = callbacks_;
  close();
  callbacks->ended(why);
}

void PeerConnection::close() {
  if (closed()) return;
  callbacks_.reset();
  error_code ignored;
  stream_.next_layer().close(ignored);
}

std::string PeerConnection::session_secret() {
  constexpr std::string_view kLabel = "infos renewed certificate";
  std::string out(32, '\0');
  const int ok = SSL_export_keying_material(
      stream_.native_handle(), reinterpret_cast<unsigned char*>(out.data()), out.size(),
      kLabel.data(), kLabel.size(), nullptr, 0, 0);
  INFOS_CHECK(ok == 1);
  return out;
}

}  // namespace infos
