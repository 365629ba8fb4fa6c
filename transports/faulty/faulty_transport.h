// SPDX-License-Identifier: Apache-2.0
// A transport that goes wrong by seed: wraps another and, per operation, delays, drops, fails,
// truncates, corrupts or lets bytes land after the verdict. The same seed and the same sequence of
// operations meet the same faults; time plays no part (delays count progress() calls). All but
// `corrupt` keep the contract of transport.h. Owner's thread; for tests and drills.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "topology/base/rng.h"
#include "transports/transport.h"

namespace infos {

/// Probabilities per operation; at most one fault each.
struct FaultyOptions {
  std::uint64_t seed = 1;
  double delay = 0;     ///< begins up to `turns_max` progress() calls later; then as if nothing was
  double drop = 0;      ///< nothing moves; `failed`, but only after `turns_max` calls
  double fail = 0;      ///< nothing moves; `failed`
  double truncate = 0;  ///< a part of the bytes moves; `failed`
  double late = 0;      ///< `failed` at once; the bytes land up to `turns_max` calls later, unless
                        ///< the peer is fenced before
  double corrupt =
      0;  ///< gets only: one bit that arrived is turned; `ok`. A lie, for stamps to catch
  std::uint32_t turns_max = 16;
};

struct FaultCounts {
  std::uint64_t delay = 0, drop = 0, fail = 0, truncate = 0, late = 0, corrupt = 0;
};

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, const FaultyOptions& options);
  ~FaultyTransport() override;

  FaultCounts counts() const { return counts_; }
  /// From now on operations begin only after release(); those under way go on.
  void hold() { on_hold_ = true; }
  void release() { on_hold_ = false; }

  const TransportInfo& info() const override { return info_; }
  TransportStats stats() const override;
  Result<RegionId> allocate(std::uint64_t bytes, std::span<std::byte>& memory) override;
  Result<RegionId> adopt(std::span<std::byte> memory) override;
  void forget(RegionId region) override;
  std::string address() const override { return inner_->address(); }
  Result<PeerId> connect(std::string_view address) override { return inner_->connect(address); }
  PeerState peer_state(PeerId peer) const override { return inner_->peer_state(peer); }
  void fence(PeerId peer, std::function<void()> done) override;
  Result<GrantId> grant(RegionId region, std::uint64_t begin, std::uint64_t bytes,
                        Access access) override {
    return inner_->grant(region, begin, bytes, access);
  }
  std::string key(GrantId grant) const override { return inner_->key(grant); }
  void revoke(GrantId grant, std::function<void()> done) override;
  Result<RemoteId> open_remote(PeerId peer, std::string_view key) override;
  void close_remote(RemoteId remote) override;
  OpId get(RemoteId from, RegionId into, std::span<const Piece> pieces, Done done) override;
  OpId put(RemoteId to, RegionId from, std::span<const Piece> pieces, Done done) override;
  void cancel(OpId op) override;
  std::size_t progress() override;
  int wait_fd() override { return inner_->wait_fd(); }
  bool arm() override;

 private:
  enum class Fault : std::uint8_t { none, delay, drop, fail, truncate, late, corrupt };
  struct Op {
    enum class Kind : std::uint8_t { get, put } kind = Kind::get;
    RemoteId remote;
    RegionId region;
    std::vector<Piece> pieces;
    Done done;  ///< empty: the verdict is said, bytes may still come (late)
    Fault fault = Fault::none;
    std::uint64_t due = 0;  ///< the turn when it begins, or ends (drop)
    OpId inner;             ///< once it began
    bool over = false;      ///< has its verdict; waits for progress() to say it
    Verdict verdict = Verdict::ok;
  };
  OpId begin(Op op, std::span<const Piece> pieces, Done done);
  Fault draw(Op::Kind kind);
  void start(std::uint64_t id, Op& op);
  void inner_ended(std::uint64_t id, Verdict verdict);
  void corrupt(std::uint64_t id, const Op& op);
  void end(Op& op, Verdict verdict);
  void say(std::uint64_t id, Verdict verdict);
  void say_verdicts();

  const FaultyOptions options_;
  TransportInfo info_;
  Rng rng_;
  FaultCounts counts_;
  std::uint64_t turn_ = 0, next_op_ = 1;
  std::uint64_t ops_ok_ = 0, ops_not_ok_ = 0;
  std::size_t called_ = 0;  ///< callbacks of this progress()
  bool on_hold_ = false;
  std::map<RegionId, std::span<std::byte>> regions_;
  std::map<RemoteId, PeerId> remotes_;
  std::map<std::uint64_t, Op> ops_;
  std::vector<std::function<void()>> answers_;
  std::unique_ptr<Transport> inner_;
};

}  // namespace infos
