// SPDX-License-Identifier: Apache-2.0
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <vector>

#include "transports/tcp/stream.h"

namespace infos {
namespace {

/// TLS records are 16 KiB; a few of them per call.
constexpr std::size_t kStageBytes = 64 * 1024;

class TlsStream final : public Stream {
 public:
  TlsStream(SSL* ssl, int fd) : ssl_(ssl), fd_(fd), stage_(kStageBytes) {}
  ~TlsStream() override {
    SSL_free(ssl_);
    close(fd_);
  }
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  ssize_t read(std::span<const iovec> into) override {
    ssize_t total = 0;
    for (const iovec& run : into) {
      std::size_t at = 0;
      while (at < run.iov_len) {
        ERR_clear_error();
        std::size_t got = 0;
        const int result =
            SSL_read_ex(ssl_, static_cast<char*>(run.iov_base) + at, run.iov_len - at, &got);
        if (result <= 0) return total > 0 ? total : after_error(result);
        at += got;
        total += static_cast<ssize_t>(got);
      }
    }
    return total;
  }

  ssize_t write(std::span<const iovec> from) override {
    const ssize_t flushed = flush();
    if (flushed < 0) return flushed;
    for (const iovec& run : from) {
      const std::size_t take = std::min(run.iov_len, kStageBytes - staged_);
      std::memcpy(stage_.data() + staged_, run.iov_base, take);
      staged_ += take;
      if (take < run.iov_len) break;
    }
    const auto accepted = static_cast<ssize_t>(staged_);
    return flush() == kClosed ? kClosed : accepted;
  }

  bool wants_room() const override { return wants_room_; }
  bool has_unsent() const override { return flushed_ < staged_; }
  bool has_buffered() const override { return SSL_pending(ssl_) > 0; }
  int fd() const override { return fd_; }

 private:
  ssize_t flush() {
    while (flushed_ < staged_) {
      ERR_clear_error();
      std::size_t sent = 0;
      const int result = SSL_write_ex(ssl_, stage_.data() + flushed_, staged_ - flushed_, &sent);
      if (result <= 0) return after_error(result);
      flushed_ += sent;
    }
    flushed_ = staged_ = 0;
    wants_room_ = false;
    return 0;
  }
  ssize_t after_error(int result) {
    const int reason = SSL_get_error(ssl_, result);
    wants_room_ = reason == SSL_ERROR_WANT_WRITE;
    return reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE ? kAgain : kClosed;
  }

  SSL* const ssl_;
  const int fd_;
  std::vector<char> stage_;
  std::size_t staged_ = 0, flushed_ = 0;
  bool wants_room_ = false;
};

class Context final : public TlsContext {
 public:
  explicit Context(SSL_CTX* context) : context_(context) {}
  ~Context() override { SSL_CTX_free(context_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  std::unique_ptr<Stream> wrap(int fd, StreamRole role) override {
    SSL* ssl = SSL_new(context_);
    INFOS_CHECK(ssl != nullptr);
    INFOS_CHECK(SSL_set_fd(ssl, fd) == 1);
    if (role == StreamRole::client)
      SSL_set_connect_state(ssl);
    else
      SSL_set_accept_state(ssl);
    return std::make_unique<TlsStream>(ssl, fd);
  }

 private:
  SSL_CTX* const context_;
};

}  // namespace

Result<std::shared_ptr<TlsContext>> TlsContext::load(const std::string& certificate_file,
                                                     const std::string& key_file,
                                                     const std::string& authority_file) {
  // OpenSSL writes to sockets without MSG_NOSIGNAL: a peer that closed must not end this process.
  std::signal(SIGPIPE, SIG_IGN);
  SSL_CTX* raw = SSL_CTX_new(TLS_method());
  INFOS_CHECK(raw != nullptr);
  auto context = std::make_shared<Context>(raw);
  const auto wrong = [](const std::string& file, const char* what) {
    ERR_clear_error();
    return Error{ErrorCode::invalid_argument, file + ": " + what};
  };
  SSL_CTX_set_min_proto_version(raw, TLS1_3_VERSION);
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_verify(raw, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(raw, 0);
  if (SSL_CTX_use_certificate_chain_file(raw, certificate_file.c_str()) != 1)
    return wrong(certificate_file, "no certificate in PEM form");
  if (SSL_CTX_use_PrivateKey_file(raw, key_file.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(raw) != 1)
    return wrong(key_file, "no private key of that certificate in PEM form");
  if (SSL_CTX_load_verify_locations(raw, authority_file.c_str(), nullptr) != 1)
    return wrong(authority_file, "no certificates of an authority in PEM form");
  return std::shared_ptr<TlsContext>(std::move(context));
}

}  // namespace infos
