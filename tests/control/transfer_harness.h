// SPDX-License-Identifier: Apache-2.0
// One TransferCore under a hand-driven clock: events in, effects out, the answers of its peer made
// by hand. For tests of single rules.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "daemon/control/transfer_core.h"

namespace infos::test {

constexpr WorkerRef kSelf{{1}, {1}}, kPeer{{2}, {1}}, kStranger{{3}, {1}};
constexpr std::uint32_t kTestLayers = 2, kTestBlock = 4;

inline TransferConfig transfer_config() {
  TransferConfig config;
  config.self = kSelf;
  config.identity = {"m", "weights", "build",    Epoch{3}, kTestLayers, 2,
                     8,   "f16",     kTestBlock, 1,        ""};
  config.move_bytes_max = 1000;
  return config;
}

/// The nth stamp generation and the first lease of kSelf's process.
inline StampGeneration stamp(std::uint64_t n) { return {(1ULL << 32) + n}; }
inline LeaseId first_lease() { return {(1ULL << 32) + 1}; }

class TransferHarness {
 public:
  explicit TransferHarness(const TransferConfig& config = transfer_config()) : core(config) {}

  void tell(const TransferEvent& event) {
    core.step(now, event, out);
    EXPECT_EQ(core.audit().broken, "");
    EXPECT_GT(core.next_deadline(), now);
  }
  void hear(const KvMessage& message, WorkerRef from = kPeer) { tell(KvReceived{from, message}); }
  /// Lets the deadlines of the next `span` pass, one Tick each.
  void pass(Duration span) {
    const Time end = now + span;
    while (core.next_deadline() <= end) {
      now = core.next_deadline();
      tell(Tick{});
    }
    now = end;
  }
  /// Takes all effects of one kind out of what was wished.
  template <typename T>
  std::vector<T> take() {
    std::vector<T> got;
    std::erase_if(out, [&](TransferEffect& e) {
      T* wish = std::get_if<T>(&e);
      if (wish) got.push_back(std::move(*wish));
      return wish != nullptr;
    });
    return got;
  }
  template <typename M>
  std::vector<M> letters() {
    std::vector<M> got;
    std::erase_if(out, [&](TransferEffect& e) {
      SendKv* send = std::get_if<SendKv>(&e);
      M* m = send ? std::get_if<M>(&send->message) : nullptr;
      if (m) got.push_back(std::move(*m));
      return m != nullptr;
    });
    return got;
  }
  template <typename T>
  std::size_t count() const {
    std::size_t n = 0;
    for (const TransferEffect& e : out) n += std::holds_alternative<T>(e) ? 1 : 0;
    return n;
  }

  // ---- as destination: request 7 in blocks 0.., fetch 1 ----
  void fetch(std::uint32_t begin = 0, std::uint32_t end = 8) {
    tell(FetchKv{{1}, {7}, {1}, kPeer, begin, end, {{0}, {1}, {2}, {3}}});
  }
  KvOffer offer(std::uint32_t tokens = 8) const {
    KvOffer m{transfer, LeaseId{5}, kKvVersion, seconds(2), tokens, transfer_config().identity, {}};
    return m;
  }
  KvAdvance clock(std::uint64_t sequence, std::vector<KvReady> ready,
                  std::vector<BlockId> blocks = {{20}, {21}}, std::uint32_t first = 0) const {
    KvAdvance m{transfer, LeaseId{5}, sequence, first, blocks, {}, std::move(ready)};
    for (const BlockId b : blocks) m.generations.push_back({b.value + 100ULL});
    return m;
  }
  /// Everything is ready; all moves are wished.
  std::vector<MoveKv> moving(std::uint32_t begin = 0, std::uint32_t end = 8) {
    fetch(begin, end);
    hear(offer());
    hear(clock(1, {{2, kTestLayers}}));
    return take<MoveKv>();
  }
  static MoveDone landed(const MoveKv& move) {
    MoveDone done{move.id, MoveVerdict::landed, {}, true};
    for (const SourceBlock& b : move.sources) done.seen.push_back({b.generation, b.tokens, true});
    return done;
  }

  // ---- as source: request 8 for kPeer, export 2 ----
  KvAsk ask(std::uint64_t serial = 1) const {
    return {{{8}, {1}, serial}, kKvVersion, kKvVersion, 0, 6, transfer_config().identity, 0};
  }
  void begin_export(std::uint32_t tokens = 6) { tell(ExportKv{{2}, {8}, {1}, kPeer, tokens}); }
  /// An open lease on it, nothing computed.
  LeaseId leased() {
    begin_export();
    hear(ask());
    const LeaseId lease = take<OpenLease>().at(0).lease;
    tell(LeaseOpened{lease, {}, ""});
    return lease;
  }

  TransferCore core;
  TransferEffects out;
  Time now{1000};
  TransferId transfer{{7}, {1}, 1};
};

}  // namespace infos::test
