// SPDX-License-Identifier: Apache-2.0
// The shell of AgentCore: starts worker processes, carries frames to and from them, watches them
// through pidfds and status pages, and tells the listener who serves. Runs on the one thread of its
// io_context, which must live as long as the process (workers die with the thread that started
// them). Decides nothing about restarts: AgentCore does.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/control/agent_core.h"
#include "daemon/control/gateway_core.h"
#include "daemon/runtime/status_page.h"

namespace boost::asio {
class io_context;
}

namespace infos {

struct SupervisorOptions {
  AgentConfig agent;
  std::string executable = "/proc/self/exe";  ///< run as `executable worker ...`
  std::string record;  ///< workers write their recordings to `record`.worker-N.G; empty: none
  std::string log_level = "info";
  std::string log_format = "text";
  std::size_t unsent_bytes_max = 256u
                                 << 20;  ///< a worker that leaves more than this unread is killed
};

/// Who hears of workers. Called on the supervisor's thread; may call send(), nothing else of the
/// supervisor.
class WorkerListener {
 public:
  virtual ~WorkerListener() = default;
  virtual void worker_up(WorkerId worker, Generation generation, const WorkerReady& ready) = 0;
  virtual void worker_down(WorkerId worker, Generation generation, const std::string& why) = 0;
  virtual void worker_said(WorkerId worker, Generation generation, StepReport report) = 0;
  /// A worker writes to another one, here or on another node. `from` is true.
  virtual void worker_letter(KvLetter letter) { static_cast<void>(letter); }
  /// The last worker of a model that might have served it gave up for good.
  virtual void model_failed(const std::string& model) { static_cast<void>(model); }
};

/// One worker as `infos get workers` shows it.
struct WorkerRow {
  WorkerStatus status;
  std::int64_t pid = 0;                       ///< 0: no process
  WorkerPhase phase = WorkerPhase::starting;  ///< as the process itself shows it; needs pid
  std::uint64_t loaded_bytes = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t steps = 0;
  std::uint64_t kv_blocks_used = 0;
  std::uint64_t kv_blocks_total = 0;
  std::uint64_t running = 0;
  std::uint64_t waiting = 0;
};

class Supervisor {
 public:
  Supervisor(boost::asio::io_context& io, SupervisorOptions options, WorkerListener& listener);
  /// Kills and reaps what still runs.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// The whole wish; replaces the last one.
  void set_desired(std::vector<WorkerSpec> workers);
  /// Lost without a word when that process is gone.
  void send(const SendWorker& message);
  /// Wishes for no worker and calls `done` when the last process has been reaped.
  void stop(std::function<void()> done);
  std::vector<WorkerRow> workers() const;
  /// Called after each step of the core, for recordings. It must not call back.
  void on_step(std::function<void(Time, const AgentEvent&, const AgentEffects&)> tap);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with handlers that the io_context still holds
};

}  // namespace infos
