// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/runtime/clock.h"
#include "daemon/runtime/worker_process.h"
#include "topology/base/log.h"

namespace infos {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

/// A step that computes is believed for this many silence limits.
constexpr std::int64_t kStepLimits = 20;

template <typename... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};

}  // namespace

struct Supervisor::State : std::enable_shared_from_this<Supervisor::State> {
  using Key = std::pair<WorkerId, Generation>;

  State(asio::io_context& c, SupervisorOptions o, WorkerListener& l)
      : io(c), options(std::move(o)), listener(&l), core(options.agent), timer(c) {}

  asio::io_context& io;
  const SupervisorOptions options;
  WorkerListener* listener;
  AgentCore core;
  asio::steady_timer timer;
  Time armed = kNever;
  Time next_sample = kNever;
  std::map<Key, std::shared_ptr<WorkerProcess>> processes;
  std::deque<AgentEvent> events;  ///< waits while a step's effects are performed
  bool stepping = false;
  std::function<void(Time, const AgentEvent&, const AgentEffects&)> tap;
  std::function<void()> when_empty;

  void feed(AgentEvent event);
  void perform(AgentEffect& effect);
  void spawn(Spawn& wish);
  void said(Key key, FromWorker message);
  void exited(Key key, WorkerEnd end);
  void tell_failed(WorkerId worker);
  void arm();
  void on_timer();
  void sample(Time now);
  Duration sample_interval() const;
  WorkerProcess* find(WorkerId worker, Generation generation) {
    const auto found = processes.find({worker, generation});
    return found == processes.end() ? nullptr : found->second.get();
  }
};

// ---- the core and its effects ----

/// Events that effects give rise to are told after all effects of the step have been performed.
void Supervisor::State::feed(AgentEvent event) {
  events.push_back(std::move(event));
  if (stepping) return;
  stepping = true;
  AgentEffects effects;
  while (!events.empty()) {
    const AgentEvent next = std::move(events.front());
    events.pop_front();
    const Time now = monotonic_now();
    effects.clear();
    core.step(now, next, effects);
    if (tap) tap(now, next, effects);
    for (AgentEffect& effect : effects) perform(effect);
  }
  stepping = false;
  arm();
}

void Supervisor::State::perform(AgentEffect& effect) {
  std::visit(
      Overloaded{
          [&](Spawn& e) { spawn(e); },
          [&](AskStop& e) {
            if (WorkerProcess* process = find(e.worker, e.generation))
              process->send(Drain{}, options.unsent_bytes_max);
          },
          [&](Kill& e) {
            if (WorkerProcess* process = find(e.worker, e.generation)) process->kill();
          },
          [&](AnnounceUp& e) { listener->worker_up(e.worker, e.generation, e.ready); },
          [&](AnnounceDown& e) {
            log_info(
                "supervisor", "a worker no longer serves",
                {{"worker", e.worker.value}, {"generation", e.generation.value}, {"why", e.why}});
            listener->worker_down(e.worker, e.generation, e.why);
          },
      },
      effect);
}

void Supervisor::State::spawn(Spawn& wish) {
  const Key key{wish.spec.worker, wish.generation};
  WorkerArgs args;
  args.generation = wish.generation;
  args.spec = std::move(wish.spec);
  args.log_level = options.log_level;
  args.log_format = options.log_format;
  if (!options.record.empty())
    args.record = fmt::format("{}.worker-{}.{}", options.record, key.first.value, key.second.value);
  WorkerProcess::Callbacks callbacks;
  callbacks.said = [weak = weak_from_this(), key](FromWorker message) {
    if (const auto self = weak.lock()) self->said(key, std::move(message));
  };
  callbacks.exited = [weak = weak_from_this(), key](WorkerEnd end) {
    if (const auto self = weak.lock()) self->exited(key, std::move(end));
  };
  const std::string model = args.spec.model;
  const Duration step_limit = options.agent.silence_limit * kStepLimits;
  auto process = WorkerProcess::start(io, options.executable, std::move(args), step_limit,
                                      std::move(callbacks));
  if (!process.ok()) {
    log_error("supervisor", "a worker could not be started",
              {{"worker", key.first.value},
               {"generation", key.second.value},
               {"why", process.error().message}});
    return feed(SpawnFailed{key.first, key.second, process.error().message});
  }
  log_info("supervisor", "a worker was started",
           {{"worker", key.first.value},
            {"generation", key.second.value},
            {"model", model},
            {"pid", (*process)->pid()}});
  processes[key] = *std::move(process);
  feed(WorkerSpawned{key.first, key.second});
}

void Supervisor::State::said(Key key, FromWorker message) {
  if (auto* report = std::get_if<StepReport>(&message))
    return listener->worker_said(key.first, key.second, std::move(*report));
  if (auto* letter = std::get_if<KvLetter>(&message)) {
    letter->from = {key.first, key.second};  // whatever it says: it speaks for itself alone
    return listener->worker_letter(std::move(*letter));
  }
  const WorkerReady& ready = std::get<WorkerReady>(message);
  log_info("supervisor", "a worker serves",
           {{"worker", key.first.value},
            {"generation", key.second.value},
            {"model", ready.model},
            {"device", ready.device},
            {"max_context", ready.max_context},
            {"kv_blocks", ready.load.kv_blocks_total}});
  feed(WorkerServing{key.first, key.second, ready});
}

/// If no worker of the model of this one may come up any more.
void Supervisor::State::tell_failed(WorkerId worker) {
  const std::vector<WorkerStatus> rows = core.workers();
  const auto own =
      std::ranges::find_if(rows, [&](const auto& row) { return row.spec.worker == worker; });
  if (own == rows.end()) return;
  const bool hope = std::ranges::any_of(rows, [&](const WorkerStatus& row) {
    return row.spec.model == own->spec.model && row.phase != "failed";
  });
  if (!hope) listener->model_failed(own->spec.model);
}

void Supervisor::State::exited(Key key, WorkerEnd end) {
  log_info("supervisor", "a worker has ended",
           {{"worker", key.first.value}, {"generation", key.second.value}, {"how", end.how}});
  processes.erase(key);
  feed(WorkerExited{key.first, key.second, std::move(end.how), end.permanent});
  if (end.permanent) tell_failed(key.first);
  if (processes.empty() && when_empty) std::exchange(when_empty, nullptr)();
}

// ---- time ----

/// Four looks per silence limit, at most one per second.
Duration Supervisor::State::sample_interval() const {
  return std::clamp(Duration{options.agent.silence_limit.ns / 4}, milliseconds(5), seconds(1));
}

void Supervisor::State::arm() {
  if (processes.empty())
    next_sample = kNever;
  else if (next_sample == kNever)
    next_sample = monotonic_now() + sample_interval();
  const Time wanted = std::min(core.next_deadline(), next_sample);
  if (wanted == armed) return;
  armed = wanted;
  if (wanted == kNever) {
    timer.cancel();
    return;
  }
  timer.expires_at(asio::steady_timer::time_point(std::chrono::nanoseconds(wanted.ns)));
  timer.async_wait([weak = weak_from_this()](error_code error) {
    const auto self = weak.lock();
    if (self && !error) self->on_timer();
  });
}

void Supervisor::State::on_timer() {
  armed = kNever;
  const Time now = monotonic_now();
  if (now >= next_sample) {
    next_sample = now + sample_interval();
    sample(now);
  }
  if (now >= core.next_deadline()) feed(AgentTick{});
  arm();
}

void Supervisor::State::sample(Time now) {
  std::vector<Key> moved;
  for (const auto& [key, process] : processes)
    if (process->moved(now)) moved.push_back(key);
  for (const Key& key : moved) feed(WorkerAlive{key.first, key.second});
}

// ---- the outside ----

Supervisor::Supervisor(asio::io_context& io, SupervisorOptions options, WorkerListener& listener)
    : state_(std::make_shared<State>(io, std::move(options), listener)) {}

Supervisor::~Supervisor() {
  state_->timer.cancel();
  for (const auto& [key, process] : state_->processes) process->abandon();
}

void Supervisor::set_desired(std::vector<WorkerSpec> workers) {
  state_->feed(Desired{std::move(workers)});
}

void Supervisor::send(const SendWorker& message) {
  if (WorkerProcess* process = state_->find(message.worker, message.generation))
    process->send(message.message, state_->options.unsent_bytes_max);
}

void Supervisor::stop(std::function<void()> done) {
  set_desired({});
  if (state_->processes.empty()) return done();
  state_->when_empty = std::move(done);
}

std::vector<WorkerRow> Supervisor::workers() const {
  std::vector<WorkerRow> rows;
  for (WorkerStatus& status : state_->core.workers()) {
    WorkerRow row{std::move(status)};
    if (const WorkerProcess* process =
            state_->find(row.status.spec.worker, row.status.generation)) {
      const infos_status_page& page = *process->page();
      row.pid = process->pid();
      row.phase = process->page().phase();
      row.loaded_bytes = page.loaded_bytes.load(std::memory_order_relaxed);
      row.total_bytes = page.total_bytes.load(std::memory_order_relaxed);
      row.steps = page.steps.load(std::memory_order_relaxed);
      row.kv_blocks_used = page.kv_blocks_used.load(std::memory_order_relaxed);
      row.kv_blocks_total = page.kv_blocks_total.load(std::memory_order_relaxed);
      row.running = page.running.load(std::memory_order_relaxed);
      row.waiting = page.waiting.load(std::memory_order_relaxed);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void Supervisor::on_step(std::function<void(Time, const AgentEvent&, const AgentEffects&)> tap) {
  state_->tap = std::move(tap);
}

}  // namespace infos
