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

constexpr std::size_t kNesting = 8;  // cores that tell cores, at most

}  // namespace

World::World(const SimulateOptions& options)
    : options_(options),
      checks_(options.checks == SimulateOptions::Checks::every_event),
      rng_(options.seed),
      workload_(options.workload, context_of(options.worker), rng_.next()),
      ledger_(options.gateway, context_of(options.worker)),
      gateway_(options.gateway),
      agent_(options.agent),
      slots_(options.workers),
      worker_effects_(kNesting),
      gateway_effects_(kNesting),
      agent_effects_(kNesting) {
  report_.seed = options.seed;
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

void World::tell_agent(const AgentEvent& event) {
  INFOS_CHECK(depth_ < kNesting);
  AgentEffects& effects = agent_effects_[depth_++];
  effects.clear();
  agent_.step(now_, event, effects);
  agent_told_ = true;
  note(0, event, effects);
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
}

/// One pending tick per core; a tick that comes too early is legal and is armed anew.
void World::arm_ticks() {
  const Time gateway = gateway_.next_deadline();
  if (gateway < gateway_tick_) push(gateway_tick_ = std::max(gateway, now_), Kind::gateway_tick);
  if (!agent_told_) return;
  agent_told_ = false;
  const Time agent = agent_.next_deadline();
  if (agent < agent_tick_) push(agent_tick_ = std::max(agent, now_), Kind::agent_tick);
}

void World::start() {
  if (options_.record == SimulateOptions::Record::on) {
    report_.recording = recording_header() + recorder_.start(0, options_.gateway) +
                        recorder_.start(0, options_.agent);
  }
  for (std::uint32_t i = 0; i < slots_.size(); ++i)
    slots_[i].spec = {WorkerId{i + 1}, "model", "modelled", "modelled", {}};
  tell_gateway(ModelListed{"model"});
  tell_agent(desired());
  last_arrival_ = now_ + options_.device.load;
  if (const std::optional<Duration> gap = workload_.gap())
    push(last_arrival_ + *gap, Kind::arrive);
  else
    arrivals_done_ = true;
  arm_fault(Kind::worker_death, options_.faults.worker_death_gap);
  arm_fault(Kind::worker_hang, options_.faults.worker_hang_gap);
  arm_fault(Kind::worker_slow, options_.faults.worker_slow_gap);
  arm_fault(Kind::worker_roll, options_.faults.worker_roll_gap);
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
  Slot* slot = nullptr;
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
      agent_tick_ = kNever;
      tell_agent(AgentTick{});
      return;
    case Kind::worker_death:
    case Kind::worker_hang:
    case Kind::worker_slow:
    case Kind::worker_roll:
      strike(event.kind);
      return;
    default:
      break;
  }
  const WorkerId worker{event.slot + 1};
  const Generation generation{event.generation};
  slot = process(worker, generation);
  switch (event.kind) {
    case Kind::to_worker: {
      --in_flight_;
      ToWorker message = to_worker_.take(event.value);
      if (!slot || !slot->serving || slot->hung) return;
      std::visit(
          [&](auto& m) {
            if constexpr (std::is_constructible_v<WorkerEvent, decltype(m)>)
              tell_worker(event.slot, std::move(m));
          },
          message);
      return;
    }
    case Kind::from_worker:
      --in_flight_;
      tell_gateway(WorkerSaid{worker, generation, from_worker_.take(event.value)});
      return;
    case Kind::step_done:
      if (slot && !slot->hung) step_done(*slot);
      return;
    case Kind::spawned:
      tell_agent(WorkerSpawned{worker, generation});
      return;
    case Kind::spawn_failed:
      tell_agent(SpawnFailed{worker, generation, "the modelled system refused to start it"});
      return;
    case Kind::serving:
      if (slot) serve(*slot);
      return;
    case Kind::exited:
      tell_agent(WorkerExited{worker, generation, "the modelled process ended", false});
      return;
    case Kind::alive:
      if (!slot) return;
      if (!slot->hung) tell_agent(WorkerAlive{worker, generation});
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
  return std::ranges::all_of(
      slots_, [](const Slot& s) { return s.serving && !s.hung && !s.device->is_busy(); });
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
               " requests are open, the first is " + ledger_.first_open());
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
