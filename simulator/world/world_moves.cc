// SPDX-License-Identifier: Apache-2.0
// World: the bytes of KV: read at their source, under way on shared links, landing in the
// destination's blocks until a fence says that they cannot any more.
#include <algorithm>

#include "simulator/world/world.h"

namespace infos {

void World::perform_kv(Slot& slot, MoveKv& effect) {
  const auto source = slot.kv->attached.find(effect.fetch);
  if (source == slot.kv->attached.end()) return violated("a move without a source");
  const std::uint64_t id = ++last_flight_;
  KvFlight& flight = flights_[id];
  flight.slot = index(slot);
  flight.source = source->second;
  flight.from = slots_[flight.source.worker.value - 1].node;
  flight.to = slot.node;
  const std::uint64_t rows =
      std::uint64_t{effect.end - effect.begin} * (effect.layer_end - effect.layer_begin);
  flight.bytes =
      std::max<std::uint64_t>(rows * options_.cluster.kv_bytes_per_token / kModelLayers, 1);
  flight.move = std::move(effect);
  report_.bytes_sent += flight.bytes;
  const bool remote = flight.from != flight.to;
  after(remote ? options_.cluster.latency : microseconds(1), [this, id] { begin_flight(id); });
  if (strikes(options_.faults.move_failed, "move-failed")) {
    after(some(4000), [this, id] {
      static constexpr MoveVerdict kBad[] = {MoveVerdict::failed, MoveVerdict::peer_lost,
                                             MoveVerdict::refused, MoveVerdict::cancelled};
      give_up(id, kBad[rng_.below(4)], "move-failed");
    });
  }
}

void World::begin_flight(std::uint64_t id) {
  const auto at = flights_.find(id);
  if (at == flights_.end()) return;
  KvFlight& flight = at->second;
  Slot* source = process(flight.source.worker, flight.source.generation);
  if (!source || !source->kv) return give_up(id, MoveVerdict::peer_lost, "source-gone");
  if (!carries(flight.from, flight.to)) {
    if (link(flight.from, flight.to).data_reset)
      return give_up(id, MoveVerdict::failed, "link-reset");
    flight.stalled = true;
    return;
  }
  flight.stalled = false;
  flight.begun = true;
  read_stamps(flight, *source);
  flight.torn = strikes(options_.faults.move_torn, "move-torn");
  if (!flight.torn) read_rows(flight, *source);
  const std::uint64_t slowness = strikes(options_.faults.move_slow, "move-slow") ? 10 : 1;
  network_.start(now_, id, flight.from, flight.to, flight.bytes * slowness);
  arm_network();
}

void World::read_stamps(KvFlight& flight, Slot& source) {
  flight.seen.clear(), flight.rows.clear();
  for (const SourceBlock& b : flight.move.sources)
    for (std::uint32_t l = flight.move.layer_begin; l < flight.move.layer_end; ++l)
      flight.seen.push_back(source.kv->stamp(b.block, l));
}

void World::read_rows(KvFlight& flight, Slot& source) {
  flight.rows.clear();
  for (const SourceBlock& b : flight.move.sources) {
    for (std::uint32_t l = flight.move.layer_begin; l < flight.move.layer_end; ++l) {
      const std::uint64_t* rows = source.device->layer_rows(b.block, l);
      flight.rows.insert(flight.rows.end(), rows, rows + source.config.block_tokens);
    }
  }
  if (strikes(options_.faults.move_corrupt, "move-corrupt"))
    flight.rows[rng_.below(flight.rows.size())] ^= 4;
}

void World::network_moves() {
  while (const std::uint64_t id = network_.take_ended(now_)) {
    const auto at = flights_.find(id);
    if (at == flights_.end()) continue;
    if (strikes(options_.faults.move_held, "move-held"))
      after(some(6'000'000), [this, id] { land(id); });
    else
      land(id);
  }
  arm_network();
}

void World::arm_network() {
  const Time next = network_.next();
  if (next < network_tick_) push(network_tick_ = std::max(next, now_), Kind::network);
}

/// All bytes are there: they are written, and whoever waits is told what proves them.
void World::land(std::uint64_t id) {
  const auto at = flights_.find(id);
  if (at == flights_.end()) return;
  KvFlight& flight = at->second;
  Slot& slot = slots_[flight.slot];
  Slot* source = process(flight.source.worker, flight.source.generation);
  if (flight.torn && (!source || !source->kv))
    return give_up(id, MoveVerdict::peer_lost, "source-gone");
  if (flight.torn) read_rows(flight, *source);
  const MoveKv& m = flight.move;
  if (!slot.kv->fetches.contains(m.fetch))
    return violated("a late move wrote into blocks that are no longer its fetch's");
  const std::uint32_t size = slots_[flight.source.worker.value - 1].config.block_tokens;
  const std::uint32_t layers = m.layer_end - m.layer_begin;
  for (std::uint32_t t = m.begin; t < m.end; ++t) {
    const BlockId into = m.into[(t - m.into_begin) / slot.config.block_tokens];
    const std::uint32_t b = (t - m.source_begin) / size, offset = (t - m.source_begin) % size;
    for (std::uint32_t l = 0; l < layers; ++l)
      slot.device->layer_rows(into, m.layer_begin + l)[t % slot.config.block_tokens] =
          flight.rows[(std::size_t{b} * layers + l) * size + offset];
  }
  MoveDone done{m.id, MoveVerdict::landed, {}, true};
  for (std::size_t b = 0; b < m.sources.size(); ++b) {
    SeenStamp seen{flight.seen[b * layers].generation, UINT32_MAX, true};
    for (std::size_t l = 0; l < layers; ++l) {
      const KvStamp& s = flight.seen[b * layers + l];
      if (s.generation != seen.generation) seen.generation = StampGeneration{};
      seen.tokens = std::min(seen.tokens, s.tokens);
      seen.intact = seen.intact && s.tokens <= size &&
                    kv_hash(&flight.rows[(b * layers + l) * size], s.tokens) == s.hash;
    }
    done.seen.push_back(seen);
  }
  report_.bytes_received += flight.bytes;
  const bool answered = flight.answered;
  flights_.erase(at);
  if (!answered) post(slot, std::move(done));
}

void World::drop(std::uint64_t id, const char* why) {
  report_.bytes_dropped[why] += flights_.at(id).bytes;
  network_.stop(now_, id);
  flights_.erase(id);
  arm_network();
}

/// A verdict that is not `landed`: with proof that nothing lands any more, or without.
void World::give_up(std::uint64_t id, MoveVerdict verdict, const char* why) {
  const auto at = flights_.find(id);
  if (at == flights_.end()) return;
  KvFlight& flight = at->second;
  const bool dead = !process(flight.source.worker, flight.source.generation);
  const bool quiet = rng_.chance(0.4);
  Slot& slot = slots_[flight.slot];
  if (!flight.answered) post(slot, MoveDone{flight.move.id, verdict, {}, quiet});
  flight.answered = true;
  if (quiet || dead) drop(id, why);
}

void World::perform_kv(Slot& slot, CancelMove& effect) {
  after_in(slot, some(3000), [this, id = effect.id](Slot& of) {
    for (const auto& [flight, f] : flights_) {
      if (f.slot != index(of) || f.move.id != id) continue;
      if (!f.answered && rng_.chance(0.7)) give_up(flight, MoveVerdict::cancelled, "cancelled");
      return;
    }
  });
}

void World::perform_kv(Slot& slot, FencePeer& effect) {
  std::vector<std::uint64_t> before;
  for (const auto& [id, flight] : flights_)
    if (flight.slot == index(slot) && flight.source == effect.peer) before.push_back(id);
  after_in(slot, some(20'000), [this, e = effect, before](Slot& of) {
    for (const std::uint64_t id : before) {
      const auto at = flights_.find(id);
      if (at == flights_.end()) continue;
      if (!at->second.answered)
        post(of, MoveDone{at->second.move.id, MoveVerdict::cancelled, {}, rng_.chance(0.5)});
      drop(id, "fenced");
    }
    post(of, Fenced{e.id});
  });
}

/// A process has ended: what was to land in its memory does not, what was read from it stops.
void World::process_gone(const Slot& gone) {
  std::vector<std::uint64_t> here, there;
  for (const auto& [id, flight] : flights_) {
    if (flight.slot == index(gone))
      here.push_back(id);
    else if (flight.source == ref(gone))
      there.push_back(id);
  }
  for (const std::uint64_t id : here) drop(id, "destination-gone");
  for (const std::uint64_t id : there) give_up(id, MoveVerdict::peer_lost, "source-gone");
}

void World::data_cut(std::uint32_t a, std::uint32_t b) {
  std::vector<std::uint64_t> hit;
  for (const auto& [id, flight] : flights_) {
    const bool here = (flight.from == a && flight.to == b) || (flight.from == b && flight.to == a);
    if (here && !carries(flight.from, flight.to)) hit.push_back(id);
  }
  for (const std::uint64_t id : hit) {
    network_.stop(now_, id);
    flights_.at(id).stalled = true;
    if (link(a, b).data_reset) give_up(id, MoveVerdict::failed, "link-reset");
  }
  arm_network();
}

void World::data_restored(std::uint32_t a, std::uint32_t b) {
  std::vector<std::uint64_t> stalled;
  for (const auto& [id, flight] : flights_) {
    const bool here = (flight.from == a && flight.to == b) || (flight.from == b && flight.to == a);
    if (here && flight.stalled) stalled.push_back(id);
  }
  for (const std::uint64_t id : stalled) begin_flight(id);
}

}  // namespace infos
