// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/worker_loop.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "daemon/control/codec.h"
#include "daemon/runtime/clock.h"
#include "daemon/runtime/frame.h"
#include "daemon/runtime/mailbox.h"
#include "topology/base/log.h"

namespace infos {
namespace {

constexpr std::size_t kMailboxMessagesMax = 4096;
constexpr std::size_t kReadBytes = 64u << 10;

template <typename... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};

/// Who still wants the step that runs. A step of long prompts may take seconds: once all of its
/// requests are cancelled it must not hold their blocks to its end.
class WantedStep {
 public:
  /// Loop's thread, around Engine::step.
  void begins(const RunStep& step) {
    const std::lock_guard lock(mutex_);
    for (const StepSequence& sequence : step.sequences) requests_.insert(sequence.request);
  }
  void has_ended() {
    const std::lock_guard lock(mutex_);
    requests_.clear();
  }
  /// Reader's thread. The engine is told under the lock: it is this step that is given up, and no
  /// later one.
  void cancel(RequestId request, Engine& engine) {
    const std::lock_guard lock(mutex_);
    if (requests_.erase(request) > 0 && requests_.empty()) engine.cancel();
  }

 private:
  std::mutex mutex_;
  std::set<RequestId> requests_;
};

/// The way to the supervisor, for the loop's thread and the transfer thread.
class WorkerSocket {
 public:
  WorkerSocket(int fd, Generation generation) : fd_(fd), generation_(generation) {}

  /// Whole frames, one after the other.
  void send(const FromWorker& message) {
    if (gone_) return;
    const std::lock_guard lock(mutex_);
    frame_.clear();
    append_frame(frame_, generation_, encode(message));
    std::string_view rest = frame_;
    while (!rest.empty()) {
      const ssize_t put = ::send(fd_, rest.data(), rest.size(), MSG_NOSIGNAL);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) {
        gone_ = true;
        return;
      }
      rest.remove_prefix(static_cast<std::size_t>(put));
    }
  }
  /// Nobody is at the other end.
  bool gone() const { return gone_; }

 private:
  const int fd_;
  const Generation generation_;
  std::mutex mutex_;
  std::string frame_;
  std::atomic<bool> gone_{false};
};

}  // namespace

struct WorkerChannel::State {
  State(UniqueFd fd, Generation g)
      : socket(std::move(fd)), generation(g), inbox(kMailboxMessagesMax) {}

  UniqueFd socket;
  Generation generation;
  Mailbox<ToWorker> inbox;
  std::atomic<bool> broken{false};       ///< the peer broke the protocol
  std::atomic<Engine*> engine{nullptr};  ///< null while loading
  std::atomic<TransferPort*> transfer{nullptr};
  std::atomic<std::int64_t> leave_limit_ns{0};
  std::atomic<bool> ended{false};  ///< the loop has returned
  WantedStep wanted_step;
  std::thread reader;

  void read_all();
  bool take(std::string_view bytes, FrameReader& frames);
  void pass_on(ToWorker message);
  void leave_for_sure();
  void finish();
};

// ---- reader thread ----

/// False when the stream is over.
bool WorkerChannel::State::take(std::string_view bytes, FrameReader& frames) {
  frames.append(bytes);
  while (true) {
    auto frame = frames.next();
    if (frame.ok() && !frame->has_value()) return true;
    auto message =
        frame.ok() ? decode_to_worker(**frame) : Result<ToWorker>(std::move(frame).error());
    if (!message.ok()) {
      log_error("worker", "the supervisor's words make no sense",
                {{"why", message.error().message}});
      broken = true;
      return false;
    }
    // Nothing runs while the model loads: there is nothing to drain.
    if (std::holds_alternative<Drain>(*message) && !engine.load()) ::_exit(0);
    if (std::holds_alternative<KvLetter>(*message) || std::holds_alternative<PeerGone>(*message)) {
      pass_on(*std::move(message));
      continue;
    }
    const auto* cancel = std::get_if<Cancel>(&*message);
    const RequestId cancelled = cancel ? cancel->request : RequestId{};
    inbox.push(*std::move(message));
    // After the push: when the step fails, the core must know already that nobody wants it.
    Engine* running = engine.load();
    if (cancelled && running) wanted_step.cancel(cancelled, *running);
  }
}

/// Straight to the transfer thread: the loop may be computing. While the model loads, or without
/// transfers, nobody waits for these.
void WorkerChannel::State::pass_on(ToWorker message) {
  TransferPort* port = transfer.load();
  if (!port) return;
  if (auto* letter = std::get_if<KvLetter>(&message)) port->give_letter(std::move(*letter));
  if (auto* gone = std::get_if<PeerGone>(&message)) port->give(*gone);
}

void WorkerChannel::State::read_all() {
  FrameReader frames(generation);
  std::array<char, kReadBytes> buffer;
  while (true) {
    const ssize_t got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || !take({buffer.data(), static_cast<std::size_t>(got)}, frames)) break;
  }
  inbox.close();
  if (!ended) leave_for_sure();
}

/// The supervisor is gone: the process must end soon, whatever the engine does.
void WorkerChannel::State::leave_for_sure() {
  Engine* running = engine.load();
  if (!running) ::_exit(0);
  running->cancel();
  const Time limit = monotonic_now() + Duration{leave_limit_ns.load()};
  while (!ended && monotonic_now() < limit) ::usleep(1000);
  if (!ended) ::_exit(0);
}

/// Ends the reader. Idempotent.
void WorkerChannel::State::finish() {
  ended = true;
  inbox.close();
  ::shutdown(socket.get(), SHUT_RD);
  if (reader.joinable()) reader.join();
}

// ---- loop thread ----

namespace {

class Loop {
 public:
  struct Link {
    Mailbox<ToWorker>& inbox;
    WantedStep& wanted_step;
    WorkerSocket& socket;
  };
  Loop(Link link, Engine& engine, const WorkerLoopOptions& options, StatusPage& page,
       RecordingFile* recording)
      : inbox_(link.inbox),
        wanted_step_(link.wanted_step),
        socket_(link.socket),
        engine_(engine),
        options_(options),
        page_(page),
        recording_(recording),
        core_(options.core) {}

  WorkerLoopEnd run();

 private:
  void feed(const WorkerEvent& event);
  void perform();
  void run_step();
  template <typename Wish>
  void transfer(Wish&& wish);
  void tell_exports(const RunStep& step);
  void publish_load(const WorkerLoad& load);
  void turn();

  Mailbox<ToWorker>& inbox_;
  WantedStep& wanted_step_;
  WorkerSocket& socket_;
  Engine& engine_;
  const WorkerLoopOptions& options_;
  StatusPage& page_;
  RecordingFile* recording_;
  WorkerCore core_;
  WorkerEffects effects_;
  std::vector<ToWorker> messages_;
  std::vector<WorkerEvent> answers_;
  std::vector<EngineSequence> batch_;
  std::optional<RunStep> pending_;
  std::map<RequestId, EffectId> exports_;  ///< that somebody may read while they are computed
  bool drained_ = false;
};

void Loop::feed(const WorkerEvent& event) {
  const Time now = monotonic_now();
  effects_.clear();
  core_.step(now, event, effects_);
  if (recording_) recording_->step(options_.worker.value, now, event, effects_);
  perform();
}

void Loop::perform() {
  for (WorkerEffect& effect : effects_) {
    std::visit(Overloaded{
                   [&](OpenSequence& e) {
                     engine_.open_sequence(e.request, e.tokens, e.prompt_tokens, e.sampling);
                   },
                   [&](CloseSequence& e) { engine_.close_sequence(e.request); },
                   [&](RunStep& e) {
                     INFOS_CHECK(!pending_);
                     pending_ = std::move(e);
                   },
                   [&](Report& e) {
                     publish_load(e.report.load);
                     socket_.send(std::move(e.report));
                   },
                   [&](Drained&) { drained_ = true; },
                   [&](auto& e) { transfer(std::move(e)); },
               },
               effect);
  }
}

/// What is not fetched is computed; without a transfer thread that is all.
template <typename Wish>
void Loop::transfer(Wish&& wish) {
  using Kind = std::decay_t<Wish>;
  if constexpr (std::is_same_v<Kind, ExportKv>) exports_[wish.request] = wish.id;
  if (options_.transfer) return options_.transfer->give(std::forward<Wish>(wish));
  if constexpr (std::is_same_v<Kind, FetchKv>)
    answers_.push_back(FetchDone{wish.id, 0, "no transport"});
  if constexpr (std::is_same_v<Kind, ExportKv>) answers_.push_back(ExportDone{wish.id});
}

/// Lets the transfer thread know whose layers the engine is about to finish.
void Loop::tell_exports(const RunStep& step) {
  std::vector<LayersReady> told;
  for (const StepSequence& s : step.sequences) {
    const auto at = exports_.find(s.request);
    if (at == exports_.end()) continue;
    told.push_back(
        {at->second, s.start + static_cast<std::uint32_t>(s.tokens.size()), 0, s.blocks});
  }
  options_.transfer->step_begins(std::move(told));
}

/// Runs the step that the core wished for and answers it. What arrived meanwhile is told first, so
/// that the next step can hold it.
void Loop::run_step() {
  const RunStep step = *std::exchange(pending_, std::nullopt);
  batch_.clear();
  std::size_t draws = 0;
  for (const StepSequence& s : step.sequences) {
    batch_.push_back({s.request, s.tokens, s.start, s.blocks, s.sample, s.index});
    draws += s.sample ? 1 : 0;
  }
  const Time started = monotonic_now();
  page_->step_started_ns.store(static_cast<std::uint64_t>(started.ns), std::memory_order_relaxed);
  wanted_step_.begins(step);
  const bool exporting = options_.transfer && !exports_.empty();
  if (exporting) tell_exports(step);
  auto sampled = engine_.step(batch_);
  if (exporting) options_.transfer->step_ends();
  wanted_step_.has_ended();
  const Duration took = monotonic_now() - started;
  page_->step_started_ns.store(0, std::memory_order_relaxed);
  page_->steps.fetch_add(1, std::memory_order_relaxed);
  turn();
  if (!sampled.ok()) {
    if (sampled.error().code != ErrorCode::cancelled)
      log_error("worker", "a step failed",
                {{"step", step.id.value}, {"why", sampled.error().message}});
    return feed(StepFailed{step.id, sampled.error().message});
  }
  INFOS_CHECK(sampled->size() == draws);
  feed(StepDone{step.id, *std::move(sampled), took});
}

void Loop::publish_load(const WorkerLoad& load) {
  page_->kv_blocks_used.store(load.kv_blocks_used, std::memory_order_relaxed);
  page_->kv_blocks_total.store(load.kv_blocks_total, std::memory_order_relaxed);
  page_->running.store(load.running, std::memory_order_relaxed);
  page_->waiting.store(load.waiting, std::memory_order_relaxed);
}

/// Tells the core what came in.
void Loop::turn() {
  page_->beat.fetch_add(1, std::memory_order_relaxed);
  if (options_.transfer) options_.transfer->take(answers_);
  for (const WorkerEvent& answer : std::exchange(answers_, {})) {
    if (const auto* done = std::get_if<ExportDone>(&answer))
      std::erase_if(exports_, [&](const auto& e) { return e.second == done->id; });
    feed(answer);
  }
  messages_.clear();
  inbox_.drain(messages_);
  for (ToWorker& message : messages_) {
    if (std::holds_alternative<Drain>(message)) page_.set_phase(WorkerPhase::draining);
    std::visit(
        [&](auto& m) {
          if constexpr (std::is_constructible_v<WorkerEvent, decltype(m)>) feed(std::move(m));
        },
        message);
  }
}

WorkerLoopEnd Loop::run() {
  if (recording_) recording_->start(options_.worker.value, options_.core);
  WorkerReady ready{
      options_.model, engine_.device_name(), options_.core.max_context,  options_.core.block_tokens,
      core_.load(),   options_.role,         options_.kv_bytes_per_token};
  publish_load(ready.load);
  page_.set_phase(WorkerPhase::serving);
  socket_.send(ready);
  while (!socket_.gone() && !inbox_.closed()) {
    turn();
    if (pending_) {
      run_step();
      continue;
    }
    if (!answers_.empty()) continue;
    if (drained_) return WorkerLoopEnd::drained;
    const Time now = monotonic_now();
    if (now >= core_.next_deadline())
      feed(Tick{});
    else
      inbox_.wait_for(std::min(options_.beat_interval, core_.next_deadline() - now));
  }
  return WorkerLoopEnd::supervisor_gone;
}

}  // namespace

WorkerChannel::WorkerChannel(UniqueFd socket, Generation generation)
    : state_(std::make_unique<State>(std::move(socket), generation)) {
  state_->reader = std::thread([state = state_.get()] { state->read_all(); });
}

WorkerChannel::~WorkerChannel() { state_->finish(); }

WorkerLoopEnd WorkerChannel::run(Engine& engine, const WorkerLoopOptions& options, StatusPage& page,
                                 RecordingFile* recording) {
  state_->leave_limit_ns = options.leave_limit.ns;
  state_->engine = &engine;
  WorkerSocket socket(state_->socket.get(), options.generation);
  if (options.transfer) {
    options.transfer->attach({[&socket](KvLetter letter) { socket.send(std::move(letter)); },
                              [this] { state_->inbox.poke(); }});
    engine.on_layer_done([&options](std::uint32_t layer) { options.transfer->layer_done(layer); });
    state_->transfer = options.transfer;
  }
  const WorkerLoopEnd end =
      Loop({state_->inbox, state_->wanted_step, socket}, engine, options, page, recording).run();
  state_->finish();
  if (options.transfer) {
    engine.on_layer_done({});
    options.transfer->attach({});
  }
  return state_->broken ? WorkerLoopEnd::protocol_error : end;
}

}  // namespace infos
