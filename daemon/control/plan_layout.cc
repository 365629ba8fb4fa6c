// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/plan_layout.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

namespace infos {
namespace {

/// A slot's identity over plans.
using SlotKey = std::tuple<std::string, std::uint32_t, NodeId, std::string, std::uint32_t>;

SlotKey key_of(const PlannedWorker& worker) {
  return {worker.spec.model, worker.pool, worker.node, worker.device, worker.replica};
}

/// What all workers of one pool share.
struct PoolOf {
  const ModelWish& model;
  const PoolWish& pool;
  std::uint32_t index = 0;
};

std::string named(const PoolOf& of) {
  return std::string(to_string(of.pool.role)) + " pool " + std::to_string(of.index) + " of model " +
         of.model.name;
}

class Layout {
 public:
  Layout(const Grounds& grounds, const Plan& previous) : grounds_(grounds), previous_(previous) {
    plan_.nodes = grounds.nodes;
    plan_.last_worker = previous.last_worker;
    for (const PlannedWorker& worker : previous.workers)
      known_[key_of(worker)] = worker.spec.worker;
  }

  void add(const ModelWish& model) {
    const bool drained = grounds_.drained_models.contains(model.name);
    plan_.models.push_back({model.name, model.source, model.max_context, drained});
    if (drained) return;
    for (std::uint32_t i = 0; i < model.pools.size(); ++i) {
      const PoolOf of{model, model.pools[i], i};
      if (of.pool.devices.empty())
        anywhere(of);
      else
        for (const DeviceWish& device : of.pool.devices) on_device(of, device);
    }
  }

  Plan take() { return std::move(plan_); }

 private:
  void on_device(const PoolOf& of, const DeviceWish& device) {
    const auto node = std::ranges::find(grounds_.nodes, device.node, &PlannedNode::name);
    if (node == grounds_.nodes.end() || node->drained) {
      plan_.notes.push_back(
          named(of) + " waits for node " + device.node +
          (node == grounds_.nodes.end() ? ", which has not joined" : ", which is drained"));
      return;
    }
    for (std::uint32_t replica = 0; replica < of.pool.replicas; ++replica)
      put(of, node->node, device, replica);
  }

  /// Stays where it was; a new one goes where the fewest workers are.
  void anywhere(const PoolOf& of) {
    for (std::uint32_t replica = 0; replica < of.pool.replicas; ++replica) {
      std::optional<NodeId> node = place_before(of, replica);
      if (!node) node = emptiest();
      if (!node) {
        plan_.notes.push_back(named(of) + " waits for a node that is not drained");
        return;
      }
      put(of, *node, {"", "", of.pool.backend, {}}, replica);
    }
  }

  std::optional<NodeId> place_before(const PoolOf& of, std::uint32_t replica) const {
    for (const PlannedWorker& worker : previous_.workers)
      if (worker.spec.model == of.model.name && worker.pool == of.index && worker.device.empty() &&
          worker.replica == replica && usable(worker.node))
        return worker.node;
    return std::nullopt;
  }

  bool usable(NodeId id) const {
    return std::ranges::any_of(
        grounds_.nodes, [&](const PlannedNode& node) { return node.node == id && !node.drained; });
  }

  std::optional<NodeId> emptiest() const {
    std::optional<NodeId> best;
    std::size_t fewest = 0;
    for (const PlannedNode& node : grounds_.nodes) {
      if (node.drained) continue;
      const auto workers = static_cast<std::size_t>(
          std::ranges::count(plan_.workers, node.node, &PlannedWorker::node));
      if (!best || workers < fewest) best = node.node, fewest = workers;
    }
    return best;
  }

  void put(const PoolOf& of, NodeId node, const DeviceWish& device, std::uint32_t replica) {
    PlannedWorker worker{node, of.index, device.device, replica, of.pool.role, {}};
    worker.spec.model = of.model.name;
    worker.spec.source = of.model.source;
    worker.spec.device = device.backend;
    worker.spec.options = of.pool.options;
    for (const auto& [key, value] : device.options) worker.spec.options[key] = value;
    const auto found = known_.find(key_of(worker));
    worker.spec.worker =
        found != known_.end() ? found->second : WorkerId{++plan_.last_worker.value};
    plan_.workers.push_back(std::move(worker));
  }

  const Grounds& grounds_;
  const Plan& previous_;
  Plan plan_;
  std::map<SlotKey, WorkerId> known_;
};

}  // namespace

Plan lay_out(const PlanWish& wish, const Grounds& grounds, const Plan& previous) {
  Layout layout(grounds, previous);
  for (const ModelWish& model : wish.models) layout.add(model);
  Plan plan = layout.take();
  plan.spec = wish.spec;
  return plan;
}

}  // namespace infos
