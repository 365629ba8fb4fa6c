// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/local_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "daemon/control/plan_wish.h"
#include "daemon/runtime/worker_args.h"

namespace infos {
namespace {

/// Lines that say which Clusters have other nodes.
std::string other_nodes(const SpecSet& spec, const std::vector<std::string>& files) {
  std::string errors;
  for (const ClusterSpec& cluster : spec.clusters) {
    if (cluster.nodes.size() <= 1) continue;
    const SpecPlace& place = cluster.nodes[1].place;
    errors += fmt::format("{}{}:{}:{}: {} nodes: this infosd is of no cluster and serves on one",
                          errors.empty() ? "" : "\n",
                          place.file < files.size() ? files[place.file] : "spec", place.line,
                          place.column, cluster.nodes.size());
  }
  return errors;
}

/// The workers of one model, without their ids, pool by pool.
std::vector<WorkerSpec> workers_of(const ModelWish& model) {
  std::vector<WorkerSpec> out;
  for (const PoolWish& pool : model.pools) {
    std::vector<DeviceWish> devices = pool.devices;
    if (devices.empty()) devices.push_back({"", "", pool.backend, {}});
    for (const DeviceWish& device : devices) {
      WorkerSpec spec{WorkerId{}, model.name, model.source, device.backend, pool.options};
      for (const auto& [key, value] : device.options) spec.options[key] = value;
      out.insert(out.end(), pool.replicas, spec);
    }
  }
  return out;
}

}  // namespace

Result<std::vector<WorkerSpec>> local_plan(const SpecSet& spec,
                                           const std::vector<WorkerSpec>& previous,
                                           const std::vector<std::string>& file_names) {
  const std::string errors = other_nodes(spec, file_names);
  if (!errors.empty()) return Error{ErrorCode::unsupported, errors};
  const PlanWish wish = INFOS_TRY(plan_wish(spec, file_names));

  std::map<std::pair<std::string, std::uint32_t>, WorkerId> known;  // by model and replica
  std::map<std::string, std::uint32_t> seen;
  WorkerId highest;
  for (const WorkerSpec& worker : previous) {
    known[{worker.model, seen[worker.model]++}] = worker.worker;
    highest = std::max(highest, worker.worker);
  }
  std::vector<WorkerSpec> workers;
  for (const ModelWish& model : wish.models) {
    std::uint32_t replica = 0;
    for (WorkerSpec& worker : workers_of(model)) {
      const auto checked = parse_worker_options(worker.options);
      if (!checked.ok())
        return Error{ErrorCode::invalid_argument,
                     fmt::format("model {}: {}", model.name, checked.error().message)};
      const auto found = known.find({worker.model, replica++});
      worker.worker = found != known.end() ? found->second : WorkerId{++highest.value};
      workers.push_back(std::move(worker));
    }
  }
  return workers;
}

}  // namespace infos
