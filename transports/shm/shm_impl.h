// SPDX-License-Identifier: Apache-2.0
// ShmTransport: regions, grants, peers and operations of one shm transport. Owner's thread; the
// copying is Copier's.
#pragma once

#include <map>
#include <unordered_map>

#include "transports/shm/copier.h"
#include "transports/shm/neighbor.h"
#include "transports/shm/shared_file.h"
#include "transports/shm/shm_transport.h"

namespace infos {

class ShmTransport final : public Transport {
 public:
  static Result<std::unique_ptr<Transport>> create(const ShmOptions& options);
  ~ShmTransport() override;

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
  int wait_fd() override { return epoll_.get(); }
  bool arm() override;

 private:
  struct Region {
    SharedFile::Range range;
    enum class Owner { allocated, adopted } owner = Owner::allocated;
  };
  struct Grant {
    std::uint32_t slot = 0;
    std::uint64_t secret = 0;
    std::span<std::byte> memory;
    Access access = Access::read;
  };
  struct Peer {
    std::shared_ptr<Neighbor> neighbor;
    bool fencing = false;
    std::vector<std::function<void()>> fenced;
  };
  struct Remote {
    PeerId peer;
    std::uint32_t slot = 0;
    std::uint64_t secret = 0;
  };
  /// A get or put of ours. A get has a job; a put waits for its letter.
  struct Op {
    PeerId peer;
    Remote remote;
    std::shared_ptr<Neighbor> neighbor;  ///< keeps what the job reads mapped
    Done done;
    std::unique_ptr<CopyJob> job;  ///< of a get that is under way
    Letter letter;                 ///< of a put
    std::uint64_t bytes = 0;
    enum class Kind { get, put } kind = Kind::get;
    bool over = false;  ///< has its verdict; waits for progress() to say it
    Verdict verdict = Verdict::ok;
  };
  /// A put of a neighbor, being copied here.
  struct Landing {
    std::shared_ptr<Neighbor> neighbor;
    std::uint64_t op = 0;  ///< as the neighbor names it
    GrantId grant;
    CopyJob job;
    Verdict on_abort = Verdict::failed;
  };
  /// The pieces of a put, until the neighbor has answered: it may read them even after our verdict.
  struct List {
    std::shared_ptr<Neighbor> neighbor;
    SharedFile::Range range;  ///< empty: a single piece, in the letter itself
  };
  struct Revoking {
    GrantId grant;
    std::function<void()> done;
  };

  explicit ShmTransport(const ShmOptions& options) : options_(options) {}
  Status open();
  Result<std::shared_ptr<Neighbor>> neighbor_of(const ShmPlace& place);
  OpId begin(Op::Kind kind, RemoteId remote, RegionId region, std::span<const Piece> pieces,
             Done& done);
  void begin_get(std::uint64_t id, Op& op, const Region& into, std::span<const Piece> pieces);
  void begin_put(std::uint64_t id, Op& op, const Region& from, std::span<const Piece> pieces);
  void end(std::uint64_t id, Op& op, Verdict verdict);
  void abandon(std::uint64_t id, Op& op, Verdict verdict);
  void copied(CopyJob* job);
  std::size_t say_verdicts();
  std::size_t answer_fences();
  void watch(Time now);
  void lose(const std::shared_ptr<Neighbor>& neighbor);
  void post_puts();
  void drop_list(std::uint64_t op);
  // shm_puts.cc: what comes through the door
  void read_door();
  void greet(const Letter& letter);
  void land(const Letter& letter);
  Verdict prepare(const Letter& letter, Landing& landing);
  void put_answered(const Letter& letter);
  void abort_landings(const std::function<bool(const Landing&)>& which, Verdict verdict);
  bool any_landing(const std::function<bool(const Landing&)>& which) const;
  void reply(Neighbor& neighbor, std::uint64_t op, Verdict verdict);
  Neighbor* known(std::uint64_t nonce_low);

  const ShmOptions options_;
  TransportInfo info_;
  TransportStats stats_;
  OwnFd door_in_, door_out_, event_, timer_, epoll_;
  std::unique_ptr<SharedFile> file_;
  ShmPlace place_;
  Time beaten_{}, watched_{};

  std::uint64_t next_id_ = 1;  ///< of everything
  std::map<RegionId, Region> regions_;
  std::map<std::uint64_t, RegionId> allocated_;  ///< by address, to find what adopt() names
  std::map<GrantId, Grant> grants_;
  std::vector<std::uint32_t> free_slots_;
  std::vector<GrantId> grant_of_slot_;
  std::map<PeerId, Peer> peers_, closed_peers_;  ///< closed: by the destructor
  std::map<RemoteId, Remote> remotes_;
  std::unordered_map<std::uint64_t, Op> ops_;
  std::map<std::uint64_t, std::unique_ptr<Landing>> landings_;
  std::map<std::uint64_t, std::shared_ptr<Neighbor>> neighbors_;  ///< by nonce, low half
  std::vector<std::uint64_t> over_;  ///< operations whose verdict is to be said
  std::vector<Revoking> revoking_;
  std::map<std::uint64_t, List> lists_;     ///< of the puts that neighbors have, by operation
  std::deque<std::uint64_t> waiting_puts_;  ///< until a neighbor has room
  std::unique_ptr<Copier> copier_;          ///< last: stops before what it writes to goes
};

}  // namespace infos
