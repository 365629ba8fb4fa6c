// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/transfer_thread.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "daemon/control/codec_kv.h"
#include "daemon/runtime/clock.h"
#include "daemon/runtime/transfer_shell.h"
#include "topology/base/log.h"
#include "transports/kv/unit.h"

namespace infos {
namespace {

constexpr Duration kBusyWait = milliseconds(5);   ///< a wake-up of a transport may be missed
constexpr Duration kIdleWait = milliseconds(50);  ///< peers that connect want progress
constexpr Duration kQuiesceLimit = seconds(1);
constexpr std::uint64_t kStampBytesPerTurn = 4u << 20;
constexpr std::uint32_t kLayerBits = 16;

}  // namespace

// ---- life ----

TransferThread::Shell::Shell(TransferLinks& links, const TransferOptions& options)
    : links_(links), options_(options), wake_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

Status TransferThread::Shell::prepare() {
  INFOS_TRY(options_.layout.validate());
  for (const std::byte* pool : options_.pools) {
    pools_.push_back(links_.find(pool));
    if (!pools_.back())
      return Error{ErrorCode::invalid_argument, "a KV pool does not lie in the links' memory"};
  }
  std::vector<const std::byte*> bases(options_.pools.begin(), options_.pools.end());
  std::vector<std::span<std::byte>> tables;
  for (std::uint32_t rank = 0; rank < options_.layout.ranks; ++rank) {
    const SharedMemory* table = INFOS_TRY(links_.allocate(stamp_table_bytes(options_.layout)));
    stamps_.push_back(table);
    tables.push_back(table->bytes);
  }
  staging_ = INFOS_TRY(links_.allocate(options_.staging_bytes));
  exporter_.emplace(INFOS_TRY(KvExporter::create(options_.layout, bases, tables)));
  mover_ = std::make_unique<KvMover>(options_.layout, options_.pools, staging_->bytes);
  TransferConfig config = options_.core;
  config.identity = identity_of(options_.model_name, options_.epoch, options_.layout);
  config.policy = options_.policy;
  config.may_differ = bridges(options_.policy);
  config.token_layer_bytes =
      std::max<std::uint64_t>(options_.layout.bytes_per_token() / options_.layout.layers, 1);
  core_ = std::make_unique<TransferCore>(config);
  thread_ = std::thread([this] { run(); });
  return {};
}

void TransferThread::Shell::stop() {
  stopping_ = true;
  wake();
  if (thread_.joinable()) thread_.join();
}

TransferThread::Shell::~Shell() {
  stop();
  mover_.reset();
  for (const SharedMemory* table : stamps_) links_.release(table->bytes.data());
  if (staging_) links_.release(staging_->bytes.data());
}

/// Nothing may touch our memory when it goes: fences and takes back what was granted. Requires: the
/// thread has ended. Returns: false when a peer does not let go in time.
bool TransferThread::Shell::quiesce() {
  // Outlives this function where a peer does not let go.
  const auto open = std::make_shared<std::size_t>(0);
  const auto done = [open] { --*open; };
  for (const auto& [lease, granted] : granted_)
    for (const Granted& one : granted) {
      ++*open;
      links_.transport(one.transport).revoke(one.grant, done);
    }
  granted_.clear();
  std::set<WorkerRef> peers;
  for (const auto& [fetch, attached] : attached_) peers.insert(attached.worker);
  for (const WorkerRef& peer : peers) {
    ++*open;
    links_.fence(peer, done);
  }
  const Time limit = monotonic_now() + kQuiesceLimit;
  while (*open > 0 && monotonic_now() < limit) {
    links_.progress();
    ::usleep(200);
  }
  return *open == 0;
}

// ---- any thread ----

void TransferThread::Shell::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(wake_fd_.get(), &one, sizeof one);
}

void TransferThread::Shell::attach(Loop loop) {
  const std::lock_guard lock(loop_mutex_);
  loop_ = std::move(loop);
}

void TransferThread::Shell::put(std::variant<TransferEvent, TransferStep> item) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(item));
  }
  if (asleep_.exchange(false)) wake();
}

void TransferThread::Shell::take(std::vector<WorkerEvent>& answers) {
  if (!answered_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  for (WorkerEvent& answer : answers_) answers.push_back(std::move(answer));
  answers_.clear();
  answered_.store(false, std::memory_order_release);
}

void TransferThread::Shell::step_begins(std::vector<LayersReady> exports) {
  put(TransferStep{next_serial(), std::move(exports)});
}

/// Layers that are done from here on belong to another step than those before.
std::uint64_t TransferThread::Shell::next_serial() {
  const std::uint64_t serial = (layer_clock_.load() >> kLayerBits) + 1;
  layer_clock_.store(serial << kLayerBits);
  return serial;
}

void TransferThread::Shell::step_ends() { next_serial(); }

void TransferThread::Shell::layer_done(std::uint32_t layer) {
  const std::uint64_t serial = layer_clock_.load() >> kLayerBits;
  layer_clock_.store(serial << kLayerBits | (layer + 1));
  if (asleep_.load() && asleep_.exchange(false)) wake();
}

// ---- the transfer thread ----

void TransferThread::Shell::answer(WorkerEvent event) {
  {
    const std::lock_guard lock(mutex_);
    answers_.push_back(std::move(event));
    answered_.store(true, std::memory_order_release);
  }
  const std::lock_guard lock(loop_mutex_);
  if (loop_.wake) loop_.wake();
}

void TransferThread::Shell::feed(const TransferEvent& event) {
  effects_.clear();
  core_->step(monotonic_now(), event, effects_);
  // An effect's answer is queued, so effects_ stays as it is.
  for (TransferEffect& effect : effects_) perform(effect);
}

void TransferThread::Shell::look_at_layers() {
  const std::uint64_t clock = layer_clock_.load();
  const auto layers = static_cast<std::uint32_t>(clock & ((1u << kLayerBits) - 1));
  if (clock >> kLayerBits != step_.serial || layers <= layers_told_) return;
  layers_told_ = layers;
  for (LayersReady ready : step_.exports) {
    ready.layers = layers;
    feed(ready);
  }
}

/// Hashes a bounded part of what is to be stamped: transports must not wait for long prompts.
bool TransferThread::Shell::stamp_some() {
  if (stamp_jobs_.empty()) return false;
  std::uint64_t bytes = 0;
  while (!stamp_jobs_.empty() && bytes < kStampBytesPerTurn) {
    StampJob& job = stamp_jobs_.front();
    if (job.next == job.wish.blocks.size()) {
      queue_.push_back(Stamped{job.wish.id});
      stamp_jobs_.pop_front();
      continue;
    }
    const SourceBlock& block = job.wish.blocks[job.next++];
    exporter_->stamp({block.block, block.generation.value, block.tokens, job.wish.layer_begin,
                      job.wish.layer_end});
    bytes += unit_bytes(options_.layout) * options_.layout.ranks *
             (job.wish.layer_end - job.wish.layer_begin);
  }
  return true;
}

/// Returns: whether there may be more to do at once.
bool TransferThread::Shell::turn() {
  arrived_.clear();
  {
    const std::lock_guard lock(mutex_);
    arrived_.swap(inbox_);
  }
  bool worked = !arrived_.empty();
  for (auto& item : arrived_) {
    if (auto* step = std::get_if<TransferStep>(&item)) {
      step_ = std::move(*step);
      layers_told_ = 0;
    } else {
      const auto& event = std::get<TransferEvent>(item);
      feed(event);
      // Its links are of no more use, whether the core waits for a fence of them or not.
      if (const auto* gone = std::get_if<PeerGone>(&event)) fence(gone->peer, [] {});
    }
  }
  look_at_layers();
  worked = stamp_some() || worked;
  worked = links_.progress() || worked;
  while (!queue_.empty()) {
    const TransferEvent event = std::move(queue_.front());
    queue_.pop_front();
    feed(event);
    worked = true;
  }
  if (monotonic_now() >= core_->next_deadline()) feed(Tick{});
  return worked;
}

void TransferThread::Shell::wait() {
  asleep_.store(true);
  fds_.clear();
  const bool idle = links_.arm(fds_);
  const std::uint64_t clock = layer_clock_.load();
  const bool layers = clock >> kLayerBits == step_.serial && !step_.exports.empty() &&
                      (clock & ((1u << kLayerBits) - 1)) > layers_told_;
  bool empty;
  {
    const std::lock_guard lock(mutex_);
    empty = inbox_.empty();
  }
  if (idle && empty && !layers && !stopping_) {
    const bool busy = !attached_.empty() || !granted_.empty() || links_.in_use();
    const Duration until = core_->next_deadline() - monotonic_now();
    const Duration most = std::clamp(until, Duration{0}, busy ? kBusyWait : kIdleWait);
    std::vector<pollfd>& fds = polled_;
    fds.assign(1, {wake_fd_.get(), POLLIN, 0});
    for (const int fd : fds_) fds.push_back({fd, POLLIN, 0});
    ::poll(fds.data(), fds.size(), static_cast<int>((most.ns + 999'999) / 1'000'000));
  }
  asleep_.store(false);
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_fd_.get(), &count, sizeof count);
}

void TransferThread::Shell::run() {
  while (!stopping_)
    if (!turn()) wait();
}

// ---- the door ----

TransferThread::TransferThread(std::unique_ptr<Shell> shell) : shell_(std::move(shell)) {}
TransferThread::~TransferThread() {
  shell_->stop();
  // What may still be called is left alive; the process is about to end.
  if (!shell_->quiesce()) static_cast<void>(shell_.release());
}

Result<std::unique_ptr<TransferThread>> TransferThread::start(TransferLinks& links,
                                                              const TransferOptions& options) {
  auto shell = std::make_unique<Shell>(links, options);
  INFOS_TRY(shell->prepare());
  return std::unique_ptr<TransferThread>(new TransferThread(std::move(shell)));
}

void TransferThread::attach(Loop loop) { shell_->attach(std::move(loop)); }
void TransferThread::give(TransferEvent event) { shell_->put(std::move(event)); }
void TransferThread::give_letter(KvLetter letter) {
  auto message = decode_kv_message(letter.body);
  if (message.ok())
    shell_->put(TransferEvent(KvReceived{letter.from, *std::move(message)}));
  else
    log_warn("transfer", "a letter makes no sense",
             {{"from", letter.from.worker.value}, {"why", message.error().message}});
}
void TransferThread::take(std::vector<WorkerEvent>& answers) { shell_->take(answers); }
void TransferThread::step_begins(std::vector<LayersReady> exports) {
  shell_->step_begins(std::move(exports));
}
void TransferThread::step_ends() { shell_->step_ends(); }
void TransferThread::layer_done(std::uint32_t layer) { shell_->layer_done(layer); }

}  // namespace infos
