// SPDX-License-Identifier: Apache-2.0
// The command line of `infosd worker`, written by the supervisor and read by the worker, and the
// meaning of a WorkerSpec's options. Pure.
#pragma once

#include <string>
#include <vector>

#include "daemon/control/agent_core.h"
#include "daemon/control/worker_core.h"
#include "daemon/runtime/transfer_links.h"
#include "devices/engine/engine.h"
#include "topology/base/result.h"
#include "topology/model/kv_layout.h"

namespace infos {

struct WorkerArgs {
  int socket_fd = -1;
  int status_fd = -1;
  std::int64_t parent =
      0;  ///< pid of the supervisor: a worker whose parent is another one is an orphan
  Generation generation;
  WorkerSpec spec;
  std::string record;  ///< recording to write; empty: none
  std::string log_level = "info";
  std::string log_format = "text";
};

/// Everything after the program's name, beginning with "worker".
std::vector<std::string> to_argv(const WorkerArgs& args);
/// Reads what to_argv wrote. Errors: invalid_argument, naming the argument.
Result<WorkerArgs> parse_worker_args(const std::vector<std::string>& argv);

/// What a WorkerSpec's options mean. kv_blocks and max_context of `core` are the opened engine's to
/// say.
struct WorkerSettings {
  EngineOptions engine;
  WorkerConfig core;
  WorkerRole role = WorkerRole::aggregated;
  TransferLinkOptions links;  ///< no kinds: KV is neither fetched nor exported
  KvPolicy numerics = KvPolicy::exact;
  Epoch epoch;
};
/// Errors: invalid_argument, naming option, value and the values allowed.
Result<WorkerSettings> parse_worker_options(const std::map<std::string, std::string>& options);

}  // namespace infos
