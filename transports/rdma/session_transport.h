// SPDX-License-Identifier: Apache-2.0
// SessionTransport: what the transports over RDMA libraries have in common. Owns regions, grants,
// peers, operations and their verdicts, and a SideChannel for wire-up, life and rights; a backend
// (UCX, verbs) derives from it and only moves bytes. Owner's thread only.
//
// A session is one connection between two processes: the initiator called connect() and gives the
// operations, the acceptor serves. A grant is checked with its owner once per session before it is
// used, so a right that never was or is gone is `refused` without harm to the data path. A fence
// ends the peer's session and all sessions that the same process opened to us; its verdicts come
// when the backend says that nothing of these sessions can land.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "transports/rdma/side_channel.h"
#include "transports/rdma/wire.h"
#include "transports/transport.h"

namespace infos {

class SessionTransport : public Transport, private SideChannel::Handler {
 public:
  ~SessionTransport() override;
  const TransportInfo& info() const final { return info_; }
  TransportStats stats() const final;
  Result<RegionId> allocate(std::uint64_t bytes, std::span<std::byte>& memory) final;
  Result<RegionId> adopt(std::span<std::byte> memory) final;
  void forget(RegionId region) final;
  std::string address() const final;
  Result<PeerId> connect(std::string_view address) final;
  PeerState peer_state(PeerId peer) const final;
  void fence(PeerId peer, std::function<void()> done) final;
  Result<GrantId> grant(RegionId region, std::uint64_t begin, std::uint64_t bytes,
                        Access access) final;
  std::string key(GrantId grant) const final;
  void revoke(GrantId grant, std::function<void()> done) final;
  Result<RemoteId> open_remote(PeerId peer, std::string_view key) final;
  OpId get(RemoteId from, RegionId into, std::span<const Piece> pieces, Done done) final;
  OpId put(RemoteId to, RegionId from, std::span<const Piece> pieces, Done done) final;
  void cancel(OpId op) final;
  std::size_t progress() final;
  int wait_fd() final { return epoll_; }
  bool arm() final;

 protected:
  /// What a backend keeps with one of our things.
  struct Attachment {
    virtual ~Attachment() = default;
  };
  struct Region {
    RegionId id;
    std::span<std::byte> memory;
    bool mapped = false;  ///< by allocate()
    std::unique_ptr<Attachment> attachment;
  };
  struct Grant {
    GrantId id;
    Region* region = nullptr;
    std::uint64_t begin = 0, bytes = 0, token = 0;
    Access access = Access::read;
    std::unique_ptr<Attachment> attachment;
    std::set<SideId> users;  ///< sessions that were told its keys
    bool revoked = false;
    bool ended = false;  ///< grant_end() was called
    SideChannel::Clock::time_point revoke_deadline{};
    std::vector<std::function<void()>> on_revoked;
    std::byte* memory() const { return region->memory.data() + begin; }
  };
  enum class Phase : std::uint8_t { connecting, open, ending, lost };
  struct Op;
  struct Session {
    SideId id;
    SideChannel::Role role = SideChannel::Role::initiator;
    std::string uid;  ///< of the other process
    Phase phase = Phase::connecting;
    bool fenced = false;            ///< forget the session once it has ended
    std::uint64_t void_before = 0;  ///< grants of an id below are void for it
    std::unique_ptr<Attachment> attachment;
    std::deque<Op*> waiting;
    std::set<Op*> running;
  };
  struct Remote {
    RemoteId id;
    SideId session;
    std::uint64_t grant = 0, bytes = 0, token = 0;
    Access access = Access::read;
    enum class State : std::uint8_t { unknown, asked, good, refused } state = State::unknown;
    bool owes_ack = false;  ///< of a revoke, once nothing runs
    std::uint32_t running = 0;
    std::string blob;  ///< from the owner's backend
    std::unique_ptr<Attachment> attachment;
  };
  struct Op {
    OpId id;
    Session* session = nullptr;
    Remote* remote = nullptr;
    Region* region = nullptr;
    Access access = Access::read;  ///< read: a get
    std::vector<Piece> pieces;
    std::uint64_t bytes = 0;
    Done done;
    bool stopping = false;
    Verdict wish = Verdict::cancelled;  ///< instead of anything but `ok`, when stopping
    std::unique_ptr<Attachment> attachment;
  };

  SessionTransport(TransportInfo info, std::unique_ptr<SideChannel> side);
  /// A derived destructor calls this first: ends all, calls what is due.
  void shutdown();

  // ---- what a backend does ----
  virtual Status region_begin(Region& region) = 0;
  virtual void region_end(Region& region) = 0;
  virtual Status grant_begin(Grant& grant) = 0;
  virtual std::string grant_blob(const Grant& grant) = 0;
  /// No byte lands through it any more, from now or from `true` of grant_ended() on.
  virtual void grant_end(Grant& grant) = 0;
  virtual bool grant_ended(Grant&) { return true; }
  /// Our half of the wire-up, for the other side.
  virtual Result<std::string> session_half(Session& session) = 0;
  /// With the other half: the data path is ready to be used (initiator) or to serve (acceptor).
  virtual Status session_begin(Session& session, std::string_view half) = 0;
  virtual void session_end(Session& session) = 0;
  /// Nothing of it lands any more and no operation is with the library.
  virtual bool session_ended(Session& session) = 0;
  virtual void op_begin(Op& op) = 0;
  virtual void op_stop(Op& op) = 0;
  virtual std::size_t poll() = 0;
  virtual bool arm_backend() = 0;

  // ---- what a backend calls ----
  void finish(Op& op, Verdict verdict);
  void lose(Session& session, const std::string& why);
  void watch(int fd);  ///< wakes wait_fd()
  Session* find_session(SideId id);
  Grant* find_grant(GrantId id);
  /// The grant if that session may use it so, else null.
  Grant* check_right(SideId session, std::uint64_t grant, Access access, std::uint64_t begin,
                     std::uint64_t bytes);
  std::size_t due() const { return due_.size(); }

  TransportInfo info_;
  TransportStats stats_;

 private:
  static constexpr std::uint8_t kHelloMessage = 1, kHelloOkMessage = 2, kCheckMessage = 3,
                                kCheckReplyMessage = 4, kRevokeMessage = 5, kRevokeAckMessage = 6;
  /// A user of a revoked grant that has not given it up by then is fenced, if it may write.
  static constexpr auto kRevoke = std::chrono::milliseconds(400);
  struct Fence {
    std::set<SideId> sessions;
    std::function<void()> done;
  };
  void side_open(SideId side, SideChannel::Role role) override;
  void side_message(SideId side, std::uint8_t type, std::string_view payload) override;
  void side_lost(SideId side, const std::string& why) override;
  Status on_hello(Session& session, std::string_view payload);
  Status on_hello_ok(Session& session, std::string_view payload);
  Status on_check(Session& session, std::string_view payload);
  Status on_check_reply(Session& session, std::string_view payload);
  Status on_revoke(Session& session, std::string_view payload);
  OpId submit(RemoteId remote, RegionId region, std::span<const Piece> pieces, Access access,
              Done done);
  Verdict judge(const Op& op) const;
  void end(Session& session, Verdict verdict);
  void start_waiting(Session& session);
  void settle_remote(Remote& remote);
  void ask(Remote& remote);
  void stop(Op& op, Verdict wish);
  void settle_sessions();
  void settle_grants();
  std::size_t call_due();
  Result<RegionId> add_region(std::span<std::byte> memory, bool mapped);

  std::string uid_;
  std::unique_ptr<SideChannel> side_;
  int epoll_ = -1;
  bool armed_ = false;
  std::uint32_t next_id_ = 1;
  std::uint64_t next_grant_ = 1, next_op_ = 1;
  SideChannel::Clock::time_point side_at_{};
  std::map<RegionId, std::unique_ptr<Region>> regions_;
  std::map<GrantId, std::unique_ptr<Grant>> grants_;
  std::map<SideId, std::unique_ptr<Session>> sessions_;
  std::map<RemoteId, std::unique_ptr<Remote>> remotes_;
  std::unordered_map<OpId, std::unique_ptr<Op>> ops_;
  std::map<std::string, std::uint64_t> void_before_;  ///< by uid of a fenced process
  std::deque<std::function<void()>> due_;
  std::vector<Fence> fences_;
  std::uint32_t busy_ = 0;  ///< sessions that end and grants that are being revoked
};

}  // namespace infos
