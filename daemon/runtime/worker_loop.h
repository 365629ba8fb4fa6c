// SPDX-License-Identifier: Apache-2.0
// The worker's shell: WorkerCore and the engine on one thread, so that nothing lies between the end
// of a step and the start of the next; a second thread reads the socket. Owns the order of effects;
// decides nothing.
#pragma once

#include <memory>
#include <string>

#include "daemon/control/worker_core.h"
#include "daemon/runtime/recording_file.h"
#include "daemon/runtime/status_page.h"
#include "daemon/runtime/transfer_port.h"
#include "daemon/runtime/unique_fd.h"
#include "devices/engine/engine.h"

namespace infos {

struct WorkerLoopOptions {
  Generation generation;
  WorkerId worker;    ///< its instance in recordings
  std::string model;  ///< the name it serves, for WorkerReady
  WorkerConfig core;  ///< complete: kv_blocks and max_context too
  WorkerRole role = WorkerRole::aggregated;
  std::uint64_t kv_bytes_per_token = 0;
  TransferPort* transfer = nullptr;            ///< null: nothing is fetched or exported
  Duration beat_interval = milliseconds(250);  ///< how often an idle loop turns
  Duration leave_limit =
      seconds(2);  ///< from a closed socket to the end of the process, whatever runs
};

/// How a loop ended.
enum class WorkerLoopEnd { drained, supervisor_gone, protocol_error };

/// Reads the socket from construction on: a worker told to stop, or left alone, while it still
/// loads ends its process.
class WorkerChannel {
 public:
  WorkerChannel(UniqueFd socket, Generation generation);
  ~WorkerChannel();
  WorkerChannel(const WorkerChannel&) = delete;
  WorkerChannel& operator=(const WorkerChannel&) = delete;

  /// Events go into `recording` too unless it is null. Says WorkerReady, then serves until a drain
  /// is complete or the supervisor is gone. Once.
  WorkerLoopEnd run(Engine& engine, const WorkerLoopOptions& options, StatusPage& page,
                    RecordingFile* recording);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace infos
