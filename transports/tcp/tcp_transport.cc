// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/tcp_transport.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "transports/tcp/tcp_impl.h"

namespace infos {
namespace {

constexpr Duration kWatchEvery = milliseconds(25);
/// Longer between two looks: it is we who were away, not the peers.
constexpr Duration kAway = milliseconds(200);
constexpr std::uint64_t kListenerWord = 1, kTimerWord = 2;
constexpr std::uint64_t kHugeFrom = 8u << 20;
constexpr std::size_t kInboundMax = 4096, kStrangersMax = 64;

Time now_monotonic() {
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(
              std::chrono::steady_clock::now().time_since_epoch())
              .count()};
}

Instance random_instance() {
  Instance value;
  INFOS_CHECK(getrandom(&value, sizeof value, 0) == sizeof value);
  return value;
}

Error system_error(const std::string& what) {
  return {ErrorCode::io, what + ": " + std::strerror(errno)};
}

}  // namespace

Result<std::unique_ptr<Transport>> make_tcp_transport(const TcpOptions& options) {
  auto made = TcpTransport::create(options);
  if (!made.ok()) return made.error();
  return std::unique_ptr<Transport>(std::move(made).value());
}

Result<std::unique_ptr<TcpTransport>> TcpTransport::create(const TcpOptions& options) {
  std::unique_ptr<TcpTransport> transport(new TcpTransport(options));
  const Status opened = transport->open();
  if (!opened.ok()) return opened.error();
  return transport;
}

Status TcpTransport::open() {
  const SocketAddress address = INFOS_TRY(parse_socket_address(options_.host, options_.port));
  const bool has_tls = !options_.certificate_file.empty() || !options_.key_file.empty() ||
                       !options_.authority_file.empty();
  if (has_tls)
    tls_ = INFOS_TRY(
        TlsContext::load(options_.certificate_file, options_.key_file, options_.authority_file));
  if (!has_tls && !address.loopback && options_.insecure == TcpOptions::Insecure::no)
    return Error{ErrorCode::invalid_argument,
                 "tcp transport: " + options_.host +
                     " is not loopback: it needs TLS files, or to be called insecure"};
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (epoll_ < 0 || timer_ < 0) return system_error("tcp transport: no descriptors");
  const Status listening = listen(address);
  if (!listening.ok()) return listening;
  for (const auto& [fd, word] : {std::pair{listener_, kListenerWord}, {timer_, kTimerWord}}) {
    epoll_event event{EPOLLIN, {.u64 = word}};
    INFOS_CHECK(epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0);
  }
  place_.host = options_.host;
  place_.instance = random_instance();
  place_.secret = random_instance();
  place_.link = has_tls ? TcpPlace::Link::tls : TcpPlace::Link::plain;
  info_.kind = TransportKind::tcp;
  info_.direct_bytes_min = 1024;
  info_.checks_bytes = options_.checks == TcpOptions::Checks::on;
  info_.encrypted = has_tls;
  watch(now_monotonic());
  return {};
}

Status TcpTransport::listen(const SocketAddress& address) {
  listener_ =
      socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
  if (listener_ < 0) return system_error("tcp transport: no socket");
  tune(listener_);
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0 ||
      ::listen(listener_, 128) != 0)
    return system_error("tcp transport: cannot listen on " + options_.host);
  SocketAddress bound;
  bound.size = sizeof bound.storage;
  INFOS_CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&bound.storage), &bound.size) ==
              0);
  place_.port = ntohs(bound.storage.ss_family == AF_INET6
                          ? reinterpret_cast<const sockaddr_in6*>(&bound.storage)->sin6_port
                          : reinterpret_cast<const sockaddr_in*>(&bound.storage)->sin_port);
  return {};
}

TcpTransport::~TcpTransport() {
  inbound_.clear();
  auto peers = std::move(peers_);
  peers_.clear();
  for (auto& [id, peer] : peers) peer->conn.reset();
  for (auto& [id, op] : ops_)
    if (!op.over) end(id, op, Verdict::cancelled);
  while (!over_.empty()) say_verdicts();
  for (auto& [id, peer] : peers)
    for (const auto& done : peer->fenced) done();
  for (const auto& done : revoked_) done();
  for (const auto& [id, region] : regions_)
    if (region.owner == Region::Owner::mapped) munmap(region.memory.data(), region.memory.size());
  for (const int fd : {listener_, timer_, epoll_})
    if (fd >= 0) close(fd);
}

TransportStats TcpTransport::stats() const {
  TransportStats stats = stats_;
  stats.ops_open = static_cast<std::uint32_t>(ops_.size());
  stats.peers_open = static_cast<std::uint32_t>(peers_.size());
  stats.regions_open = static_cast<std::uint32_t>(regions_.size());
  stats.grants_open = static_cast<std::uint32_t>(grants_.size());
  return stats;
}

// ---- memory ----

Result<RegionId> TcpTransport::allocate(std::uint64_t bytes, std::span<std::byte>& memory) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    return Error{ErrorCode::resource_exhausted,
                 "tcp transport: cannot map " + std::to_string(bytes) + " bytes"};
  if (bytes >= kHugeFrom) madvise(mapped, bytes, MADV_HUGEPAGE);
  memory = {static_cast<std::byte*>(mapped), bytes};
  const RegionId id{static_cast<std::uint32_t>(next_id_++)};
  regions_[id] = {memory, Region::Owner::mapped};
  return id;
}

Result<RegionId> TcpTransport::adopt(std::span<std::byte> memory) {
  const RegionId id{static_cast<std::uint32_t>(next_id_++)};
  regions_[id] = {memory, Region::Owner::adopted};
  return id;
}

void TcpTransport::forget(RegionId region) {
  const auto at = regions_.find(region);
  INFOS_CHECK(at != regions_.end());
  if (at->second.owner == Region::Owner::mapped)
    munmap(at->second.memory.data(), at->second.memory.size());
  regions_.erase(at);
}

// ---- sockets and sessions ----

void TcpTransport::tune(int fd) const {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (options_.congestion.empty()) return;
  for (const std::string& name : {options_.congestion, std::string("reno")})
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                   static_cast<socklen_t>(name.size())) == 0)
      return;
}

std::unique_ptr<Stream> TcpTransport::wrap(int fd, StreamRole role) const {
  return tls_ ? tls_->wrap(fd, role) : make_plain_stream(fd);
}

void TcpTransport::accept_all() {
  while (true) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    tune(fd);
    serve(wrap(fd, StreamRole::server));
  }
}

void TcpTransport::serve(std::unique_ptr<Stream> stream) {
  const auto strangers = std::count_if(inbound_.begin(), inbound_.end(),
                                       [](const auto& i) { return !i.second->greeted; });
  if (inbound_.size() >= kInboundMax || static_cast<std::size_t>(strangers) >= kStrangersMax)
    return;  // closes it
  auto session = std::make_unique<Inbound>(*this);
  session->id = next_id_++;
  begin_session(*session, std::move(stream));
  inbound_[session->id] = std::move(session);
}

void TcpTransport::begin_session(Session& session, std::unique_ptr<Stream> stream) {
  if (stream->fd() >= 0) {
    epoll_event event{EPOLLIN, {.u64 = session.id}};
    INFOS_CHECK(epoll_ctl(epoll_, EPOLL_CTL_ADD, stream->fd(), &event) == 0);
  }
  const Checksums checks =
      options_.checks == TcpOptions::Checks::on ? Checksums::on : Checksums::off;
  session.conn = std::make_unique<Connection>(std::move(stream), session, checks);
  session.began = session.heard = session.spoken = now_monotonic();
}

/// Moves what can move; closes the connection when it broke.
void TcpTransport::drive(Session& session) {
  Connection& conn = *session.conn;
  session.dirty = false;
  const bool alive = conn.receive() && conn.send();
  if (conn.take_heard()) session.heard = now_;
  if (conn.take_spoken()) session.spoken = now_;
  stats_.bytes_in += std::exchange(conn.bytes_in, 0);
  stats_.bytes_out += std::exchange(conn.bytes_out, 0);
  if (!alive) return end_session(session);
  const bool waits = conn.stream().wants_room();
  session.dirty =
      conn.has_more_to_read() || conn.stream().has_buffered() || (conn.has_to_send() && !waits);
  if (waits == session.waits_for_room || conn.stream().fd() < 0) return;
  session.waits_for_room = waits;
  epoll_event event{waits ? EPOLLIN | EPOLLOUT : std::uint32_t{EPOLLIN}, {.u64 = session.id}};
  INFOS_CHECK(epoll_ctl(epoll_, EPOLL_CTL_MOD, conn.stream().fd(), &event) == 0);
}

void TcpTransport::end_session(Session& session) {
  const auto at = peers_.find(session.id);
  if (at != peers_.end())
    lose(*at->second);
  else
    session.conn.reset();  // erased by progress()
}

std::size_t TcpTransport::progress() {
  now_ = now_monotonic();
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t word = events[static_cast<std::size_t>(i)].data.u64;
    if (word == kListenerWord) accept_all();
    if (const auto at = peers_.find(word); at != peers_.end()) at->second->dirty = true;
    if (const auto at = inbound_.find(word); at != inbound_.end()) at->second->dirty = true;
  }
  for (auto& [id, peer] : peers_)
    if (peer->dirty && peer->conn) drive(*peer);
  for (auto& [id, inbound] : inbound_)
    if (inbound->dirty && inbound->conn) drive(*inbound);
  if (now_ - watched_ >= kWatchEvery) watch(now_);
  std::erase_if(inbound_, [](const auto& i) { return !i.second->conn; });
  const std::size_t said = say_verdicts();
  return said + answer();
}

bool TcpTransport::arm() {
  if (!over_.empty() || !revoked_.empty()) return false;
  const auto busy = [](const auto& s) { return s.second->dirty && s.second->conn; };
  return std::none_of(peers_.begin(), peers_.end(), busy) &&
         std::none_of(inbound_.begin(), inbound_.end(), busy) &&
         std::none_of(peers_.begin(), peers_.end(),
                      [](const auto& p) { return p.second->fencing; });
}

void TcpTransport::watch(Time now) {
  const bool was_away = now - watched_ > kAway;
  watched_ = now;
  itimerspec timer{};
  timer.it_value.tv_nsec = kWatchEvery.ns;
  INFOS_CHECK(timerfd_settime(timer_, 0, &timer, nullptr) == 0);
  const auto look = [&](Session& session) {
    if (!session.conn) return;
    if (was_away) session.heard = now;
    const Duration silence = session.greeted ? options_.silence_max : options_.connect_max;
    const Time since = session.greeted ? session.heard : session.began;
    if (now - since > silence) return end_session(session);
    if (!session.greeted || now - session.spoken < options_.beat_every) return;
    if (!session.conn->has_to_send()) session.conn->send_frame(FrameKind::beat, 0, 0);
    drive(session);
  };
  for (auto& [id, peer] : peers_) look(*peer);
  for (auto& [id, inbound] : inbound_) look(*inbound);
}

}  // namespace infos
