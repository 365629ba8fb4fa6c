// SPDX-License-Identifier: Apache-2.0
// World: nodes, the links between them, and the words that cross them.
#include <algorithm>

#include "simulator/world/world.h"
#include "topology/base/check.h"

namespace infos {

void World::after(Duration wait, std::function<void()> action) {
  push(now_ + wait, Kind::action, 0, 0, actions_.put(std::move(action)));
}

void World::after_in(Slot& slot, Duration wait, std::function<void(Slot&)> action) {
  after(wait, [this, process_ref = ref(slot), action = std::move(action)] {
    Slot* at = process(process_ref.worker, process_ref.generation);
    if (at && at->serving && !at->hung) action(*at);
  });
}

void World::start_node(std::uint32_t i) {
  Node& node = nodes_[i];
  node.alive = true;
  AgentConfig agent = options_.agent;
  agent.seed += i;
  agent.generation_base = generation_base(node.incarnation);
  node.agent.emplace(agent);
  if (options_.record == SimulateOptions::Record::on)
    report_.recording += recorder_.start(i, agent);
  if (options_.cluster.is_plain()) return tell_agent(i, desired(i));
  // The gateway's node is node 0: the modelled requests are numbered from 1.
  node.relay.emplace(RelayConfig{NodeId{i}});
  for (std::uint32_t other = 0; other < nodes_.size(); ++other)
    if (other != i && nodes_[other].alive && nodes_[other].relay) link_up(i, other);
  tell_agent(i, desired(i));
}

void World::link_up(std::uint32_t a, std::uint32_t b) {
  Link& l = link(a, b);
  const std::uint64_t epoch = l.epoch + 1;
  l = Link{};
  l.epoch = epoch;
  tell_relay(a, LinkUp{NodeId{b}});
  tell_relay(b, LinkUp{NodeId{a}});
  data_restored(a, b);
}

void World::tell_relay(std::uint32_t i, RelayEvent event) {
  Node& node = nodes_[i];
  if (!node.alive) return;
  INFOS_CHECK(depth_ < relay_effects_.size());
  RelayEffects& effects = relay_effects_[depth_++];
  effects.clear();
  node.relay->step(now_, std::move(event), effects);
  ++report_.events;
  for (RelayEffect& effect : effects) {
    if (auto* peer = std::get_if<SendPeer>(&effect))
      send_peer(i, *peer);
    else if (auto* local = std::get_if<SendLocal>(&effect))
      to_process(local->message);
    else if (auto* refused = std::get_if<RelayRefused>(&effect))
      violated("node " + std::to_string(i) + " refused a peer's word: " + refused->why);
    else if (i == 0)
      tell_gateway(std::get<TellGateway>(effect).event);
  }
  --depth_;
  const Time tick = node.relay->next_deadline();
  if (tick >= node.relay_tick) return;
  node.relay_tick = tick;
  after(std::max(tick - now_, Duration{}), [this, i] {
    nodes_[i].relay_tick = kNever;
    if (nodes_[i].alive) tell_relay(i, RelayTick{});
  });
}

/// Over a stream: in order, and lost with it.
void World::send_peer(std::uint32_t from, SendPeer& effect) {
  const std::uint32_t to = effect.node.value;
  Link& l = link(from, to);
  if (l.severed[from < to ? 0 : 1]) return;
  ++in_flight_;
  after(options_.cluster.latency,
        [this, from, to, epoch = l.epoch, message = std::move(effect.message)] {
          --in_flight_;
          if (link(from, to).epoch == epoch) tell_relay(to, LinkSaid{NodeId{from}, message});
        });
}

/// What a worker process said has reached its daemon.
void World::from_worker(Slot& slot, Generation generation, FromWorker message) {
  const WorkerRef from{WorkerId{index(slot) + 1}, generation};
  if (auto* report = std::get_if<StepReport>(&message)) {
    if (options_.cluster.is_plain())
      return tell_gateway(WorkerSaid{from.worker, generation, std::move(*report)});
    return tell_relay(slot.node, LocalSaid{from, std::move(*report)});
  }
  if (auto* letter = std::get_if<KvLetter>(&message))
    tell_relay(slot.node, LocalLetter{std::move(*letter)});
}

/// Power is lost: the daemon and its workers are gone at once.
void World::end_node(std::uint32_t i) {
  Node& node = nodes_[i];
  if (!node.alive) return;
  ++report_.faults["node-death"];
  node.alive = false;
  for (Slot& slot : slots_)
    if (slot.node == i) end_process(slot, "its node died");
  const bool silent = rng_.chance(0.5);
  for (std::uint32_t other = 0; other < nodes_.size(); ++other) {
    if (other == i) continue;
    Link& l = link(i, other);
    const std::uint64_t epoch = ++l.epoch;
    l.up = false;
    l.severed[0] = l.severed[1] = l.data_severed[0] = l.data_severed[1] = true;
    l.data_reset = !silent;
    data_cut(i, other);
    after(silent ? milliseconds(600) + some(900'000) : some(50'000), [this, i, other, epoch] {
      if (link(i, other).epoch == epoch) tell_relay(other, LinkDown{NodeId{i}, "it fell silent"});
    });
  }
  after(milliseconds(1600) + some(3'000'000), [this, i] {
    ++nodes_[i].incarnation;
    start_node(i);
  });
}

void World::cut_link(std::uint32_t a, std::uint32_t b) {
  if (a > b) std::swap(a, b);
  Link& l = link(a, b);
  if (!l.up || l.data_severed[0] || l.data_severed[1] || !nodes_[a].alive || !nodes_[b].alive)
    return;
  static constexpr const char* kKinds[] = {"link-reset", "link-silent", "link-one-way",
                                           "data-link-reset", "data-link-silent"};
  const std::uint64_t kind = rng_.below(5);
  const std::uint64_t way = rng_.below(2);
  ++report_.faults[kKinds[kind]];
  l.data_severed[0] = kind != 2 || way == 0;
  l.data_severed[1] = kind != 2 || way == 1;
  l.data_reset = kind == 0 || kind == 3;
  data_cut(a, b);
  const std::uint64_t epoch = l.epoch;
  if (kind >= 3) {
    after(some(3'000'000), [this, a, b, epoch] {
      if (link(a, b).epoch != epoch) return;
      link(a, b).data_severed[0] = link(a, b).data_severed[1] = false;
      data_restored(a, b);
    });
    return;
  }
  l.up = false;
  l.severed[0] = l.data_severed[0], l.severed[1] = l.data_severed[1];
  if (kind == 0) ++l.epoch;  // what is under way is lost
  const std::uint64_t now_epoch = l.epoch;
  for (const auto& [at, of] : {std::pair(a, b), std::pair(b, a)}) {
    after(kind == 0 ? some(50'000) : milliseconds(600) + some(900'000), [this, at, of, now_epoch] {
      if (link(at, of).epoch == now_epoch) tell_relay(at, LinkDown{NodeId{of}, "it fell silent"});
    });
  }
  after(milliseconds(1600) + some(3'000'000), [this, a, b, now_epoch] {
    if (link(a, b).epoch == now_epoch && nodes_[a].alive && nodes_[b].alive) link_up(a, b);
  });
}

}  // namespace infos
