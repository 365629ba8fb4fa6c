// SPDX-License-Identifier: Apache-2.0
// TCP as a client: addresses, peers, operations and their parts.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "transports/tcp/tcp_impl.h"

namespace infos {
namespace {

constexpr std::size_t kFencedMax = 65'536;

std::string hex_of(const Instance& value) {
  char text[40];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(value.high),
                static_cast<unsigned long long>(value.low));
  return text;
}

bool parse_hex(std::string_view text, std::uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return text.size() == 16 && error == std::errc() && end == text.data() + text.size();
}

bool parse_hex(std::string_view text, Instance& value) {
  return text.size() == 32 && parse_hex(text.substr(0, 16), value.high) &&
         parse_hex(text.substr(16), value.low);
}

std::string key_text(const Instance& instance, std::uint64_t grant, std::uint64_t secret) {
  char text[96];
  std::snprintf(text, sizeof text, "tcp-key 1 %016llx %016llx %016llx",
                static_cast<unsigned long long>(instance.low),
                static_cast<unsigned long long>(grant), static_cast<unsigned long long>(secret));
  return text;
}

}  // namespace

// ---- addresses ----

std::string to_text(const TcpPlace& place) {
  return "tcp 1 " + place.host + " " + std::to_string(place.port) + " " + hex_of(place.instance) +
         " " + hex_of(place.secret) + (place.link == TcpPlace::Link::tls ? " tls" : " plain");
}

Result<TcpPlace> parse_tcp_place(std::string_view text) {
  TcpPlace place;
  std::istringstream words{std::string(text.substr(0, 512))};
  std::string kind, version, instance, secret, link;
  words >> kind >> version >> place.host >> place.port >> instance >> secret >> link;
  if (link == "tls") place.link = TcpPlace::Link::tls;
  if (!parse_hex(instance, place.instance) || !parse_hex(secret, place.secret) ||
      to_text(place) != text)
    return Error{ErrorCode::invalid_argument, "not the address of a tcp transport"};
  return place;
}

Result<SocketAddress> parse_socket_address(const std::string& host, std::uint16_t port) {
  SocketAddress address;
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    address.loopback = ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    address.size = sizeof v4;
    std::memcpy(&address.storage, &v4, sizeof v4);
  } else if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    address.loopback = IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
    address.size = sizeof v6;
    std::memcpy(&address.storage, &v6, sizeof v6);
  } else {
    return Error{ErrorCode::invalid_argument,
                 "'" + host + "': want a numeric IPv4 or IPv6 address"};
  }
  return address;
}

// ---- peers ----

TcpTransport::Peer* TcpTransport::find(PeerId peer) {
  const auto at = peers_.find(peer.value);
  return at == peers_.end() ? nullptr : at->second.get();
}

Result<PeerId> TcpTransport::connect(std::string_view text) {
  const TcpPlace place = INFOS_TRY(parse_tcp_place(text));
  const SocketAddress address = INFOS_TRY(parse_socket_address(place.host, place.port));
  const bool is_tls = place.link == TcpPlace::Link::tls;
  if (is_tls && !tls_)
    return Error{ErrorCode::invalid_argument,
                 place.host + " speaks TLS and this transport has no TLS files"};
  if (!is_tls && !address.loopback && options_.insecure == TcpOptions::Insecure::no)
    return Error{ErrorCode::invalid_argument,
                 place.host + " is neither loopback nor TLS, and this transport is not insecure"};
  const int fd =
      socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
  if (fd < 0)
    return Error{ErrorCode::unavailable, std::string("tcp transport: ") + std::strerror(errno)};
  tune(fd);
  auto stream = is_tls ? tls_->wrap(fd, StreamRole::client) : make_plain_stream(fd);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0 &&
      errno != EINPROGRESS)
    return Error{ErrorCode::unavailable, place.host + ": " + std::strerror(errno)};
  auto peer = std::make_unique<Peer>(*this);
  const PeerId id{static_cast<std::uint32_t>(next_id_)};
  peer->id = next_id_++;
  peer->peer = id;
  peer->instance = place.instance;
  begin_session(*peer, std::move(stream));
  const Hello hello{place.secret.high, place.secret.low, place_.instance.high, place_.instance.low};
  peer->conn->send_frame(FrameKind::hello, 0, 0, std::as_bytes(std::span(&hello, 1)));
  peers_[peer->id] = std::move(peer);
  return id;
}

PeerState TcpTransport::peer_state(PeerId peer) const {
  const auto at = peers_.find(peer.value);
  if (at == peers_.end() || at->second->fencing) return PeerState::closed;
  return at->second->state;
}

void TcpTransport::fence(PeerId peer, std::function<void()> done) {
  Peer* found = find(peer);
  if (found == nullptr) return done();
  found->fenced.push_back(std::move(done));
  if (found->fencing) return;
  found->fencing = true;
  found->conn.reset();
  found->issuing.clear();
  for (auto& [id, op] : ops_)
    if (op.peer == peer && !op.over) end(id, op, Verdict::cancelled);
  close_inbound(found->instance);
  // Whoever says that he is this process may write by later grants alone. Should so many processes
  // ever have been fenced, the lowest number is forgotten; its connections are closed all the same.
  if (void_through_.size() >= kFencedMax) void_through_.erase(void_through_.begin());
  void_through_[found->instance] = next_id_ - 1;
}

void TcpTransport::lose(Peer& peer) {
  if (peer.state == PeerState::lost) return;
  const Verdict verdict = peer.conn && peer.conn->corrupt() ? Verdict::failed : Verdict::peer_lost;
  peer.state = PeerState::lost;
  peer.conn.reset();
  peer.issuing.clear();
  peer.parts.clear();
  for (auto& [id, op] : ops_)
    if (op.peer == peer.peer && !op.over) end(id, op, verdict);
}

Result<RemoteId> TcpTransport::open_remote(PeerId peer, std::string_view key) {
  Remote remote{peer};
  std::istringstream words{std::string(key.substr(0, 128))};
  std::string kind, version, instance, grant, secret;
  words >> kind >> version >> instance >> grant >> secret;
  Instance from;
  if (!parse_hex(instance, from.low) || !parse_hex(grant, remote.grant) ||
      !parse_hex(secret, remote.secret) || key_text(from, remote.grant, remote.secret) != key)
    return Error{ErrorCode::invalid_argument, "not a key of a tcp transport"};
  const Peer* found = find(peer);
  if (found != nullptr && found->instance.low != from.low)
    return Error{ErrorCode::invalid_argument, "a key of another tcp transport than this peer's"};
  const RemoteId id{static_cast<std::uint32_t>(next_id_++)};
  if (found != nullptr) remotes_[id] = remote;
  return id;
}

// ---- operations ----

OpId TcpTransport::get(RemoteId from, RegionId into, std::span<const Piece> pieces, Done done) {
  return begin(Op::Kind::get, from, into, pieces, done);
}

OpId TcpTransport::put(RemoteId to, RegionId from, std::span<const Piece> pieces, Done done) {
  return begin(Op::Kind::put, to, from, pieces, done);
}

OpId TcpTransport::begin(Op::Kind kind, RemoteId remote, RegionId region,
                         std::span<const Piece> pieces, Done& done) {
  const auto at = regions_.find(region);
  INFOS_CHECK(at != regions_.end());
  const std::uint64_t size = at->second.memory.size();
  const std::uint64_t id = next_id_++;
  Op& op = ops_[id];
  op.kind = kind;
  op.done = std::move(done);
  op.base = at->second.memory.data();
  op.pieces.reserve(pieces.size());
  bool in_reach = true;
  for (const Piece& piece : pieces) {
    INFOS_CHECK(piece.local <= size);
    INFOS_CHECK(piece.bytes <= size - piece.local);
    in_reach = in_reach && piece.remote <= UINT64_MAX - piece.bytes;
    op.bytes += piece.bytes;
    if (piece.bytes > 0) op.pieces.push_back(piece);
  }
  const auto found = remotes_.find(remote);
  Peer* peer = found == remotes_.end() ? nullptr : find(found->second.peer);
  if (peer == nullptr || peer->fencing) {
    end(id, op, Verdict::cancelled);
    return OpId{id};
  }
  op.remote = found->second;
  op.peer = op.remote.peer;
  if (peer->state == PeerState::lost) {
    end(id, op, Verdict::peer_lost);
  } else if (!in_reach) {
    end(id, op, Verdict::refused);
  } else if (op.pieces.empty()) {
    end(id, op, Verdict::ok);
  } else {
    peer->issuing.push_back(id);
    issue(*peer);
  }
  return OpId{id};
}

void TcpTransport::issue(Peer& peer) {
  while (peer.state == PeerState::open && peer.parts.size() < kPartsOpenMax &&
         !peer.issuing.empty()) {
    const std::uint64_t id = peer.issuing.front();
    const auto at = ops_.find(id);
    if (at != ops_.end() && !at->second.over) issue_part(peer, id, at->second);
    if (at == ops_.end() || at->second.over || at->second.all_issued()) peer.issuing.pop_front();
  }
}

/// Asks for, or announces, the next bytes of the operation.
void TcpTransport::issue_part(Peer& peer, std::uint64_t id, Op& op) {
  std::vector<std::byte> payload(sizeof(Request));
  std::vector<iovec> runs;
  std::uint64_t bytes = 0;
  while (!op.all_issued() && runs.size() < kPartPiecesMax && bytes < kPartBytesMax) {
    const Piece& piece = op.pieces[op.next_piece];
    const std::uint64_t take = std::min(piece.bytes - op.next_byte, kPartBytesMax - bytes);
    const WirePiece wire{piece.remote + op.next_byte, take};
    const auto* raw = reinterpret_cast<const std::byte*>(&wire);
    payload.insert(payload.end(), raw, raw + sizeof wire);
    runs.push_back({op.base + piece.local + op.next_byte, take});
    bytes += take;
    op.next_byte += take;
    if (op.next_byte == piece.bytes) {
      ++op.next_piece;
      op.next_byte = 0;
    }
  }
  const Request request{op.remote.grant, op.remote.secret, static_cast<std::uint32_t>(runs.size())};
  std::memcpy(payload.data(), &request, sizeof request);
  const std::uint64_t part = peer.next_part++;
  peer.parts[part] = id;
  ++op.parts_open;
  const bool is_get = op.kind == Op::Kind::get;
  peer.conn->send_frame(is_get ? FrameKind::get : FrameKind::put, part, 0, payload);
  if (is_get) {
    PartIn in;
    in.owner = id;
    in.runs = std::move(runs);
    in.bytes = bytes;
    peer.conn->expect_part(part, std::move(in));
  } else {
    PartOut out;
    out.id = part;
    out.owner = id;
    out.runs = std::move(runs);
    out.bytes = bytes;
    peer.conn->send_part(std::move(out));
  }
  peer.dirty = true;
}

bool TcpTransport::Peer::on_frame(const FrameHead& head, std::span<const std::byte> payload) {
  static_cast<void>(payload);
  if (kind_of(head) == FrameKind::welcome && !greeted) {
    greeted = true;
    state = PeerState::open;
    transport.issue(*this);
    return true;
  }
  if (kind_of(head) != FrameKind::verdict || !greeted) return false;
  if (head.offset > static_cast<std::uint64_t>(Verdict::failed)) return false;
  const auto verdict = static_cast<Verdict>(head.offset);
  // A part of a get that goes well ends with its bytes.
  if (conn->forget_in(head.part) && verdict == Verdict::ok) return false;
  transport.part_ended(*this, head.part, verdict);
  return true;
}

void TcpTransport::Peer::on_part(std::uint64_t id, const PartIn& part) {
  static_cast<void>(part);
  transport.part_ended(*this, id, Verdict::ok);
}

void TcpTransport::part_ended(Peer& peer, std::uint64_t part, Verdict verdict) {
  const auto at = peer.parts.find(part);
  if (at == peer.parts.end()) return;
  const std::uint64_t id = at->second;
  peer.parts.erase(at);
  const auto found = ops_.find(id);
  if (found != ops_.end() && !found->second.over) {
    Op& op = found->second;
    --op.parts_open;
    if (verdict != Verdict::ok)
      abandon(id, op, verdict);
    else if (op.parts_open == 0 && op.all_issued())
      end(id, op, Verdict::ok);
  }
  issue(peer);
}

void TcpTransport::cancel(OpId op) {
  const auto at = ops_.find(op.value);
  if (at != ops_.end()) abandon(op.value, at->second, Verdict::cancelled);
}

void TcpTransport::end(std::uint64_t id, Op& op, Verdict verdict) {
  INFOS_CHECK(!op.over);
  op.over = true;
  op.verdict = verdict;
  over_.push_back(id);
}

/// Gives the operation up while its connection goes on: what still comes is thrown away, what was
/// to go is taken back.
void TcpTransport::abandon(std::uint64_t id, Op& op, Verdict verdict) {
  if (op.over) return;
  end(id, op, verdict);
  Peer* peer = find(op.peer);
  if (peer == nullptr || !peer->conn) return;
  peer->conn->discard_in(id, verdict);
  for (const std::uint64_t part : peer->conn->drop_out(id))
    peer->conn->send_frame(FrameKind::abort, part, 0);
  peer->dirty = true;
}

std::size_t TcpTransport::say_verdicts() {
  std::vector<std::uint64_t> over;
  over.swap(over_);
  for (const std::uint64_t id : over) {
    const auto node = ops_.extract(id);
    const Op& op = node.mapped();
    ++(op.verdict == Verdict::ok ? stats_.ops_ok : stats_.ops_not_ok);
    op.done(OpId{id}, op.verdict);
  }
  return over.size();
}

/// Fences and revocations took effect when they were asked for; here they are answered.
std::size_t TcpTransport::answer() {
  std::vector<std::function<void()>> answers;
  answers.swap(revoked_);
  for (auto at = peers_.begin(); at != peers_.end();) {
    Peer& peer = *at->second;
    const bool busy = !peer.fencing || std::any_of(ops_.begin(), ops_.end(), [&](const auto& o) {
      return o.second.peer == peer.peer;
    });
    if (busy) {
      ++at;
      continue;
    }
    for (auto& done : peer.fenced) answers.push_back(std::move(done));
    std::erase_if(remotes_, [&](const auto& r) { return r.second.peer == peer.peer; });
    at = peers_.erase(at);
  }
  for (const auto& done : answers) done();
  return answers.size();
}

}  // namespace infos
