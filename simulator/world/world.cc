// SPDX-License-Identifier: Apache-2.0
#include "simulator/world/world.h"

#include <algorithm>

#include "simulator/world/answer.h"
#include "topology/base/check.h"

namespace infos {
namespace {

std::uint32_t context_of(const WorkerConfig& worker) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(
      worker.max_context, std::uint64_t{worker.kv_blocks} * worker.block_tokens));
}

constexpr std::size_t kNesting = 16;  // cores that tell cores, at most

}  // namespace

World::World(const SimulateOptions& options)
    : options_(options),
      checks_(options.checks == SimulateOptions::Checks::every_event),
      rng_(options.seed),
      workload_(options.workload, context_of(options.worker), rng_.next()),
      ledger_(options.gateway, context_of(options.worker)),
      gateway_(options.gateway),
      nodes_(std::max(options.cluster.nodes, 1U)),
      links_(nodes_.size() * nodes_.size()),
      slots_(options.workers),
      network_(static_cast<std::uint32_t>(nodes_.size()), options.cluster.link,
               options.cluster.memory),
      worker_effects_(kNesting),
      gateway_effects_(kNesting),
      agent_effects_(kNesting),
      relay_effects_(kNesting),
      transfer_effects_(kNesting) {
  report_.seed = options.seed;
  const ClusterFigures& cluster = options_.cluster;
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    slot.node = i % static_cast<std::uint32_t>(nodes_.size());
    slot.config = options_.worker;
    slot.config.max_context = context_of(options_.worker);
    if (cluster.prefill_workers == 0) continue;
    slot.role = i < cluster.prefill_workers ? WorkerRole::prefill : WorkerRole::decode;
    if (slot.role != WorkerRole::prefill || cluster.prefill_block_tokens == 0) continue;
    const std::uint32_t block = cluster.prefill_block_tokens;
    slot.config.kv_blocks = (slot.config.kv_blocks * slot.config.block_tokens + block - 1) / block;
    slot.config.block_tokens = block;
  }
}

/// The first violation stands; the run ends with it.
void World::violated(const std::string& what) {
  if (what.empty() || !report_.violation.empty()) return;
  report_.violation = "at " + to_string(Duration{now_.ns}) + ": " + what;
}

template <typename Event, typename Effects>
void World::note(std::uint64_t instance, const Event& event, const Effects& effects) {
  ++report_.events;
  if (options_.record == SimulateOptions::Record::on)
    report_.recording += recorder_.step(instance, now_, event, effects);
  if (options_.hash == SimulateOptions::Hash::off || effects.empty()) return;
  constexpr auto core = std::is_same_v<Event, GatewayEvent>  ? CoreKind::gateway
                        : std::is_same_v<Event, WorkerEvent> ? CoreKind::worker
                                                             : CoreKind::agent;
  std::uint64_t& hash = hashes_[{core, instance}];
  hash = hash_effects(hash, effects);
}

void World::tell_gateway(const GatewayEvent& event) {
  INFOS_CHECK(depth_ < kNesting);
  GatewayEffects& effects = gateway_effects_[depth_++];
  effects.clear();
  gateway_.step(now_, event, effects);
  note(0, event, effects);
  if (options_.spoil_gateway) options_.spoil_gateway(effects);
  for (GatewayEffect& effect : effects) std::visit([&](auto& e) { perform(e); }, effect);
  --depth_;
}

void World::tell_agent(std::uint32_t node, const AgentEvent& event) {
  INFOS_CHECK(depth_ < kNesting);
  if (!nodes_[node].alive) return;
  AgentEffects& effects = agent_effects_[depth_++];
  effects.clear();
  nodes_[node].agent->step(now_, event, effects);
  nodes_[node].agent_told = true;
  note(node, event, effects);
  for (AgentEffect& effect : effects) std::visit([&](auto& e) { perform(e); }, effect);
  --depth_;
}

void World::tell_worker(std::uint32_t slot, const WorkerEvent& event) {
  INFOS_CHECK(depth_ < kNesting);
  WorkerEffects& effects = worker_effects_[depth_++];
  effects.clear();
  slots_[slot].core->step(now_, event, effects);
  note(slot + 1, event, effects);
  if (options_.spoil_worker) options_.spoil_worker(effects);
  for (WorkerEffect& effect : effects) std::visit([&](auto& e) { perform(slot, e); }, effect);
  if (checks_) check_worker(slot);
  --depth_;
  const Time tick = slots_[slot].core->next_deadline();
  if (tick < slots_[slot].tick)
    push(slots_[slot].tick = std::max(tick, now_), Kind::worker_tick, slot,
         slots_[slot].generation.value);
}

/// One pending tick per core; a tick that comes too early is legal and is armed anew.
void World::arm_ticks() {
  const Time gateway = gateway_.next_deadline();
  if (gateway < gateway_tick_) push(gateway_tick_ = std::max(gateway, now_), Kind::gateway_tick);
  for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    if (!node.agent_told) continue;
    node.agent_told = false;
    const Time agent = node.agent->next_deadline();
    if (agent < node.agent_tick) push(node.agent_tick = std::max(agent, now_), Kind::agent_tick, i);
  }
}

void World::start() {
  if (options_.record == SimulateOptions::Record::on) {
    report_.recording = recording_header() + recorder_.start(0, options_.gateway);
  }
  for (std::uint32_t i = 0; i < slots_.size(); ++i)
    slots_[i].spec = {WorkerId{i + 1}, "model", "modelled", "modelled", {}};
  tell_gateway(ModelListed{"model"});
  for (std::uint32_t i = 0; i < nodes_.size(); ++i) start_node(i);
  last_arrival_ = now_ + options_.device.load;
  if (const std::optional<Duration> gap = workload_.gap())
    push(last_arrival_ + *gap, Kind::arrive);
  else
    arrivals_done_ = true;
  arm_fault(Kind::worker_death, options_.faults.worker_death_gap);
  arm_fault(Kind::worker_hang, options_.faults.worker_hang_gap);
  arm_fault(Kind::worker_slow, options_.faults.worker_slow_gap);
  arm_fault(Kind::worker_roll, options_.faults.worker_roll_gap);
  arm_fault(Kind::node_death, options_.faults.node_death_gap);
  arm_fault(Kind::link_cut, options_.faults.link_cut_gap);
}

void World::arrive() {
  const Arrive request = workload_.next(now_);
  ++report_.requests;
  last_arrival_ = now_;
  ledger_.asked(now_, request);
  const auto moment = [&] {
    return now_ + Duration{static_cast<std::int64_t>(rng_.exponential(rng_.uniform() * 1e9))};
  };
  if (strikes(options_.faults.client_gone, "client-gone"))
    push(moment(), Kind::client_gone, 0, 0, request.request.value);
  if (strikes(options_.faults.client_stop, "client-stop"))
    push(moment(), Kind::client_stop, 0, 0, request.request.value);
  tell_gateway(request);
  if (const std::optional<Duration> gap = workload_.gap())
    push(now_ + *gap, Kind::arrive);
  else
    arrivals_done_ = true;
}

void World::happen(const WorldEvent& event) {
  switch (event.kind) {
    case Kind::arrive:
      arrive();
      return;
    case Kind::client_gone:
    case Kind::client_stop: {
      const RequestId request{event.value};
      if (event.kind == Kind::client_gone)
        ledger_.gone(request), tell_gateway(ClientGone{request});
      else
        ledger_.stopped(request), tell_gateway(StopHit{request});
      return;
    }
    case Kind::gateway_tick:
      gateway_tick_ = kNever;
      tell_gateway(GatewayTick{});
      return;
    case Kind::agent_tick:
      nodes_[event.slot].agent_tick = kNever;
      tell_agent(event.slot, AgentTick{});
      return;
    case Kind::worker_death:
    case Kind::worker_hang:
    case Kind::worker_slow:
    case Kind::worker_roll:
    case Kind::node_death:
    case Kind::link_cut:
      strike(event.kind);
      return;
    case Kind::network:
      network_tick_ = kNever;
      network_moves();
      return;
    case Kind::action:
      actions_.take(event.value)();
      return;
    default:
      break;
  }
  happen_to_worker(event);
}

void World::happen_to_worker(const WorldEvent& event) {
  const WorkerId worker{event.slot + 1};
  const Generation generation{event.generation};
  Slot* slot = process(worker, generation);
  const std::uint32_t node = slots_[event.slot].node;
  switch (event.kind) {
    case Kind::to_worker: {
      --in_flight_;
      ToWorker message = to_worker_.take(event.value);
      if (!slot || !slot->serving || slot->hung) return;
      std::visit(
          [&](auto& m) {
            using M = std::remove_cvref_t<decltype(m)>;
            if constexpr (std::is_same_v<M, KvLetter>)
              letter(*slot, m);
            else if constexpr (std::is_same_v<M, PeerGone>)
              post(*slot, m);
            else
              tell_worker(event.slot, std::move(m));
          },
          message);
      return;
    }
    case Kind::from_worker:
      --in_flight_;
      from_worker(slots_[event.slot], generation, from_worker_.take(event.value));
      return;
    case Kind::step_done:
      if (slot && !slot->hung) step_done(*slot);
      return;
    case Kind::spawned:
      tell_agent(node, WorkerSpawned{worker, generation});
      return;
    case Kind::spawn_failed:
      tell_agent(node, SpawnFailed{worker, generation, "the modelled system refused to start it"});
      return;
    case Kind::worker_tick:
      if (!slot || !slot->serving || slot->hung) return;
      slot->tick = kNever;
      tell_worker(event.slot, Tick{});
      return;
    case Kind::serving:
      if (slot) serve(*slot);
      return;
    case Kind::exited:
      tell_agent(node, WorkerExited{worker, generation, "the modelled process ended", false});
      return;
    case Kind::alive:
      if (!slot) return;
      if (!slot->hung) tell_agent(node, WorkerAlive{worker, generation});
      push(now_ + Duration{options_.agent.silence_limit.ns / 4}, Kind::alive, event.slot,
           event.generation);
      return;
    default:
      return;
  }
}

/// Nothing is asked, said or computed any more, and every worker serves.
bool World::is_quiet() const {
  if (!arrivals_done_ || ledger_.open() > 0 || in_flight_ > 0) return false;
  const bool serve = std::ranges::all_of(
      slots_, [](const Slot& s) { return s.serving && !s.hung && !s.device->is_busy(); });
  return serve && (options_.cluster.is_plain() || (is_healed() && kv_at_rest().empty()));
}

SimulateReport World::run() {
  start();
  arm_ticks();
  bool quiet = false;
  while (!queue_.empty() && report_.violation.empty()) {
    const WorldEvent event = queue_.pop();
    now_ = event.at;
    happen(event);
    arm_ticks();
    if (checks_) check_gateway();
    if ((quiet = is_quiet())) break;
    const Time last = std::max(heal_at(), last_arrival_);
    if (arrivals_done_ && now_ - last > options_.converge_within) {
      violated("no convergence: " + std::to_string(ledger_.open()) +
               " requests are open, the first is " + ledger_.first_open() + "; " + kv_at_rest());
    }
  }
  if (!quiet)
    violated("the world stands still with " + std::to_string(ledger_.open()) + " requests open");
  for (const Slot& slot : slots_) {
    if (!report_.violation.empty()) break;
    const WorkerLoad load = slot.core->load();
    if (load.kv_blocks_used + load.running + load.waiting + slot.device->open_sequences() > 0) {
      violated("worker " + std::to_string(index(slot) + 1) +
               " holds something though nothing is asked: " + std::to_string(load.kv_blocks_used) +
               " blocks, " + std::to_string(slot.device->open_sequences()) + " sequences");
    }
  }
  std::uint64_t ended = report_.bytes_received;
  for (const auto& [why, bytes] : report_.bytes_dropped) ended += bytes;
  if (report_.violation.empty() && ended != report_.bytes_sent) {
    violated(std::to_string(report_.bytes_sent) + " bytes of KV were sent, " +
             std::to_string(ended) + " were received or dropped by a named fault");
  }
  return report();
}

SimulateReport World::report() {
  if (options_.record == SimulateOptions::Record::on) report_.recording += recorder_.hashes();
  report_.outcomes = ledger_.outcomes;
  report_.prompt_tokens = ledger_.prompt_tokens, report_.cached_tokens = ledger_.cached_tokens;
  report_.tokens = ledger_.tokens, report_.retries = ledger_.retries;
  for (const Slot& slot : slots_) {
    report_.preemptions += slot.preemptions + (slot.core ? slot.core->load().preemptions : 0);
  }
  report_.split = gateway_.counters().split;
  report_.virtual_seconds = Duration{now_.ns}.seconds();
  if (now_.ns > 0)
    report_.tokens_per_second = static_cast<double>(ledger_.tokens) / report_.virtual_seconds;
  report_.first_token = ledger_.first_token.percentiles();
  report_.inter_token = ledger_.inter_token.percentiles();
  report_.whole_answer = ledger_.whole_answer.percentiles();
  report_.hash = ledger_.hash;
  for (const auto& [key, hash] : hashes_)
    report_.hash = chain_next(report_.hash ^ hash, static_cast<TokenId>(key.second));
  return std::move(report_);
}

SimulateReport simulate(const SimulateOptions& options) { return World(options).run(); }

}  // namespace infos
