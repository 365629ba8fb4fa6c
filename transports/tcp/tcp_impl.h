// SPDX-License-Identifier: Apache-2.0
// TcpTransport: regions, grants, peers and operations over TCP. Single-threaded: everything happens
// in the owner's calls, so a fence is closing the sockets.
#pragma once

#include <sys/socket.h>

#include <array>
#include <deque>
#include <map>
#include <unordered_map>

#include "transports/tcp/connection.h"
#include "transports/tcp/tcp_transport.h"

namespace infos {

/// 128 random bits: which transport of which process.
struct Instance {
  std::uint64_t high = 0, low = 0;
  friend auto operator<=>(const Instance&, const Instance&) = default;
};

/// What address() says.
struct TcpPlace {
  std::string host;
  std::uint16_t port = 0;
  Instance instance, secret;
  enum class Link : std::uint8_t { plain, tls } link = Link::plain;
};
std::string to_text(const TcpPlace& place);
/// Errors: invalid_argument.
Result<TcpPlace> parse_tcp_place(std::string_view text);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  bool loopback = false;
};
/// Errors: invalid_argument: not a numeric IPv4 or IPv6 address.
Result<SocketAddress> parse_socket_address(const std::string& host, std::uint16_t port);

class TcpTransport final : public Transport {
 public:
  static Result<std::unique_ptr<TcpTransport>> create(const TcpOptions& options);
  ~TcpTransport() override;

  const TransportInfo& info() const override { return info_; }
  TransportStats stats() const override;
  Result<RegionId> allocate(std::uint64_t bytes, std::span<std::byte>& memory) override;
  Result<RegionId> adopt(std::span<std::byte> memory) override;
  void forget(RegionId region) override;
  std::string address() const override { return to_text(place_); }
  Result<PeerId> connect(std::string_view address) override;
  PeerState peer_state(PeerId peer) const override;
  void fence(PeerId peer, std::function<void()> done) override;
  Result<GrantId> grant(RegionId region, std::uint64_t begin, std::uint64_t bytes,
                        Access access) override;
  std::string key(GrantId grant) const override;
  void revoke(GrantId grant, std::function<void()> done) override;
  Result<RemoteId> open_remote(PeerId peer, std::string_view key) override;
  void close_remote(RemoteId remote) override { remotes_.erase(remote); }
  OpId get(RemoteId from, RegionId into, std::span<const Piece> pieces, Done done) override;
  OpId put(RemoteId to, RegionId from, std::span<const Piece> pieces, Done done) override;
  void cancel(OpId op) override;
  std::size_t progress() override;
  int wait_fd() override { return epoll_; }
  bool arm() override;

  /// Serves whoever speaks on the other end; what the listener does, and fuzzing.
  void serve(std::unique_ptr<Stream> stream);
  /// Who passes as a client (for fuzzing).
  Hello hello_for_tests() const;

 private:
  /// One connection, either way.
  struct Session : ConnectionOwner {
    explicit Session(TcpTransport& transport) : transport(transport) {}
    TcpTransport& transport;
    std::uint64_t id = 0;
    std::unique_ptr<Connection> conn;
    Time began{}, heard{}, spoken{};
    bool greeted = false;  ///< hello and welcome are exchanged
    bool dirty = true;     ///< something may move
    bool waits_for_room = false;
  };
  /// A peer that we reached.
  struct Peer final : Session {
    using Session::Session;
    PeerId peer;
    Instance instance;
    PeerState state = PeerState::connecting;
    bool fencing = false;
    std::vector<std::function<void()>> fenced;
    std::uint64_t next_part = 1;
    std::map<std::uint64_t, std::uint64_t> parts;  ///< open parts and their operations
    std::deque<std::uint64_t> issuing;             ///< operations with parts left to ask for
    bool on_frame(const FrameHead& head, std::span<const std::byte> payload) override;
    void on_part(std::uint64_t id, const PartIn& part) override;
  };
  /// A client of ours.
  struct Inbound final : Session {
    using Session::Session;
    Instance instance;
    bool on_frame(const FrameHead& head, std::span<const std::byte> payload) override;
    void on_part(std::uint64_t id, const PartIn& part) override;
    bool on_request(const FrameHead& head, std::span<const std::byte> payload);
  };
  struct Region {
    std::span<std::byte> memory;
    enum class Owner { mapped, adopted } owner = Owner::adopted;
  };
  struct Grant {
    std::uint64_t secret = 0;
    std::span<std::byte> memory;
    Access access = Access::read;
  };
  struct Remote {
    PeerId peer;
    std::uint64_t grant = 0, secret = 0;
  };
  struct Op {
    enum class Kind : std::uint8_t { get, put } kind = Kind::get;
    PeerId peer;
    Remote remote;
    Done done;
    std::byte* base = nullptr;  ///< of the local region
    std::vector<Piece> pieces;
    std::size_t next_piece = 0;
    std::uint64_t next_byte = 0;
    std::uint64_t bytes = 0;
    std::uint32_t parts_open = 0;
    bool over = false;
    Verdict verdict = Verdict::ok;
    bool all_issued() const { return next_piece == pieces.size(); }
  };

  explicit TcpTransport(const TcpOptions& options) : options_(options) {}
  Status open();
  Status listen(const SocketAddress& address);
  void tune(int fd) const;
  std::unique_ptr<Stream> wrap(int fd, StreamRole role) const;
  void accept_all();
  void begin_session(Session& session, std::unique_ptr<Stream> stream);
  void end_session(Session& session);
  void drive(Session& session);
  void watch(Time now);
  Peer* find(PeerId peer);
  // tcp_peers.cc
  OpId begin(Op::Kind kind, RemoteId remote, RegionId region, std::span<const Piece> pieces,
             Done& done);
  void issue(Peer& peer);
  void issue_part(Peer& peer, std::uint64_t id, Op& op);
  void part_ended(Peer& peer, std::uint64_t part, Verdict verdict);
  void end(std::uint64_t id, Op& op, Verdict verdict);
  void abandon(std::uint64_t id, Op& op, Verdict verdict);
  void lose(Peer& peer);
  std::size_t say_verdicts();
  std::size_t answer();
  // tcp_serve.cc
  const Grant* admitted(const Request& request, Access access, const Instance& who) const;
  void close_inbound(const Instance& instance);

  const TcpOptions options_;
  TransportInfo info_;
  TransportStats stats_;
  std::shared_ptr<TlsContext> tls_;
  int epoll_ = -1, listener_ = -1, timer_ = -1;
  TcpPlace place_;
  Time now_{}, watched_{};

  std::uint64_t next_id_ = 16;  ///< of everything; below: epoll's own words
  std::map<RegionId, Region> regions_;
  std::map<GrantId, Grant> grants_;
  std::map<RemoteId, Remote> remotes_;
  std::unordered_map<std::uint64_t, Op> ops_;
  std::map<std::uint64_t, std::unique_ptr<Peer>> peers_;  ///< by session id = PeerId
  std::map<std::uint64_t, std::unique_ptr<Inbound>> inbound_;
  /// Fenced processes: their puts need a grant after this one.
  std::map<Instance, std::uint64_t> void_through_;
  std::vector<std::uint64_t> over_;  ///< operations whose verdict is to be said
  std::vector<std::function<void()>> revoked_;
};

}  // namespace infos
