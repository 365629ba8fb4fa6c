// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/agent_core.h"

#include <algorithm>
#include <optional>
#include <set>

#include "daemon/control/mutant.h"
#include "topology/base/rng.h"

namespace infos {
namespace {

enum class Phase : std::uint8_t { starting, serving, stopping, backing_off, failed };

const char* to_word(Phase phase) {
  switch (phase) {
    case Phase::starting:
      return "starting";
    case Phase::serving:
      return "serving";
    case Phase::stopping:
      return "stopping";
    case Phase::backing_off:
      return "backing-off";
    case Phase::failed:
      return "failed";
  }
  return "unknown";
}

struct Slot {
  std::optional<WorkerSpec> wanted;  ///< none: not wanted any more
  WorkerSpec spec;                   ///< of the process, or of the one to come
  Generation generation;
  Phase phase = Phase::starting;
  bool announced = false;             ///< the gateway believes it is up
  std::optional<Time> serving_since;  ///< of this process
  bool asked_to_stop = false;         ///< its end is our wish, not a failure
  std::string killed_because;         ///< empty: not killed by us
  Time deadline = kNever;             ///< what it means depends on the phase
  std::uint32_t restarts = 0;
  std::uint32_t failures_in_a_row = 0;
  std::string last_exit;
};

Time after(Time now, Duration wait) { return wait.ns >= kNever.ns - now.ns ? kNever : now + wait; }

}  // namespace

struct AgentCore::State {
  explicit State(const AgentConfig& wanted) : config(wanted), rng(wanted.seed) {}

  void on(const Desired& event, AgentEffects& out);
  void on(const WorkerSpawned&, AgentEffects&) {}  // until it serves, only its deadline counts
  void on(const SpawnFailed& event, AgentEffects& out) {
    process_ended(event.worker, event.generation, event.message, false, out);
  }
  void on(const WorkerServing& event, AgentEffects& out);
  void on(const WorkerAlive& event, AgentEffects& out);
  void on(const WorkerExited& event, AgentEffects& out) {
    process_ended(event.worker, event.generation, event.how, event.permanent, out);
  }
  void on(const AgentTick&, AgentEffects&) {}

  void process_ended(WorkerId worker, Generation generation, const std::string& how, bool permanent,
                     AgentEffects& out);
  void start(WorkerId worker, Slot& slot, AgentEffects& out);
  void stop(WorkerId worker, Slot& slot, AgentEffects& out);
  void kill(WorkerId worker, Slot& slot, const std::string& why, AgentEffects& out);
  void announce_down(WorkerId worker, Slot& slot, const std::string& why, AgentEffects& out);
  void back_off(Slot& slot);
  void expire(AgentEffects& out);
  Slot* find(WorkerId worker, Generation generation);

  AgentConfig config;
  Rng rng;
  Time now{INT64_MIN};
  std::map<WorkerId, Slot> slots;
  std::map<WorkerId, Generation> generations;  ///< the last one used, also of slots that are gone
};

/// The slot whose present process a message is about; nullptr if the message is late.
Slot* AgentCore::State::find(WorkerId worker, Generation generation) {
  const auto found = slots.find(worker);
  if (found == slots.end() || found->second.generation != generation) return nullptr;
  const Phase phase = found->second.phase;
  return phase == Phase::backing_off || phase == Phase::failed ? nullptr : &found->second;
}

void AgentCore::State::start(WorkerId worker, Slot& slot, AgentEffects& out) {
  Generation& generation = generations.try_emplace(worker, config.generation_base).first->second;
  if (!planted(Mutant::generation_reused)) ++generation.value;
  slot.spec = *slot.wanted;
  slot.generation = generation;
  slot.phase = Phase::starting;
  slot.serving_since.reset();
  slot.asked_to_stop = false;
  slot.killed_because.clear();
  slot.deadline = after(now, config.start_timeout);
  out.push_back(Spawn{generation, slot.spec});
}

void AgentCore::State::stop(WorkerId worker, Slot& slot, AgentEffects& out) {
  slot.asked_to_stop = true;
  if (slot.phase == Phase::stopping) return;
  slot.phase = Phase::stopping;
  slot.deadline = after(now, config.stop_timeout);
  out.push_back(AskStop{worker, slot.generation});
}

void AgentCore::State::announce_down(WorkerId worker, Slot& slot, const std::string& why,
                                     AgentEffects& out) {
  if (!slot.announced) return;
  slot.announced = false;
  out.push_back(AnnounceDown{worker, slot.generation, why});
}

/// By force; again each stop_timeout until the process is seen to have ended.
void AgentCore::State::kill(WorkerId worker, Slot& slot, const std::string& why,
                            AgentEffects& out) {
  announce_down(worker, slot, why, out);
  slot.phase = Phase::stopping;
  slot.deadline = after(now, config.stop_timeout);
  slot.killed_because = why;
  out.push_back(Kill{worker, slot.generation});
}

void AgentCore::State::back_off(Slot& slot) {
  const std::uint32_t doublings = std::min(slot.failures_in_a_row, 40U);
  double wait = static_cast<double>(config.backoff_first.ns);
  for (std::uint32_t i = 0; i < doublings && wait < static_cast<double>(config.backoff_max.ns); ++i)
    wait *= 2;
  wait = std::min(wait, static_cast<double>(config.backoff_max.ns)) * (0.5 + 0.5 * rng.uniform());
  ++slot.failures_in_a_row;
  slot.phase = Phase::backing_off;
  slot.deadline = after(now, Duration{static_cast<std::int64_t>(wait)});
}

void AgentCore::State::on(const Desired& event, AgentEffects& out) {
  std::map<WorkerId, const WorkerSpec*> wish;
  for (const WorkerSpec& spec : event.workers) wish.emplace(spec.worker, &spec);
  for (auto at = slots.begin(); at != slots.end();) {
    auto& [worker, slot] = *at;
    const bool has_process = slot.phase != Phase::backing_off && slot.phase != Phase::failed;
    if (wish.contains(worker)) {
      ++at;
      continue;
    }
    slot.wanted.reset();
    if (has_process)
      stop(worker, slot, out), ++at;
    else
      at = slots.erase(at);
  }
  for (const auto& [worker, spec] : wish) {
    const auto [at, is_new] = slots.try_emplace(worker);
    Slot& slot = at->second;
    const bool same = !is_new && slot.spec == *spec;
    slot.wanted = *spec;
    if (is_new) {
      start(worker, slot, out);
    } else if (slot.phase == Phase::failed ||
               !same) {  // wished again: what was wrong may be mended
      slot.failures_in_a_row = 0;
      if (slot.phase == Phase::backing_off || slot.phase == Phase::failed)
        start(worker, slot, out);
      else
        stop(worker, slot, out);
    }
  }
}

void AgentCore::State::on(const WorkerServing& event, AgentEffects& out) {
  Slot* slot = find(event.worker, event.generation);
  if (!slot || slot->phase != Phase::starting) return;
  slot->phase = Phase::serving;
  slot->serving_since = now;
  slot->announced = true;
  slot->deadline = after(now, config.silence_limit);
  out.push_back(AnnounceUp{event.worker, event.generation, event.ready});
}

void AgentCore::State::on(const WorkerAlive& event, AgentEffects&) {
  Slot* slot = find(event.worker, event.generation);
  if (slot && slot->phase == Phase::serving) slot->deadline = after(now, config.silence_limit);
}

void AgentCore::State::process_ended(WorkerId worker, Generation generation, const std::string& how,
                                     bool permanent, AgentEffects& out) {
  Slot* slot = find(worker, generation);
  if (!slot) return;
  announce_down(worker, *slot, how, out);
  const bool was_healthy =
      slot->serving_since && now - *slot->serving_since >= config.healthy_after;
  slot->last_exit = slot->killed_because.empty() ? how : slot->killed_because + "; " + how;
  if (!slot->wanted) {
    slots.erase(worker);
  } else if (slot->asked_to_stop || slot->spec != *slot->wanted) {
    start(worker, *slot, out);
  } else if (permanent) {
    slot->phase = Phase::failed;
    slot->deadline = kNever;
  } else {
    if (was_healthy) slot->failures_in_a_row = 0;
    ++slot->restarts;
    back_off(*slot);
  }
}

void AgentCore::State::expire(AgentEffects& out) {
  for (auto& [worker, slot] : slots) {
    if (slot.deadline > now) continue;
    switch (slot.phase) {
      case Phase::starting:
        kill(worker, slot, "did not serve within " + to_string(config.start_timeout), out);
        break;
      case Phase::serving:
        kill(worker, slot, "no progress for " + to_string(config.silence_limit), out);
        break;
      case Phase::stopping:
        kill(worker, slot, "did not stop within " + to_string(config.stop_timeout), out);
        break;
      case Phase::backing_off:
        start(worker, slot, out);
        break;
      case Phase::failed:
        slot.deadline = kNever;
        break;
    }
  }
}

AgentCore::AgentCore(const AgentConfig& config) : state_(std::make_unique<State>(config)) {}
AgentCore::~AgentCore() = default;
AgentCore::AgentCore(AgentCore&&) noexcept = default;
AgentCore& AgentCore::operator=(AgentCore&&) noexcept = default;

void AgentCore::step(Time now, const AgentEvent& event, AgentEffects& out) {
  state_->now = std::max(state_->now, now);
  // The event first: a sign of life that comes together with its deadline counts.
  std::visit([&](const auto& e) { state_->on(e, out); }, event);
  state_->expire(out);
}

Time AgentCore::next_deadline() const {
  Time next = kNever;
  for (const auto& [worker, slot] : state_->slots) next = std::min(next, slot.deadline);
  return next;
}

std::vector<WorkerStatus> AgentCore::workers() const {
  std::vector<WorkerStatus> rows;
  for (const auto& [worker, slot] : state_->slots) {
    rows.push_back(
        {slot.spec, slot.generation, to_word(slot.phase), slot.restarts, slot.last_exit});
  }
  return rows;
}

}  // namespace infos
