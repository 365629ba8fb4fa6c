// SPDX-License-Identifier: Apache-2.0
// Three workers' TransferCores in a world of their own: letters that are lost, doubled, late and
// out of order; memory whose rows and stamps are modelled one by one; a mover whose writes may land
// at any time until they are fenced; processes that die. Checks after every effect what must never
// happen, and at the end that everything has come to rest. One seed, one history.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "daemon/control/kv_ledger.h"
#include "daemon/control/transfer_core.h"
#include "tests/control/transfer_memory.h"
#include "topology/base/rng.h"

namespace infos::test {

class TransferWorld {
 public:
  static constexpr std::uint32_t kWorkers = 3, kBlocks = 10;

  TransferWorld(std::uint64_t seed, const TransferFaults& faults) : rng_(seed), faults_(faults) {
    for (std::uint32_t i = 0; i < kWorkers; ++i) {
      nodes_.emplace_back();
      nodes_[i].block_tokens = 1U << (1 + rng_.below(3));
      nodes_[i].alien = faults_.alien && i == 2;
      start(i);
    }
  }

  /// Runs `requests` split requests to the end. Returns: what was wrong, empty if nothing.
  std::string run(std::uint32_t requests) {
    for (std::uint32_t i = 1; i <= requests; ++i)
      after(below_ms(300), [this, i] { split(RequestId{i}); });
    if (rng_.chance(faults_.die))
      after(below_ms(400), [this] { die(static_cast<std::uint32_t>(rng_.below(kWorkers))); });
    after(milliseconds(1500), [this] { healed_ = true; });
    while (broken_.empty() && !queue_.empty() && now_ < Time{seconds(400).ns}) {
      now_ = queue_.top().at;
      const std::size_t next = queue_.top().action;
      queue_.pop();
      std::function<void()> action = std::move(actions_[next]);
      action();
      ++events_;
    }
    if (broken_.empty()) at_rest();
    return broken_;
  }

  std::uint64_t events() const { return events_; }
  std::uint64_t tokens_fetched() const { return tokens_fetched_; }
  std::uint64_t tokens_wanted() const { return tokens_wanted_; }
  std::uint64_t fences() const { return fences_; }

 private:
  struct Node {
    std::optional<TransferCore> core;
    Generation generation;
    std::uint32_t block_tokens = 4;
    bool alien = false;
    std::uint64_t epoch = 0;  ///< of the process: late actions of a dead one are dropped
    std::uint64_t last_id = 0;
    Block blocks[kBlocks];
    std::map<EffectId, FetchRecord> fetches;
    std::map<EffectId, ExportRecord> exports;
    std::map<LeaseId, WorkerRef> leases;
    std::map<EffectId, Flight> flights;
    std::map<EffectId, WorkerRef> attached;
    Time ticking = kNever;
  };

  // ---- time ----
  void after(Duration d, std::function<void()> action) {
    actions_.push_back(std::move(action));
    queue_.push({now_ + d, actions_.size() - 1});
  }
  void after_in(std::uint32_t node, Duration d, std::function<void()> action) {
    after(d, [this, node, epoch = nodes_[node].epoch, action = std::move(action)] {
      if (nodes_[node].epoch == epoch) action();
    });
  }
  Duration below_ms(std::uint64_t n) {
    return microseconds(static_cast<std::int64_t>(rng_.below(n * 1000)));
  }
  bool fault(double p) { return !healed_ && rng_.chance(p); }
  void wrong(const std::string& what) {
    if (broken_.empty()) broken_ = what + " at " + to_string(Duration{now_.ns});
  }

  // ---- processes ----
  WorkerRef ref(std::uint32_t node) const { return {WorkerId{node + 1}, nodes_[node].generation}; }
  void start(std::uint32_t i) {
    Node& node = nodes_[i];
    const Generation generation{node.generation.value + 1};
    const std::uint32_t block_tokens = node.block_tokens;
    const bool alien = node.alien;
    const std::uint64_t epoch = node.epoch + 1;
    node = Node{};
    node.generation = generation;
    node.block_tokens = block_tokens;
    node.alien = alien;
    node.epoch = epoch;
    TransferConfig config;
    config.self = ref(i);
    config.identity = {
        alien ? "other" : "model", "c", "b", Epoch{1}, kLayers, 1, 1, "f32", block_tokens, 1, ""};
    config.may_differ = bit(KvField::block_size);
    config.move_bytes_max = 1 + rng_.below(40);
    config.moves_per_fetch_max = 1 + static_cast<std::uint32_t>(rng_.below(4));
    config.export_wait = seconds(3);
    config.ask_wait = seconds(2);
    node.core.emplace(config);
  }
  void die(std::uint32_t i) {
    const WorkerRef gone = ref(i);
    start(i);
    for (std::uint32_t j = 0; j < kWorkers; ++j)
      if (j != i) after_in(j, below_ms(400), [this, j, gone] { tell(j, PeerGone{gone}); });
  }
  Node* node_of(WorkerRef worker) {
    Node& node = nodes_[worker.worker.value - 1];
    return node.generation == worker.generation ? &node : nullptr;
  }

  void tell(std::uint32_t i, const TransferEvent& event) {
    if (!broken_.empty()) return;
    TransferEffects effects;
    nodes_[i].core->step(now_, event, effects);
    for (TransferEffect& effect : effects) {
      std::visit([&](auto& e) { perform(i, e); }, effect);
      if (!broken_.empty()) return;
    }
    const std::string audit = nodes_[i].core->audit().broken;
    if (!audit.empty()) wrong("audit:" + audit);
    const Time next = nodes_[i].core->next_deadline();
    if (next < nodes_[i].ticking) {
      if (next <= now_) return wrong("a deadline that has passed");
      nodes_[i].ticking = next;
      after_in(i, next - now_, [this, i, next] {
        if (nodes_[i].ticking == next) nodes_[i].ticking = kNever, tell(i, Tick{});
      });
    }
  }

  // ---- requests ----
  std::vector<BlockId> take_blocks(Node& node, std::size_t n) {
    std::vector<BlockId> got;
    const auto from = static_cast<std::uint32_t>(rng_.below(kBlocks));
    for (std::uint32_t k = 0; k < kBlocks && got.size() < n; ++k) {
      const std::uint32_t b = (from + k) % kBlocks;
      if (node.blocks[b].references == 0) got.push_back(BlockId{b});
    }
    if (got.size() < n) return {};
    for (const BlockId b : got) ++node.blocks[b.value].references;
    return got;
  }
  void split(RequestId request) {
    const auto source = static_cast<std::uint32_t>(rng_.below(kWorkers));
    const auto sink = (source + 1 + static_cast<std::uint32_t>(rng_.below(2))) % kWorkers;
    const auto tokens = 2 + static_cast<std::uint32_t>(rng_.below(16));
    const auto shared = static_cast<std::uint32_t>(rng_.chance(0.5) ? 8 : 0);
    const WorkerRef from = ref(source), to = ref(sink);
    if (!fault(faults_.stray))
      after_in(source, below_ms(40),
               [=, this] { begin_export(source, request, to, tokens, shared); });
    after_in(sink, below_ms(40), [=, this] { begin_fetch(sink, request, from, tokens, shared); });
    if (fault(faults_.stray)) {
      const std::uint32_t third = 3 - source - sink;
      after_in(third, below_ms(60),
               [=, this] { begin_fetch(third, request, from, tokens, shared); });
    }
  }
  void begin_export(std::uint32_t i, RequestId request, WorkerRef sink, std::uint32_t tokens,
                    std::uint32_t shared) {
    Node& node = nodes_[i];
    ExportRecord record;
    record.chain = request.value;
    record.shared = shared;
    // Blocks of the common prefix that another export has complete are used together.
    for (const auto& [id, other] : node.exports) {
      const std::uint32_t both = std::min({shared, other.shared, other.computed, tokens - 1});
      const std::uint32_t n = both / node.block_tokens;
      if (n == 0) continue;
      record.blocks.assign(other.blocks.begin(), other.blocks.begin() + n);
      record.computed = n * node.block_tokens;
      break;
    }
    const std::size_t all = (tokens + node.block_tokens - 1) / node.block_tokens;
    const std::vector<BlockId> fresh = take_blocks(node, all - record.blocks.size());
    if (record.blocks.size() + fresh.size() < all) {
      unserved_.insert(request);
      return;
    }
    for (const BlockId b : record.blocks) ++node.blocks[b.value].references;
    record.blocks.insert(record.blocks.end(), fresh.begin(), fresh.end());
    const EffectId id{++node.last_id};
    record.wish = {id, request, Attempt{1}, sink, tokens};
    node.exports[id] = record;
    tell(i, record.wish);
    if (record.computed > 0) tell(i, AdvanceExport{id, record.computed, record.blocks});
    compute(i, id);
    if (fault(faults_.end)) after_in(i, below_ms(60), [=, this] { tell(i, EndExport{id}); });
  }
  /// One step of prefill after the other, layer by layer.
  void compute(std::uint32_t i, EffectId id) {
    after_in(i, below_ms(12), [=, this] {
      const auto at = nodes_[i].exports.find(id);
      if (at == nodes_[i].exports.end()) return;
      const std::uint32_t left = at->second.wish.tokens - at->second.computed;
      if (left == 0) return;
      layer(i, id, 1 + static_cast<std::uint32_t>(rng_.below(left)), 0);
    });
  }
  void layer(std::uint32_t i, EffectId id, std::uint32_t rows, std::uint32_t l) {
    Node& node = nodes_[i];
    const auto at = node.exports.find(id);
    if (at == node.exports.end()) return;
    ExportRecord& e = at->second;
    for (std::uint32_t t = e.computed; t < e.computed + rows; ++t)
      node.blocks[e.blocks[t / node.block_tokens].value].rows[l][t % node.block_tokens] =
          content(node.alien, e.chain, e.shared, t, l);
    const std::uint32_t end = e.computed + rows;
    if (l + 1 < kLayers) {
      if (rng_.chance(0.7)) tell(i, LayersReady{id, end, l + 1, e.blocks});
      after_in(i, below_ms(3), [=, this] { layer(i, id, rows, l + 1); });
      return;
    }
    e.computed = end;
    tell(i, AdvanceExport{id, end, e.blocks});
    compute(i, id);
  }
  void begin_fetch(std::uint32_t i, RequestId request, WorkerRef source, std::uint32_t tokens,
                   std::uint32_t shared) {
    Node& node = nodes_[i];
    const std::uint32_t end = tokens - 1;
    const std::uint32_t begin =
        static_cast<std::uint32_t>(rng_.below(end / node.block_tokens + 1)) * node.block_tokens;
    if (begin >= end || source == ref(i)) return;
    const std::vector<BlockId> blocks =
        take_blocks(node, (end + node.block_tokens - 1) / node.block_tokens);
    if (blocks.empty()) return;
    const EffectId id{++node.last_id};
    FetchRecord record{
        {id, request, Attempt{1}, source, begin, end, blocks}, request.value, shared};
    for (const BlockId b : blocks) node.blocks[b.value].fetch = id;
    node.fetches[id] = record;
    tokens_wanted_ += end - begin;
    tell(i, record.wish);
    if (fault(faults_.abandon)) {
      after_in(i, below_ms(80), [=, this] {
        tell(i, AbandonFetch{id});
        if (fault(faults_.refetch)) begin_fetch(i, request, source, tokens, shared);
      });
    }
  }

  // ---- effects ----
  void perform(std::uint32_t i, SendKv& e) {
    const int copies = fault(faults_.lose) ? 0 : fault(faults_.twice) ? 2 : 1;
    for (int k = 0; k < copies; ++k) {
      const Duration d = fault(faults_.slow) ? below_ms(800) : below_ms(2);
      after(d, [this, from = ref(i), to = e.to, message = e.message] {
        if (node_of(to))
          tell(static_cast<std::uint32_t>(to.worker.value - 1), KvReceived{from, message});
      });
    }
  }
  void perform(std::uint32_t i, OpenLease& e) {
    bool wanted = false;
    for (const auto& [id, x] : nodes_[i].exports) wanted = wanted || x.wish.sink == e.reader;
    if (!wanted) wrong("a lease for somebody for whom nothing is exported");
    nodes_[i].leases[e.lease] = e.reader;
    after_in(i, below_ms(2), [this, i, lease = e.lease, no = fault(faults_.fail / 4)] {
      tell(i, LeaseOpened{lease, {}, no ? "no" : ""});
    });
  }
  void perform(std::uint32_t i, StampKv& e) {
    if (!nodes_[i].leases.contains(e.lease)) return wrong("a stamp without a lease");
    after_in(i, below_ms(2), [this, i, e] {
      Node& node = nodes_[i];
      if (!node.leases.contains(e.lease)) return;
      for (const SourceBlock& b : e.blocks)
        for (std::uint32_t l = e.layer_begin; l < e.layer_end; ++l)
          node.blocks[b.block.value].stamps[l] = {
              b.generation, b.tokens, hash(node.blocks[b.block.value].rows[l], b.tokens)};
      tell(i, Stamped{e.id});
    });
  }
  void perform(std::uint32_t i, CloseLease& e) {
    if (nodes_[i].leases.erase(e.lease) == 0) wrong("a lease is closed twice");
    for (const BlockId b : e.unstamp)
      for (StampMemory& s : nodes_[i].blocks[b.value].stamps) s = {};
  }
  void perform(std::uint32_t i, ExportDone& e) {
    Node& node = nodes_[i];
    const auto at = node.exports.find(e.id);
    if (at == node.exports.end()) return wrong("an export ends twice");
    for (const BlockId b : at->second.blocks) {
      Block& block = node.blocks[b.value];
      if (--block.references > 0) continue;
      for (const StampMemory& s : block.stamps)
        if (s.generation.value != 0) return wrong("an export ends while its stamps are valid");
    }
    node.exports.erase(at);
  }
  void perform(std::uint32_t i, FetchDone& e) {
    Node& node = nodes_[i];
    const auto at = node.fetches.find(e.id);
    if (at == node.fetches.end()) return wrong("a fetch ends twice");
    const FetchRecord& f = at->second;
    for (const auto& [id, flight] : node.flights)
      if (flight.lands && flight.move.fetch == e.id)
        return wrong("a fetch ends while a move may write its blocks");
    if (node.attached.contains(e.id)) wrong("a fetch ends attached");
    if (e.tokens > f.wish.end - f.wish.begin) return wrong("more is fetched than was wanted");
    if ((e.tokens == f.wish.end - f.wish.begin) != e.why.empty())
      wrong("a reason without a lack: " + e.why);
    for (std::uint32_t t = f.wish.begin; t < f.wish.begin + e.tokens; ++t)
      for (std::uint32_t l = 0; l < kLayers; ++l)
        if (node.blocks[f.wish.blocks[t / node.block_tokens].value]
                .rows[l][t % node.block_tokens] != content(node.alien, f.chain, f.shared, t, l))
          return wrong("token " + std::to_string(t) + " is used with wrong content");
    tokens_fetched_ += e.tokens;
    if (unserved_.contains(f.wish.request)) tokens_wanted_ -= f.wish.end - f.wish.begin;
    const std::vector<BlockId> blocks = f.wish.blocks;
    for (const BlockId b : blocks) node.blocks[b.value].fetch = EffectId{};
    node.fetches.erase(at);
    after_in(i, below_ms(30), [this, i, blocks] {
      for (const BlockId b : blocks) --nodes_[i].blocks[b.value].references;
    });
  }
  void perform(std::uint32_t i, AttachSource& e) {
    if (!nodes_[i].fetches.contains(e.fetch)) wrong("attached for no fetch");
    nodes_[i].attached[e.fetch] = e.source;
  }
  void perform(std::uint32_t i, DetachSource& e) {
    if (nodes_[i].attached.erase(e.fetch) == 0) wrong("detached twice");
  }
  void perform(std::uint32_t, FenceOverdue&) { wrong("a fence that was answered is overdue"); }

  // ---- the mover ----
  void perform(std::uint32_t i, MoveKv& e) {
    Node& node = nodes_[i];
    if (!node.attached.contains(e.fetch)) return wrong("a move without a source");
    Flight& flight = node.flights[e.id];
    flight.move = e;
    flight.source = node.attached.at(e.fetch);
    Duration takes = below_ms(3);
    if (fault(faults_.hold)) takes = takes + below_ms(6000);
    after_in(i, below_ms(2), [this, i, id = e.id] { read(i, id); });
    after_in(i, milliseconds(2) + takes, [this, i, id = e.id] { land(i, id); });
    if (fault(faults_.fail)) {
      after_in(i, below_ms(4), [this, i, id = e.id] {
        const auto at = nodes_[i].flights.find(id);
        if (at == nodes_[i].flights.end() || at->second.answered) return;
        static constexpr MoveVerdict kBad[] = {MoveVerdict::failed, MoveVerdict::peer_lost,
                                               MoveVerdict::refused, MoveVerdict::cancelled};
        give_up(i, id, kBad[rng_.below(4)]);
      });
    }
  }
  /// A verdict that is not `landed`: with proof that nothing lands any more, or without.
  void give_up(std::uint32_t i, EffectId id, MoveVerdict verdict) {
    Flight& flight = nodes_[i].flights.at(id);
    const bool quiet = rng_.chance(0.4);
    flight.answered = true;
    if (quiet) nodes_[i].flights.erase(id);
    tell(i, MoveDone{id, verdict, {}, quiet});
  }
  void read(std::uint32_t i, EffectId id) {
    const auto at = nodes_[i].flights.find(id);
    if (at == nodes_[i].flights.end()) return;
    Flight& flight = at->second;
    Node* source = node_of(flight.source);
    if (!source) {
      if (!flight.answered) give_up(i, id, MoveVerdict::peer_lost);
      return;
    }
    const bool torn = fault(faults_.torn);
    for (const SourceBlock& b : flight.move.sources)
      for (std::uint32_t l = flight.move.layer_begin; l < flight.move.layer_end; ++l)
        flight.seen.push_back(source->blocks[b.block.value].stamps[l]);
    if (torn)  // the bytes come later than their stamps
      after_in(i, below_ms(60), [this, i, id] { read_bytes(i, id); });
    else
      read_bytes(i, id);
  }
  void read_bytes(std::uint32_t i, EffectId id) {
    const auto at = nodes_[i].flights.find(id);
    if (at == nodes_[i].flights.end()) return;
    Flight& flight = at->second;
    const Node* source = node_of(flight.source);
    if (!source) return;
    for (const SourceBlock& b : flight.move.sources)
      for (std::uint32_t l = flight.move.layer_begin; l < flight.move.layer_end; ++l)
        for (const std::uint64_t row : source->blocks[b.block.value].rows[l])
          flight.bytes.push_back(row);
    if (fault(faults_.corrupt)) flight.bytes[rng_.below(flight.bytes.size())] ^= 4;
    flight.read = true;
  }
  void land(std::uint32_t i, EffectId id) {
    const auto at = nodes_[i].flights.find(id);
    if (at == nodes_[i].flights.end()) return;
    Node& node = nodes_[i];
    Flight& flight = at->second;
    if (!flight.read) {
      if (!node_of(flight.source)) {
        if (!flight.answered) return give_up(i, id, MoveVerdict::peer_lost);
        return;  // nothing was read and nothing will
      }
      return after_in(i, milliseconds(2), [this, i, id] { land(i, id); });
    }
    const MoveKv& m = flight.move;
    const std::uint32_t size = source_block_tokens(flight.source);
    const std::uint32_t layers = m.layer_end - m.layer_begin;
    const auto row = [&](std::uint32_t t, std::uint32_t l) {
      const std::uint32_t b = (t - m.source_begin) / size;
      return flight.bytes[(b * layers + l - m.layer_begin) * kRows + (t - m.source_begin) % size];
    };
    for (std::uint32_t t = m.begin; t < m.end; ++t) {
      Block& block = node.blocks[m.into[(t - m.into_begin) / node.block_tokens].value];
      if (block.fetch != m.fetch) return wrong("a late move writes into a block of another");
      for (std::uint32_t l = m.layer_begin; l < m.layer_end; ++l)
        block.rows[l][t % node.block_tokens] = row(t, l);
    }
    const bool answered = flight.answered;
    MoveDone done{id, MoveVerdict::landed, seen_by(flight, layers), true};
    node.flights.erase(at);
    if (!answered) tell(i, done);
  }
  std::uint32_t source_block_tokens(WorkerRef source) const {
    return nodes_[source.worker.value - 1].block_tokens;
  }
  void perform(std::uint32_t i, CancelMove& e) {
    after_in(i, below_ms(3), [this, i, id = e.id] {
      const auto at = nodes_[i].flights.find(id);
      if (at == nodes_[i].flights.end() || at->second.answered || rng_.chance(0.3)) return;
      give_up(i, id, MoveVerdict::cancelled);
    });
  }
  void perform(std::uint32_t i, FencePeer& e) {
    ++fences_;
    std::vector<EffectId> before;
    for (const auto& [id, flight] : nodes_[i].flights)
      if (flight.source == e.peer) before.push_back(id);
    after_in(i, below_ms(20), [this, i, e, before] {
      std::vector<EffectId> unanswered;
      for (const EffectId id : before) {
        const auto at = nodes_[i].flights.find(id);
        if (at == nodes_[i].flights.end()) continue;
        if (!at->second.answered) unanswered.push_back(id);
        nodes_[i].flights.erase(at);
      }
      for (const EffectId id : unanswered)
        tell(i, MoveDone{id, MoveVerdict::cancelled, {}, rng_.chance(0.5)});
      tell(i, Fenced{e.id});
    });
  }

  void at_rest() {
    for (std::uint32_t i = 0; i < kWorkers; ++i) {
      const TransferAudit a = nodes_[i].core->audit();
      const std::uint32_t left = a.fetches + a.exports + a.leases + a.asks + a.moves + a.fences +
                                 a.stamped_blocks + static_cast<std::uint32_t>(a.blocks.size());
      if (left > 0) wrong("worker " + std::to_string(i) + " does not come to rest");
      for (const Block& b : nodes_[i].blocks)
        if (b.references > 0) wrong("a block is leaked");
    }
  }

  struct Due {
    Time at;
    std::size_t action;
    bool operator>(const Due& o) const { return at != o.at ? at > o.at : action > o.action; }
  };
  Rng rng_;
  TransferFaults faults_;
  std::vector<Node> nodes_;
  Time now_{1};
  std::priority_queue<Due, std::vector<Due>, std::greater<>> queue_;
  std::deque<std::function<void()>> actions_;
  bool healed_ = false;
  std::string broken_;
  std::set<RequestId> unserved_;  ///< their source had no blocks for them
  std::uint64_t events_ = 0, tokens_fetched_ = 0, tokens_wanted_ = 0, fences_ = 0;
};

}  // namespace infos::test
