// SPDX-License-Identifier: Apache-2.0
#include "transports/rdma/side_channel.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace infos {

namespace {

using namespace std::chrono_literals;

constexpr auto kBeat = 50ms;
constexpr auto kAway = 100ms;    // how rarely progress() may be called
constexpr auto kHandshake = 2s;  // TCP and TLS; beyond it the peer cannot be reached
constexpr auto kWalk = 5ms;      // beats, silence and left-over output are looked at this often
constexpr std::size_t kSecretBytes = 32;
constexpr std::size_t kStrangersMax = 64;  // connections that have not proven the secret yet
constexpr std::size_t kBacklogMax = 4 << 20;
constexpr const char* kIdentity = "infos";

struct AddrInfo {
  addrinfo* list = nullptr;
  ~AddrInfo() {
    if (list != nullptr) freeaddrinfo(list);
  }
};

Status resolve(const std::string& host, std::uint16_t port, AddrInfo& out) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  const int rc = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &out.list);
  if (rc != 0)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("side channel: address '{}': {}; a numeric IP address is allowed",
                             host, gai_strerror(rc))};
  return {};
}

unsigned copy_secret(const std::string& secret, unsigned char* out, unsigned room) {
  if (secret.size() > room) return 0;
  std::memcpy(out, secret.data(), secret.size());
  return static_cast<unsigned>(secret.size());
}

unsigned server_key(SSL* ssl, const char* identity, unsigned char* out, unsigned room) {
  const auto* secret = static_cast<const std::string*>(SSL_get_app_data(ssl));
  if (secret == nullptr || std::strcmp(identity, kIdentity) != 0) return 0;
  return copy_secret(*secret, out, room);
}

unsigned client_key(SSL* ssl, const char*, char* identity, unsigned identity_room,
                    unsigned char* out, unsigned room) {
  const auto* secret = static_cast<const std::string*>(SSL_get_app_data(ssl));
  if (secret == nullptr || std::strlen(kIdentity) + 1 > identity_room) return 0;
  std::strcpy(identity, kIdentity);
  return copy_secret(*secret, out, room);
}

SSL_CTX* make_context(const SSL_METHOD* method) {
  SSL_CTX* context = SSL_CTX_new(method);
  INFOS_CHECK(context != nullptr);
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256");
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  return context;
}

}  // namespace

struct SideChannel::Side {
  int fd = -1;
  Role role = Role::initiator;
  std::string secret;
  SSL* ssl = nullptr;  // over two memory BIOs: we read and write the socket, so no SIGPIPE
  bool open = false;
  bool closed = false;  // by us; reaped by progress()
  std::string in, out;
  Clock::time_point began = Clock::now(), heard = began, sent{};

  ~Side() {
    SSL_free(ssl);
    if (fd >= 0) ::close(fd);
  }
};

Result<std::unique_ptr<SideChannel>> SideChannel::listen(const std::string& host,
                                                         std::chrono::milliseconds silence) {
  std::unique_ptr<SideChannel> channel(new SideChannel);
  channel->silence_ = silence;
  AddrInfo info;
  INFOS_TRY(([&]() -> Result<int> {
    const Status status = resolve(host, 0, info);
    if (!status) return status.error();
    return 0;
  })());
  const int fd = ::socket(info.list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  channel->listener_ = fd;
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (fd < 0 || ::bind(fd, info.list->ai_addr, info.list->ai_addrlen) != 0 ||
      ::listen(fd, 64) != 0 || ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0)
    return Error{ErrorCode::io,
                 fmt::format("side channel: cannot listen on {}: {}", host, std::strerror(errno))};
  channel->self_.host = host;
  channel->self_.port =
      ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                        : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
  channel->self_.secret.resize(kSecretBytes);
  INFOS_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(channel->self_.secret.data()),
                         kSecretBytes) == 1);
  channel->server_ = make_context(TLS_server_method());
  channel->client_ = make_context(TLS_client_method());
  SSL_CTX_set_psk_server_callback(channel->server_, server_key);
  SSL_CTX_set_psk_client_callback(channel->client_, client_key);
  channel->epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  INFOS_CHECK(channel->epoll_ >= 0);
  epoll_event event{};
  event.events = EPOLLIN;
  INFOS_CHECK(::epoll_ctl(channel->epoll_, EPOLL_CTL_ADD, fd, &event) == 0);
  return channel;
}

SideChannel::~SideChannel() {
  sides_.clear();
  SSL_CTX_free(server_);
  SSL_CTX_free(client_);
  if (listener_ >= 0) ::close(listener_);
  if (epoll_ >= 0) ::close(epoll_);
}

SideId SideChannel::add(int fd, Role role, const std::string& secret) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const SideId id{next_++};
  auto side = std::make_unique<Side>();
  side->fd = fd;
  side->role = role;
  side->secret = secret;
  side->ssl = SSL_new(role == Role::initiator ? client_ : server_);
  INFOS_CHECK(side->ssl != nullptr);
  SSL_set_app_data(side->ssl, &side->secret);
  SSL_set_bio(side->ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  if (role == Role::initiator)
    SSL_set_connect_state(side->ssl);
  else
    SSL_set_accept_state(side->ssl);
  epoll_event event{};
  event.events = EPOLLIN | (role == Role::initiator ? EPOLLOUT : 0u);
  event.data.u32 = id.value;
  INFOS_CHECK(::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0);
  sides_.emplace(id, std::move(side));
  return id;
}

Result<SideId> SideChannel::connect(const Target& target) {
  AddrInfo info;
  const Status status = resolve(target.host, target.port, info);
  if (!status) return status.error();
  const int fd = ::socket(info.list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return Error{ErrorCode::unavailable,
                 fmt::format("side channel: socket: {}", std::strerror(errno))};
  if (::connect(fd, info.list->ai_addr, info.list->ai_addrlen) != 0 && errno != EINPROGRESS) {
    const int code = errno;
    ::close(fd);
    return Error{ErrorCode::unavailable,
                 fmt::format("side channel: connect to {}:{}: {}", target.host, target.port,
                             std::strerror(code))};
  }
  return add(fd, Role::initiator, target.secret);
}

void SideChannel::accept_all() {
  std::size_t strangers = 0;
  for (const auto& [id, side] : sides_) strangers += side->open ? 0 : 1;
  for (;;) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    if (strangers++ < kStrangersMax)
      add(fd, Role::acceptor, self_.secret);
    else
      ::close(fd);
  }
}

void SideChannel::send(SideId id, std::uint8_t type, std::string_view payload) {
  const auto found = sides_.find(id);
  if (found == sides_.end() || found->second->closed || !found->second->open) return;
  Side& side = *found->second;
  INFOS_CHECK(payload.size() <= kPayloadMax);
  const auto size = static_cast<std::uint32_t>(payload.size());
  std::string frame(reinterpret_cast<const char*>(&size), sizeof size);
  frame.push_back(static_cast<char>(type));
  frame.append(payload);
  SSL_write(side.ssl, frame.data(), static_cast<int>(frame.size()));
  side.sent = Clock::now();
  flush(side);  // an error shows again when progress() looks
}

void SideChannel::close(SideId id) {
  const auto found = sides_.find(id);
  if (found != sides_.end()) found->second->closed = true;
  reap_ = true;
}

/// What is encrypted goes to the socket as far as it takes it. Returns: what went wrong, or "".
std::string SideChannel::flush(Side& side) {
  char buffer[16384];
  for (int n; (n = BIO_read(SSL_get_wbio(side.ssl), buffer, sizeof buffer)) > 0;)
    side.out.append(buffer, static_cast<std::size_t>(n));
  while (!side.out.empty()) {
    const ssize_t n = ::send(side.fd, side.out.data(), side.out.size(), MSG_NOSIGNAL);
    if (n > 0) {
      side.out.erase(0, static_cast<std::size_t>(n));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == ENOTCONN) break;
    return std::strerror(errno);
  }
  return side.out.size() > kBacklogMax ? "takes nothing" : "";
}

/// Returns: why the connection is lost, or "".
std::string SideChannel::pump(SideId id, Side& side, Handler& handler) {
  char buffer[16384];
  std::string end;  // what came before the end of the stream is still read
  for (;;) {
    const ssize_t n = ::recv(side.fd, buffer, sizeof buffer, 0);
    if (n > 0) {
      BIO_write(SSL_get_rbio(side.ssl), buffer, static_cast<int>(n));
      side.heard = Clock::now();
      if (n == sizeof buffer) continue;
    } else if (n == 0) {
      end = "closed by the peer";
    } else if (errno == EINTR) {
      continue;
    } else if (errno != EAGAIN && errno != ENOTCONN) {
      end = std::strerror(errno);
    }
    break;
  }
  ERR_clear_error();  // SSL_get_error looks at the thread's queue
  if (!side.open) {
    const int rc = SSL_do_handshake(side.ssl);
    if (rc == 1) {
      side.open = true;
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u32 = id.value;
      ::epoll_ctl(epoll_, EPOLL_CTL_MOD, side.fd, &event);
      if (std::string why = flush(side); !why.empty()) return why;
      handler.side_open(id, side.role);
      if (side.closed) return {};
    } else if (SSL_get_error(side.ssl, rc) != SSL_ERROR_WANT_READ) {
      flush(side);
      return "TLS handshake failed: not the same secret";
    }
  }
  if (side.open) {
    for (int n; (n = SSL_read(side.ssl, buffer, sizeof buffer)) > 0;)
      side.in.append(buffer, static_cast<std::size_t>(n));
    if (std::string why = parse(id, side, handler); !why.empty()) return why;
    if (side.closed) return {};
  }
  std::string why = flush(side);
  return end.empty() ? why : end;
}

std::string SideChannel::parse(SideId id, Side& side, Handler& handler) {
  std::size_t at = 0;
  while (side.in.size() - at >= 5) {
    std::uint32_t size = 0;
    std::memcpy(&size, side.in.data() + at, sizeof size);
    if (size > kPayloadMax)
      return fmt::format("a message of {} bytes, at most {} are allowed", size, kPayloadMax);
    if (side.in.size() - at - 5 < size) break;
    const auto type = static_cast<std::uint8_t>(side.in[at + 4]);
    if (type != 0) handler.side_message(id, type, std::string_view(side.in).substr(at + 5, size));
    if (side.closed) return {};
    at += 5 + size;
  }
  side.in.erase(0, at);
  return {};
}

std::size_t SideChannel::progress(Handler& handler) {
  epoll_event events[32];
  const int count = ::epoll_wait(epoll_, events, 32, 0);
  const auto lose = [&](SideId id, const std::string& why) {
    sides_.erase(id);
    handler.side_lost(id, why);
  };
  for (int i = 0; i < count; ++i) {
    const SideId id{events[i].data.u32};
    if (!id) {
      accept_all();
      continue;
    }
    const auto found = sides_.find(id);
    if (found == sides_.end() || found->second->closed) continue;
    const std::string why = pump(id, *found->second, handler);
    if (!why.empty()) lose(id, why);
  }
  const auto now = Clock::now();
  if (now - walked_ < kWalk && !reap_) return static_cast<std::size_t>(std::max(count, 0));
  // While we were away we heard nobody: that time is not the peers' silence.
  const auto away = now - walked_ - kAway;
  walked_ = now;
  reap_ = false;
  std::vector<SideId> ids;
  for (const auto& [id, side] : sides_) ids.push_back(id);
  for (const SideId id : ids) {
    Side& side = *sides_.at(id);
    if (away > away.zero()) {
      side.heard = std::min(side.heard + away, now);
      side.began = std::min(side.began + away, now);
    }
    std::string why;
    if (side.closed) {
      sides_.erase(id);
      continue;
    }
    if (!side.open) {
      if (now - side.began > kHandshake) why = "not reached in time";
    } else {
      if (now - side.sent >= kBeat) send(id, 0, {});
      why = flush(side);
      // What has arrived while we ourselves were away counts: look before judging.
      if (why.empty() && now - side.heard > silence_) why = pump(id, side, handler);
      if (why.empty() && now - side.heard > silence_) why = "silent: stopped or cut off";
    }
    if (!why.empty()) lose(id, why);
  }
  return static_cast<std::size_t>(std::max(count, 0));
}

}  // namespace infos
