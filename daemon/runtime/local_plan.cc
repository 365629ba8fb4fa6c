// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/local_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "daemon/runtime/worker_args.h"

namespace infos {
namespace {

/// One worker to be, without its id.
struct Slot {
  std::string model;
  std::uint32_t replica = 0;
  WorkerSpec spec;
};

class Planner {
 public:
  Planner(const SpecSet& spec, const std::vector<std::string>& files)
      : spec_(spec), files_(files) {}

  void plan() {
    for (const ClusterSpec& cluster : spec_.clusters)
      if (cluster.nodes.size() > 1)
        refuse(cluster.nodes[1].place,
               fmt::format("{} nodes: this version serves on one", cluster.nodes.size()));
    for (const ModelSpec& model : spec_.models) plan_model(model);
  }

  std::vector<Slot> slots;
  std::string errors;

 private:
  void refuse(const SpecPlace& place, const std::string& what) {
    const std::string file = place.file < files_.size() ? files_[place.file] : "spec";
    if (!errors.empty()) errors += '\n';
    errors += fmt::format("{}:{}:{}: {}", file, place.line, place.column, what);
  }

  void plan_model(const ModelSpec& model) {
    const bool plain =
        model.topology == TopologyKind::automatic || model.topology == TopologyKind::aggregated;
    if (!plain)
      return refuse(model.place,
                    fmt::format("topology {} of model {}: this version serves auto and aggregated",
                                to_string(model.topology), model.name));
    if (model.pools.empty()) return add(model, std::max(1u, model.replicas.min), std::nullopt);
    for (const PoolSpec& pool : model.pools) plan_pool(model, pool);
  }

  void plan_pool(const ModelSpec& model, const PoolSpec& pool) {
    if (pool.phase != Phase::aggregated)
      return refuse(pool.place, fmt::format("phase {}: this version serves aggregated pools",
                                            to_string(pool.phase)));
    if (pool.tensor_parallel != 1)
      return refuse(pool.place,
                    fmt::format("tensor_parallel {}: this version serves 1", pool.tensor_parallel));
    if (pool.devices.empty()) return add(model, pool.replicas, std::nullopt);
    for (const SpecRef& device : pool.devices) add(model, pool.replicas, device);
  }

  /// Cores of a CPU device, when the spec names some. Whether the name exists has been checked by
  /// the parser.
  const DeviceSpec* find_device(const std::string& name) const {
    for (const ClusterSpec& cluster : spec_.clusters)
      for (const NodeSpec& node : cluster.nodes)
        for (const DeviceSpec& device : node.devices)
          if (name == node.name + "/" + device.name || name == device.name) return &device;
    return nullptr;
  }

  void add(const ModelSpec& model, std::uint32_t replicas,
           const std::optional<SpecRef>& device_ref) {
    const DeviceSpec* device = device_ref ? find_device(device_ref->name) : nullptr;
    const std::string backend = device ? device->backend : model.engine.backend;
    if (backend != "cpu")
      return refuse(device ? device->place : model.place,
                    fmt::format("backend {}: this version has cpu", backend));
    WorkerSpec spec{WorkerId{}, model.name, model.source, backend, options_of(model.engine)};
    if (device && !device->cores.empty()) spec.options["cores"] = to_string(device->cores);
    const auto checked = parse_worker_options(spec.options);
    if (!checked.ok()) return refuse(model.place, checked.error().message);
    for (std::uint32_t i = 0; i < replicas; ++i)
      slots.push_back({model.name, next_replica_[model.name]++, spec});
  }

  static std::map<std::string, std::string> options_of(const EngineSpec& engine) {
    std::map<std::string, std::string> options{
        {"block_tokens", std::to_string(engine.block_tokens)},
        {"max_running", std::to_string(engine.max_running)},
        {"max_step_tokens", std::to_string(engine.max_step_tokens)}};
    if (engine.threads != 0) options["threads"] = std::to_string(engine.threads);
    if (!engine.cores.empty()) options["cores"] = to_string(engine.cores);
    if (engine.kv_memory) options["kv_memory"] = to_string(*engine.kv_memory);
    if (engine.kv_dtype != "auto") options["kv_dtype"] = engine.kv_dtype;
    if (engine.max_context != 0) options["max_context"] = std::to_string(engine.max_context);
    if (!engine.device_options.empty()) options["device_options"] = engine.device_options;
    return options;
  }

  const SpecSet& spec_;
  const std::vector<std::string>& files_;
  std::map<std::string, std::uint32_t> next_replica_;
};

}  // namespace

Result<std::vector<WorkerSpec>> local_plan(const SpecSet& spec,
                                           const std::vector<WorkerSpec>& previous,
                                           const std::vector<std::string>& file_names) {
  Planner planner(spec, file_names);
  planner.plan();
  if (!planner.errors.empty()) return Error{ErrorCode::unsupported, planner.errors};

  std::map<std::pair<std::string, std::uint32_t>, WorkerId> known;  // by model and replica
  std::map<std::string, std::uint32_t> seen;
  WorkerId highest;
  for (const WorkerSpec& worker : previous) {
    known[{worker.model, seen[worker.model]++}] = worker.worker;
    highest = std::max(highest, worker.worker);
  }
  std::vector<WorkerSpec> workers;
  for (Slot& slot : planner.slots) {
    const auto found = known.find({slot.model, slot.replica});
    slot.spec.worker = found != known.end() ? found->second : WorkerId{++highest.value};
    workers.push_back(std::move(slot.spec));
  }
  return workers;
}

}  // namespace infos
