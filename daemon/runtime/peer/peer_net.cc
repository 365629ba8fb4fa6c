// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/peer/peer_net.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/post.hpp>

#include "daemon/runtime/clock.h"
#include "daemon/runtime/peer/address.h"
#include "daemon/runtime/peer/net_state.h"
#include "topology/base/log.h"

namespace infos {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

/// Of a TCP connection. Short: when a path comes back, the kernel's next attempt at an old
/// connection may be seconds away, ours is not.
constexpr Duration kConnectLimit = seconds(1);

}  // namespace

// ---- the door ----

PeerNet::PeerNet(std::shared_ptr<State> state) : state_(std::move(state)) {}
PeerNet::~PeerNet() { stop(); }

Result<std::unique_ptr<PeerNet>> PeerNet::make(asio::io_context& io, PeerNetOptions options,
                                               PeerListener& listener) {
  auto state = std::make_shared<State>(io, std::move(options), listener);
  Credential credential = state->options.node;
  INFOS_TRY(check_pair(credential));
  const UnixSeconds now = state->options.wall_clock();
  const CertificateFacts facts = INFOS_TRY(read_node_certificate(credential.certificate));
  if (facts.validity.until <= now && state->options.sign) {
    credential.key = INFOS_TRY(make_key());
    const std::string request = INFOS_TRY(make_request(credential.key));
    credential.certificate = INFOS_TRY(state->options.sign(facts.identity, request));
    if (state->options.keep) INFOS_TRY(state->options.keep(credential));
  } else if (facts.validity.until <= now) {
    return Error{ErrorCode::unavailable,
                 fmt::format("the certificate of node {} expired {} s ago: let it join anew with a "
                             "new token",
                             facts.identity.name, now - facts.validity.until)};
  }
  INFOS_TRY(verify_node_certificate(state->options.authority, credential.certificate, now));
  INFOS_TRY(state->use_credential(credential));
  state->arm();
  return std::unique_ptr<PeerNet>(new PeerNet(std::move(state)));
}

Result<std::uint16_t> PeerNet::listen(const std::string& address, std::uint16_t port) {
  error_code failed;
  const auto ip = asio::ip::make_address(address, failed);
  if (failed)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("address '{}': want an IPv4 or IPv6 address", address)};
  const State::Tcp::endpoint endpoint(ip, port);
  auto& acceptor = state_->acceptor;
  acceptor.open(endpoint.protocol(), failed);
  if (!failed) acceptor.set_option(asio::socket_base::reuse_address(true), failed);
  if (!failed) acceptor.bind(endpoint, failed);
  if (!failed) acceptor.listen(asio::socket_base::max_listen_connections, failed);
  if (failed) {
    error_code ignored;
    acceptor.close(ignored);
    return Error{ErrorCode::io,
                 fmt::format("cannot listen on {} port {}: {}", address, port, failed.message())};
  }
  const std::uint16_t bound = acceptor.local_endpoint(failed).port();
  state_->accept();
  return bound;
}

void PeerNet::set_peers(std::vector<PeerAddress> peers) {
  for (auto& [node, peer] : state_->table) peer.address.clear();
  for (PeerAddress& wish : peers) {
    if (wish.node == state_->own.identity.node || !wish.node) continue;
    State::Peer& peer = state_->peer_of(wish.node);
    if (peer.row.address != wish.address) peer.next_dial = Time{};
    peer.address = peer.row.address = std::move(wish.address);
  }
  state_->check_dials(monotonic_now());
}

Status PeerNet::send(NodeId node, std::uint16_t kind, std::string_view payload) {
  INFOS_CHECK(kind >= kOwnerKinds);
  if (payload.size() > state_->options.frame_bytes_max)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("message of {} bytes to node {}: at most {} are allowed",
                             payload.size(), node.value, state_->options.frame_bytes_max)};
  const auto found = state_->table.find(node);
  State::Conn* conn = found == state_->table.end() ? nullptr : state_->find(found->second.conn);
  if (!conn || conn->stage != State::Stage::link)
    return Error{ErrorCode::unavailable, fmt::format("node {} has no link", node.value)};
  if (conn->wire->unsent() + payload.size() > state_->options.unsent_bytes_max) {
    ++state_->totals.slow_cut;
    const std::string why = fmt::format("it leaves {} bytes unread, at most {} are allowed",
                                        conn->wire->unsent(), state_->options.unsent_bytes_max);
    // The listener hears of it later: it may be in the middle of something.
    conn->wire->close();
    asio::post(state_->io,
               [self = state_, number = conn->number, why] { self->drop(number, why); });
    return Error{ErrorCode::resource_exhausted, fmt::format("node {}: {}", node.value, why)};
  }
  ++found->second.row.frames_out;
  found->second.row.bytes_out += payload.size();
  conn->wire->send(kind, payload);
  return {};
}

void PeerNet::cut(NodeId node, const std::string& why) {
  const auto found = state_->table.find(node);
  if (found != state_->table.end() && found->second.conn != 0)
    state_->drop(found->second.conn, why);
}

void PeerNet::stop() {
  if (std::exchange(state_->stopped, true)) return;
  error_code ignored;
  state_->acceptor.close(ignored);
  state_->timer.cancel();
  for (const auto& [number, conn] : state_->conns) State::close(conn);
  state_->conns.clear();
  for (auto& [node, peer] : state_->table) peer.conn = peer.dialling = 0;
}

const NodeIdentity& PeerNet::self() const { return state_->own.identity; }
Validity PeerNet::validity() const { return state_->own.validity; }

bool PeerNet::is_up(NodeId node) const {
  const auto found = state_->table.find(node);
  return found != state_->table.end() && found->second.conn != 0;
}

std::vector<PeerRow> PeerNet::peers() const {
  std::vector<PeerRow> rows;
  for (const auto& [node, peer] : state_->table) {
    PeerRow& row = rows.emplace_back(peer.row);
    const State::Conn* conn = state_->find(peer.conn);
    row.up = conn != nullptr;
    row.suspect = conn && conn->suspect;
    row.unsent_bytes = conn ? conn->wire->unsent() : 0;
  }
  return rows;
}

const PeerTotals& PeerNet::totals() const { return state_->totals; }

// ---- sockets ----

Status PeerNet::State::use_credential(const Credential& credential) {
  own = INFOS_TRY(read_node_certificate(credential.certificate));
  tls = INFOS_TRY(member_context(options.authority, credential, options.wall_clock));
  options.node = credential;
  return {};
}

PeerNet::State::Peer& PeerNet::State::peer_of(NodeId node) {
  Peer& peer = table[node];
  if (!peer.backoff) {
    peer.row.node = node;
    peer.backoff.emplace(options.redial_first, options.redial_last, rng.next());
  }
  return peer;
}

PeerNet::State::Conn* PeerNet::State::find(std::uint64_t number) {
  const auto found = number == 0 ? conns.end() : conns.find(number);
  return found == conns.end() ? nullptr : &found->second;
}

void PeerNet::State::accept() {
  acceptor.async_accept([self = shared_from_this()](error_code error, Tcp::socket socket) {
    if (self->stopped || error == asio::error::operation_aborted) return;
    if (!error) return self->accepted(std::move(socket)), self->accept();
    // Out of descriptors: what is open must end first.
    const auto later =
        std::make_shared<asio::steady_timer>(self->io, std::chrono::milliseconds(50));
    later->async_wait([self, later](error_code) {
      if (!self->stopped) self->accept();
    });
  });
}

void PeerNet::State::accepted(Tcp::socket socket) {
  ++totals.accepted;
  const auto strangers = std::ranges::count_if(conns, [](const auto& entry) {
    return !entry.second.dialled && entry.second.stage != Stage::link;
  });
  if (static_cast<std::size_t>(strangers) >= options.strangers_max) {
    ++totals.strangers_refused;
    return;  // closes the socket
  }
  adopt(std::move(socket), NodeId{}, ++last_number);
}

void PeerNet::State::adopt(Tcp::socket socket, NodeId dialled, std::uint64_t number) {
  Conn& conn = conns[number];
  conn.number = number;
  conn.dialled = dialled;
  conn.deadline = monotonic_now() + options.greeting_limit;
  conn.give_up = nullptr;
  const auto side = dialled ? PeerConnection::Side::client : PeerConnection::Side::server;
  conn.wire = std::make_shared<PeerConnection>(std::move(socket), tls, side);
  const std::weak_ptr<State> weak = weak_from_this();
  PeerConnection::Callbacks callbacks;
  callbacks.secured = [weak, number] {
    const auto self = weak.lock();
    if (Conn* found = self ? self->find(number) : nullptr) self->secured(*found);
  };
  callbacks.said = [weak, number](const PeerFrame& said) {
    if (const auto self = weak.lock()) self->frame(number, said);
  };
  callbacks.heard = [weak, number] {
    const auto self = weak.lock();
    Conn* found = self ? self->find(number) : nullptr;
    if (found && found->liveness) found->liveness->heard(monotonic_now());
  };
  callbacks.ended = [weak, number](const std::string& why) {
    if (const auto self = weak.lock()) self->ended(number, why);
  };
  conn.wire->start(std::move(callbacks));
}

/// A dial holds its place in `conns` from the first, for its deadline.
void PeerNet::State::dial(NodeId node, Peer& peer) {
  ++totals.dialled;
  const std::uint64_t number = peer.dialling = ++last_number;
  Conn& conn = conns[number];
  conn.number = number;
  conn.dialled = node;
  conn.deadline = monotonic_now() + options.greeting_limit;
  const auto target = split_address(peer.address);
  if (!target.ok()) {
    asio::post(io, [self = shared_from_this(), number, why = target.error().message] {
      self->ended(number, why);
    });
    return;
  }
  const auto resolver = std::make_shared<Tcp::resolver>(io);
  const auto socket = std::make_shared<Tcp::socket>(io);
  conn.give_up = [resolver, socket] {
    error_code ignored;
    resolver->cancel();
    socket->close(ignored);
  };
  const auto connected = [self = shared_from_this(), socket, number, node](error_code error,
                                                                           const auto&) {
    if (self->stopped || !self->find(number)) return;
    if (error) return self->ended(number, "cannot connect: " + error.message());
    self->adopt(std::move(*socket), node, number);
  };
  resolver->async_resolve(
      target->host, std::to_string(target->port), Tcp::resolver::numeric_service,
      [self = shared_from_this(), resolver, socket, number, connected](error_code error,
                                                                       const auto& found) {
        Conn* conn = self->stopped ? nullptr : self->find(number);
        if (!conn) return;
        conn->deadline = monotonic_now() + std::min(self->options.greeting_limit, kConnectLimit);
        if (error) return self->ended(number, "cannot resolve its address: " + error.message());
        asio::async_connect(*socket, found, connected);
      });
}

// ---- time ----

void PeerNet::State::arm() {
  timer.expires_after(std::chrono::nanoseconds(options.liveness.interval.ns));
  timer.async_wait([self = shared_from_this()](error_code error) {
    if (error || self->stopped) return;
    self->tick();
    if (!self->stopped) self->arm();
  });
}

void PeerNet::State::tick() {
  const Time now = monotonic_now();
  check_links(now);
  if (!stopped) check_renewal(now);
  if (!stopped) check_dials(now);
}

void PeerNet::State::check_links(Time now) {
  const bool look_at_dates = now >= next_expiry_check;
  if (look_at_dates) next_expiry_check = now + seconds(1);
  const UnixSeconds wall = look_at_dates ? options.wall_clock() : 0;
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, conn] : conns) numbers.push_back(number);
  for (const std::uint64_t number : numbers) {
    Conn* conn = find(number);
    if (!conn) continue;  // a callback ended it
    if (conn->stage != Stage::link) {
      if (now >= conn->deadline) drop(number, "it took too long to greet");
      continue;
    }
    if (conn->wire->unsent() > 0 && conn->wire->took_bytes()) conn->liveness->taken(now);
    const Liveness::Verdict verdict = conn->liveness->tick(now);
    if (verdict == Liveness::Verdict::down) {
      ++totals.silent_cut;
      drop(number, conn->liveness->why());
      continue;
    }
    if (look_at_dates && conn->facts.validity.until <= wall) {
      drop(number, "its certificate has expired");
      continue;
    }
    conn->wire->send(PeerFrameKind::ping, encode(Ping{conn->liveness->ping(now)}));
    const bool suspect = verdict == Liveness::Verdict::suspect;
    if (std::exchange(conn->suspect, suspect) == suspect) continue;
    listener->peer_suspect(conn->info.identity.node,
                           suspect ? Suspicion::raised : Suspicion::lifted);
    if (stopped) return;
  }
}

void PeerNet::State::check_dials(Time now) {
  if (stopped) return;
  for (auto& [node, peer] : table)
    if (!peer.address.empty() && peer.conn == 0 && peer.dialling == 0 && now >= peer.next_dial)
      dial(node, peer);
}

}  // namespace infos
