// SPDX-License-Identifier: Apache-2.0
#include "daemon/infosd/worker_main.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "daemon/runtime/transfer_layout.h"
#include "daemon/runtime/transfer_thread.h"
#include "daemon/runtime/worker_args.h"
#include "daemon/runtime/worker_exit.h"
#include "daemon/runtime/worker_loop.h"
#include "devices/engine/checkpoint.h"
#include "devices/engine/engine.h"
#include "topology/base/log.h"

namespace infos {
namespace {

/// The supervisor alone decides when a worker ends: signals that a terminal or a service manager
/// sends to the whole group are its to act on, and its death is the worker's.
void tie_to_parent() {
  ::signal(SIGINT, SIG_IGN);
  ::signal(SIGTERM, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/// Whether trying again with the same files and options can help.
bool is_permanent(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::not_found:
    case ErrorCode::corrupt:
    case ErrorCode::unsupported:
      return true;
    default:
      return false;
  }
}

int give_up(StatusPage& page, const Error& error) {
  page.set_failure(error.message);
  page.set_phase(WorkerPhase::failed);
  log_error("worker", "gives up", {{"why", error.message}});
  return is_permanent(error.code) ? kExitPermanent : kExitTransient;
}

/// Reads the weights into memory once, in order, showing progress; what the engine then touches is
/// there. Weights that do not fit are left to the kernel.
void warm_up(const Checkpoint& checkpoint, StatusPage& page) {
  constexpr std::size_t kPieceBytes = 1u << 20;
  constexpr std::size_t kPageBytes = 4096;
  std::uint64_t total = 0;
  for (const TensorView& tensor : checkpoint.tensors()) total += tensor.data.size();
  page->total_bytes.store(total, std::memory_order_relaxed);
  const auto memory_bytes =
      static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  if (total > memory_bytes / 4 * 3) return;
  unsigned sum = 0;
  for (const TensorView& tensor : checkpoint.tensors()) {
    for (std::size_t begin = 0; begin < tensor.data.size(); begin += kPieceBytes) {
      const std::size_t end = std::min(begin + kPieceBytes, tensor.data.size());
      for (std::size_t i = begin; i < end; i += kPageBytes)
        sum += std::to_integer<unsigned>(tensor.data[i]);
      page->loaded_bytes.fetch_add(end - begin, std::memory_order_relaxed);
    }
  }
  // Keeps the reads.
  [[maybe_unused]] static volatile unsigned sink = sum;
}

/// KV pools in memory that other workers can be let into.
KvAllocator allocator_of(TransferLinks& links) {
  return {[&links](std::uint32_t, Bytes bytes) -> void* {
            auto memory = links.allocate(bytes.value);
            if (memory.ok()) return (*memory)->bytes.data();
            log_error("worker", "no memory for KV", {{"why", memory.error().message}});
            return nullptr;
          },
          [&links](std::uint32_t, void* memory, Bytes) { links.release(memory); }};
}

/// Null, with a line in the log, when there is no transport at all.
std::unique_ptr<TransferLinks> open_links(const WorkerSettings& settings) {
  auto links = TransferLinks::open(settings.links);
  if (links.ok()) return *std::move(links);
  log_error("worker", "serves without KV transfers", {{"why", links.error().message}});
  return nullptr;
}

/// Null, with a line in the log, when this worker can neither fetch KV nor let others: it then
/// computes everything itself.
std::unique_ptr<TransferThread> start_transfers(const WorkerArgs& args,
                                                const WorkerSettings& settings,
                                                const Checkpoint& checkpoint, const Engine& engine,
                                                TransferLinks& links) {
  const auto start = [&]() -> Result<std::unique_ptr<TransferThread>> {
    TransferOptions options;
    options.core.self = {args.spec.worker, args.generation};
    options.epoch = settings.epoch;
    options.model_name = args.spec.model;
    options.policy = settings.numerics;
    options.layout = INFOS_TRY(kv_layout_of(engine, checkpoint_identity(checkpoint),
                                            INFOS_TRY(backend_identity(settings.engine))));
    options.pools = kv_pools_of(engine);
    return TransferThread::start(links, options);
  };
  auto thread = start();
  if (thread.ok()) return *std::move(thread);
  log_error("worker", "serves without KV transfers", {{"why", thread.error().message}});
  return nullptr;
}

Result<WorkerLoopEnd> serve(const WorkerArgs& args, WorkerChannel& channel, StatusPage& page) {
  WorkerSettings settings = INFOS_TRY(parse_worker_options(args.spec.options));
  settings.engine.backend = args.spec.device;
  const std::unique_ptr<Checkpoint> checkpoint = INFOS_TRY(open_checkpoint(args.spec.source));
  warm_up(*checkpoint, page);
  // Before the engine, whose pools lie in its memory; the transfer thread after, and ended first.
  std::unique_ptr<TransferLinks> links;
  if (!settings.links.kinds.empty()) links = open_links(settings);
  if (links) settings.engine.kv_allocator = allocator_of(*links);
  const std::unique_ptr<Engine> engine = INFOS_TRY(Engine::open(*checkpoint, settings.engine));
  std::unique_ptr<TransferThread> transfer;
  if (links) transfer = start_transfers(args, settings, *checkpoint, *engine, *links);
  WorkerLoopOptions options;
  options.generation = args.generation;
  options.worker = args.spec.worker;
  options.model = args.spec.model;
  options.core = settings.core;
  options.core.kv_blocks = engine->kv_blocks();
  options.core.block_tokens = engine->block_tokens();
  options.core.max_context = engine->max_context();
  options.role = settings.role;
  options.transfer = transfer.get();
  for (const KvRank& rank : engine->kv_ranks())
    options.kv_bytes_per_token +=
        std::uint64_t{2} * rank.layers * rank.heads * rank.head_dim * block_shape(rank.dtype).bytes;
  std::unique_ptr<RecordingFile> recording;
  if (!args.record.empty()) {
    auto created = RecordingFile::create(args.record);
    if (created.ok())
      recording = *std::move(created);
    else
      log_error("worker", "serves without a recording", {{"why", created.error().message}});
  }
  return channel.run(*engine, options, page, recording.get());
}

}  // namespace

int worker_main(const std::vector<std::string>& argv) {
  tie_to_parent();
  auto args = parse_worker_args(argv);
  if (!args.ok()) {
    std::fprintf(stderr, "%s\n", args.error().message.c_str());
    return 2;
  }
  if (::getppid() != args->parent) return 0;  // it died before we were tied to it
  const auto level = parse_log_level(args->log_level);
  log_configure(level.ok() ? *level : LogLevel::info,
                args->log_format == "json" ? LogFormat::json : LogFormat::text);
  ::fcntl(args->socket_fd, F_SETFD, FD_CLOEXEC);
  ::fcntl(args->status_fd, F_SETFD, FD_CLOEXEC);
  auto page = StatusPage::open(UniqueFd(args->status_fd));
  if (!page.ok()) {
    log_error("worker", "gives up", {{"why", page.error().message}});
    return kExitTransient;
  }
  (*page)->pid.store(static_cast<std::uint64_t>(::getpid()));
  page->set_phase(WorkerPhase::loading);
  WorkerChannel channel(UniqueFd(args->socket_fd), args->generation);
  const auto end = serve(*args, channel, *page);
  if (!end.ok()) return give_up(*page, end.error());
  return *end == WorkerLoopEnd::protocol_error ? kExitTransient : 0;
}

}  // namespace infos
