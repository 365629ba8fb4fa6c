// SPDX-License-Identifier: Apache-2.0
// The page of memory that a worker shares with its supervisor: what it does right now, readable
// without asking it and after its death. The worker writes, the supervisor reads; every field is
// one atomic word, torn reads of two fields are harmless. Never holds anything that decides: the
// socket does that.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/runtime/unique_fd.h"
#include "topology/base/result.h"

namespace infos {

/// What the worker process is doing.
enum class WorkerPhase : std::uint64_t {
  starting = 0,
  loading = 1,
  serving = 2,
  draining = 3,
  failed = 4
};
const char* to_string(WorkerPhase phase);

constexpr std::uint64_t kStatusPageMagic = 0x31'67'70'73'6f'66'6e'69;  // "infospg1"

/// The layout. Grows at its end only; `size` says how much the worker's build knows.
struct infos_status_page {
  std::atomic<std::uint64_t> magic;
  std::atomic<std::uint64_t> size;  ///< bytes of this struct in the writer's build
  std::atomic<std::uint64_t> pid;
  std::atomic<std::uint64_t> phase;  ///< WorkerPhase
  std::atomic<std::uint64_t>
      beat;  ///< counts turns of the loop: grows a few times per second even when idle
  std::atomic<std::uint64_t> steps;            ///< engine steps finished
  std::atomic<std::uint64_t> step_started_ns;  ///< monotonic; 0: no step is running
  std::atomic<std::uint64_t> loaded_bytes;     ///< of the checkpoint, while loading
  std::atomic<std::uint64_t> total_bytes;
  std::atomic<std::uint64_t> kv_blocks_used;
  std::atomic<std::uint64_t> kv_blocks_total;
  std::atomic<std::uint64_t> running;
  std::atomic<std::uint64_t> waiting;
  std::atomic<std::uint64_t> failure_bytes;  ///< length of `failure`, stored after its text
  char failure[1024];                        ///< why the process gives up, one sentence
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// The mapped page.
class StatusPage {
 public:
  /// A fresh page, sealed against being made shorter. Errors: io.
  static Result<StatusPage> create();
  /// The page behind a descriptor that was inherited. Errors: io, corrupt (foreign magic or size).
  static Result<StatusPage> open(UniqueFd fd);
  StatusPage(StatusPage&& other) noexcept;
  StatusPage& operator=(StatusPage&& other) noexcept;
  ~StatusPage();

  infos_status_page& operator*() const { return *page_; }
  infos_status_page* operator->() const { return page_; }
  int fd() const { return fd_.get(); }

  void set_phase(WorkerPhase phase) {
    page_->phase.store(static_cast<std::uint64_t>(phase), std::memory_order_relaxed);
  }
  WorkerPhase phase() const;
  /// Cut to what fits.
  void set_failure(std::string_view message);
  /// Empty: none was given. Never trusts the length in the page.
  std::string failure() const;

 private:
  StatusPage(UniqueFd fd, infos_status_page* page) : fd_(std::move(fd)), page_(page) {}
  UniqueFd fd_;
  infos_status_page* page_ = nullptr;
};

}  // namespace infos
