// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/plan.h"

namespace infos {

const char* to_string(WorkerRole role) {
  switch (role) {
    case WorkerRole::aggregated:
      return "aggregated";
    case WorkerRole::prefill:
      return "prefill";
    case WorkerRole::decode:
      return "decode";
  }
  return "unknown";
}

std::vector<WorkerSpec> part_of(const Plan& plan, NodeId node) {
  std::vector<WorkerSpec> part;
  for (const PlannedWorker& worker : plan.workers)
    if (worker.node == node) part.push_back(worker.spec);
  return part;
}

}  // namespace infos
