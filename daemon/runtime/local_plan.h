// SPDX-License-Identifier: Apache-2.0
// local_plan: which workers one node runs for a spec. Pure. Places nothing across nodes: that is
// the planner's.
#pragma once

#include <string>
#include <vector>

#include "daemon/control/agent_core.h"
#include "topology/base/result.h"
#include "topology/spec/spec.h"

namespace infos {

/// A worker of `previous` that serves the same replica of the same model keeps its id, so that an
/// unchanged replica is not restarted. Errors: unsupported (more than this node can do alone),
/// invalid_argument; all of them, one a line, each with its place in `file_names`.
Result<std::vector<WorkerSpec>> local_plan(const SpecSet& spec,
                                           const std::vector<WorkerSpec>& previous,
                                           const std::vector<std::string>& file_names);

}  // namespace infos
