// SPDX-License-Identifier: Apache-2.0
// A transport within one thread for tests of what stands on transports: gets only, moved one
// operation a progress() call, in an order and with faults that a seed decides. It may lie: say
// `ok` for bytes that are wrong or missing, which no honest transport does.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "topology/base/check.h"
#include "topology/base/rng.h"
#include "transports/transport.h"

namespace infos::test {

/// Chances, for each operation.
struct MemoryFaults {
  double corrupt = 0;   ///< a bit differs, and the verdict is ok
  double truncate = 0;  ///< the last piece is cut short, and the verdict is ok
  double fail = 0;      ///< half of the pieces, and `failed`
  double lose = 0;      ///< nothing, and the peer is lost
  double linger = 0;    ///< cancelled or failed, but bytes land until the fence
};

class MemoryTransport final : public Transport {
 public:
  explicit MemoryTransport(std::uint64_t seed, std::uint64_t direct_bytes_min = 0) : rng_(seed) {
    info_.direct_bytes_min = direct_bytes_min;
  }

  MemoryFaults faults;
  std::uint64_t lies = 0;  ///< operations that said ok and were not

  const TransportInfo& info() const override { return info_; }
  TransportStats stats() const override { return {}; }
  Result<RegionId> allocate(std::uint64_t, std::span<std::byte>&) override {
    return Error{ErrorCode::unsupported, "not in this test"};
  }
  Result<RegionId> adopt(std::span<std::byte> memory) override {
    regions_.push_back(memory);
    return RegionId{static_cast<std::uint32_t>(regions_.size())};
  }
  void forget(RegionId) override {}
  std::string address() const override { return "here"; }
  Result<PeerId> connect(std::string_view) override { return PeerId{1}; }
  PeerState peer_state(PeerId) const override { return lost_ ? PeerState::lost : PeerState::open; }
  void fence(PeerId, std::function<void()> done) override {
    lingering_.clear();
    for (std::deque<Op> ops = std::move(ops_); Op & op : ops) op.done(op.id, Verdict::cancelled);
    lost_ = false;
    done();
  }
  Result<GrantId> grant(RegionId region, std::uint64_t, std::uint64_t, Access) override {
    return GrantId{region.value};
  }
  std::string key(GrantId grant) const override { return std::to_string(grant.value); }
  void revoke(GrantId, std::function<void()> done) override { done(); }
  Result<RemoteId> open_remote(PeerId, std::string_view key) override {
    return RemoteId{static_cast<std::uint32_t>(std::stoul(std::string(key)))};
  }
  void close_remote(RemoteId) override {}
  OpId get(RemoteId from, RegionId into, std::span<const Piece> pieces, Done done) override {
    for (const Piece& p : pieces) {
      INFOS_CHECK(p.local + p.bytes <= regions_[into.value - 1].size());
      INFOS_CHECK(p.remote + p.bytes <= regions_[from.value - 1].size());
    }
    ops_.push_back({{++last_}, from, into, {pieces.begin(), pieces.end()}, std::move(done)});
    return ops_.back().id;
  }
  OpId put(RemoteId, RegionId, std::span<const Piece>, Done) override { return {}; }
  void cancel(OpId id) override {
    for (Op& op : ops_)
      if (op.id == id) op.cancelled = true;
  }
  std::size_t progress() override {
    for (const Op& op : lingering_)
      if (rng_.chance(0.5)) copy(op, op.pieces.size());
    if (ops_.empty()) return 0;
    const auto at = ops_.begin() + static_cast<std::ptrdiff_t>(rng_.below(ops_.size()));
    Op op = std::move(*at);
    ops_.erase(at);
    const Verdict verdict = perform(op);
    op.done(op.id, verdict);
    return 1;
  }
  int wait_fd() override { return -1; }
  bool arm() override { return false; }

 private:
  struct Op {
    OpId id;
    RemoteId from;
    RegionId into;
    std::vector<Piece> pieces;
    Done done;
    bool cancelled = false;
  };

  void copy(const Op& op, std::size_t pieces) {
    for (std::size_t i = 0; i < pieces; ++i) {
      const Piece& p = op.pieces[i];
      std::memcpy(regions_[op.into.value - 1].data() + p.local,
                  regions_[op.from.value - 1].data() + p.remote, p.bytes);
    }
  }

  Verdict perform(Op& op) {
    lost_ = lost_ || rng_.chance(faults.lose);
    const bool fails = !lost_ && rng_.chance(faults.fail);
    if (lost_ || op.cancelled || fails) {
      if (fails) copy(op, op.pieces.size() / 2);
      if (rng_.chance(faults.linger)) lingering_.push_back(op);
      return lost_ ? Verdict::peer_lost : op.cancelled ? Verdict::cancelled : Verdict::failed;
    }
    copy(op, op.pieces.size());
    const Piece& last = op.pieces[rng_.below(op.pieces.size())];
    std::byte* place = regions_[op.into.value - 1].data() + last.local;
    if (rng_.chance(faults.corrupt)) {
      place[rng_.below(last.bytes)] ^= static_cast<std::byte>(1U << rng_.below(8));
      ++lies;
    } else if (rng_.chance(faults.truncate)) {
      const std::uint64_t keep = rng_.below(last.bytes);
      std::memset(place + keep, 0x5A, last.bytes - keep);
      ++lies;
    }
    return Verdict::ok;
  }

  TransportInfo info_;
  Rng rng_;
  std::vector<std::span<std::byte>> regions_;
  std::deque<Op> ops_;
  std::vector<Op> lingering_;
  std::uint64_t last_ = 0;
  bool lost_ = false;
};

}  // namespace infos::test
