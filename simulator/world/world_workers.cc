// SPDX-License-Identifier: Apache-2.0
// World: processes of workers, and what the cores' effects do to them.
#include <algorithm>

#include "simulator/world/world.h"

namespace infos {

/// The slot whose living process is meant, nullptr if that process is gone.
World::Slot* World::process(WorkerId worker, Generation generation) {
  if (worker.value == 0 || worker.value > slots_.size()) return nullptr;
  Slot& slot = slots_[worker.value - 1];
  return slot.alive && slot.generation == generation ? &slot : nullptr;
}

Desired World::desired(std::uint32_t node) const {
  Desired wish;
  for (const Slot& slot : slots_)
    if (slot.node == node) wish.workers.push_back(slot.spec);
  return wish;
}

/// The gateway speaks.
void World::perform(SendWorker& effect) {
  if (options_.cluster.is_plain()) return to_process(effect);
  tell_relay(0, GatewaySays{std::move(effect)});
}

void World::perform(AnnounceUp& effect) {
  if (options_.cluster.is_plain())
    return tell_gateway(WorkerUp{effect.worker, effect.generation, effect.ready});
  const std::uint32_t node = slots_[effect.worker.value - 1].node;
  tell_relay(node, LocalUp{{effect.worker, effect.generation}, effect.ready});
}

void World::perform(AnnounceDown& effect) {
  if (options_.cluster.is_plain())
    return tell_gateway(WorkerDown{effect.worker, effect.generation});
  const std::uint32_t node = slots_[effect.worker.value - 1].node;
  tell_relay(node, LocalDown{{effect.worker, effect.generation}, effect.why});
}

/// The daemon hands over a message.
void World::to_process(SendWorker& effect) {
  Slot* slot = process(effect.worker, effect.generation);
  if (slot) send(*slot, Direction::to_worker, to_worker_.put(std::move(effect.message)));
}

void World::perform(Spawn& effect) {
  const std::uint64_t worker = effect.spec.worker.value;
  if (worker == 0 || worker > slots_.size())
    return violated("a worker was started that nobody wished for");
  Slot& slot = slots_[worker - 1];
  if (slot.alive)
    return violated("worker " + std::to_string(worker) + " was started while its process lives");
  if (effect.generation <= slot.generation)
    return violated("worker " + std::to_string(worker) + " was started with an old generation");
  slot.generation = effect.generation;
  const std::uint32_t i = index(slot);
  if (strikes(options_.faults.spawn_failure, "spawn-failure")) {
    return push(now_ + milliseconds(10), Kind::spawn_failed, i, slot.generation.value);
  }
  slot.alive = true;
  slot.serving = slot.hung = false;
  slot.slow_until = slot.sent_to = slot.sent_from = Time{};
  const std::int64_t slowness = strikes(options_.faults.slow_start, "slow-start") ? 20 : 1;
  push(now_ + milliseconds(5), Kind::spawned, i, slot.generation.value);
  push(now_ + milliseconds(5) + options_.device.load * slowness, Kind::serving, i,
       slot.generation.value);
}

/// The process has loaded its model.
void World::serve(Slot& slot) {
  if (slot.serving || slot.hung) return;
  slot.serving = true;
  const std::uint32_t i = index(slot);
  const bool plain = options_.cluster.is_plain();
  slot.core.emplace(slot.config);
  slot.tick = kNever;
  slot.device.emplace(options_.device, slot.config, options_.checks, plain ? 1 : kModelLayers,
                      rng_.next());
  if (!plain) serve_kv(slot);
  if (options_.record == SimulateOptions::Record::on)
    report_.recording += recorder_.start(i + 1, slot.config);
  hashes_.erase({CoreKind::worker, i + 1});
  WorkerReady ready;
  ready.model = "model";
  ready.device = "modelled";
  ready.max_context = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      slot.config.max_context, std::uint64_t{slot.config.kv_blocks} * slot.config.block_tokens));
  ready.block_tokens = slot.config.block_tokens;
  ready.role = slot.role;
  ready.kv_bytes_per_token = options_.cluster.kv_bytes_per_token;
  ready.load = slot.core->load();
  push(now_ + Duration{options_.agent.silence_limit.ns / 4}, Kind::alive, i, slot.generation.value);
  tell_agent(slot.node, WorkerServing{WorkerId{i + 1}, slot.generation, ready});
}

/// The process is gone now; the agent learns of it a little later.
void World::end_process(Slot& slot, const std::string&) {
  if (!slot.alive) return;
  slot.alive = slot.serving = slot.hung = false;
  if (slot.core) slot.preemptions += slot.core->load().preemptions;
  if (!options_.cluster.is_plain()) process_gone(slot);
  // Not destroyed here: its own effects may be under way.
  push(now_ + microseconds(static_cast<std::int64_t>(rng_.below(50'000)) + 1), Kind::exited,
       index(slot), slot.generation.value);
}

void World::perform(AskStop& effect) {
  Slot* slot = process(effect.worker, effect.generation);
  if (!slot) return;
  if (!slot->serving) end_process(*slot, "asked to stop before it served");
  if (!slot->serving || slot->hung) return;
  ToWorker drain;
  drain.emplace<Drain>();
  send(*slot, Direction::to_worker, to_worker_.put(std::move(drain)));
}

void World::perform(Kill& effect) {
  if (Slot* slot = process(effect.worker, effect.generation)) end_process(*slot, "killed");
}

void World::perform(std::uint32_t slot, OpenSequence& effect) {
  violated(slots_[slot].device->open(effect));
}
void World::perform(std::uint32_t slot, CloseSequence& effect) {
  violated(slots_[slot].device->close(effect));
}

void World::perform(std::uint32_t slot, RunStep& effect) {
  Slot& s = slots_[slot];
  const std::string wrong = s.device->begin(std::move(effect), now_ < s.slow_until ? 10 : 1);
  if (!wrong.empty()) return violated("worker " + std::to_string(slot + 1) + " ran " + wrong);
  ++report_.steps;
  push(now_ + s.device->duration(), Kind::step_done, slot, s.generation.value);
  if (s.kv && !s.kv->exports.empty()) {
    after_in(s, Duration{s.device->duration().ns / 2}, [this](Slot& of) { layers_ready(of); });
  }
}

void World::perform(std::uint32_t slot, Report& effect) {
  if (slots_[slot].alive)
    send(slots_[slot], Direction::from_worker, from_worker_.put(std::move(effect.report)));
}

void World::perform(std::uint32_t slot, Drained&) { end_process(slots_[slot], "drained"); }

void World::step_done(Slot& slot) {
  if (!slot.serving || !slot.device->is_busy()) return;
  if (strikes(options_.faults.step_failure, "step-failure"))
    return tell_worker(index(slot), slot.device->fail());
  const StepDone done = slot.device->finish();
  if (!slot.device->broken().empty())
    return violated("worker " + std::to_string(index(slot) + 1) + ": " + slot.device->broken());
  tell_worker(index(slot), done);
}

}  // namespace infos
