// SPDX-License-Identifier: Apache-2.0
// What only several values together can get wrong: names used twice, references to nothing, keys
// that exclude or need each other.
#include <fmt/format.h>

#include <functional>
#include <map>
#include <set>

#include "topology/spec/fields.h"

namespace infos {
namespace {

/// Says what is wrong for sure, and what may only follow from another error.
struct Reporter {
  const CheckReport& report;
  void operator()(const SpecPlace& place, std::string message) const {
    report(place, Certainty::certain, std::move(message));
  }
  void derived(const SpecPlace& place, std::string message) const {
    report(place, Certainty::derived, std::move(message));
  }
};

template <typename T>
void check_unique(const std::vector<T>& elements, const std::string& what, const Reporter& report) {
  std::map<std::string, SpecPlace> first;
  for (const T& element : elements) {
    if (element.name.empty()) continue;  // reported where it was read
    const auto [it, added] = first.emplace(element.name, element.place);
    if (!added)
      report(element.place,
             fmt::format("{} '{}' has the name of the one in line {}, want a name of its own", what,
                         element.name, it->second.line));
  }
}

void check_device(const DeviceSpec& device, const Reporter& report) {
  const bool cpu = device.backend == "cpu";
  const bool plugin = device.backend == "plugin";
  if (plugin && device.library.empty())
    report.derived(
        device.place,
        fmt::format("device '{}' has backend 'plugin' and no library, want library: FILE.so",
                    device.name));
  if (!plugin && !device.library.empty())
    report.derived(device.place,
                   fmt::format("device '{}' has a library and backend '{}', want backend: plugin",
                               device.name, device.backend));
  if (!cpu && !device.cores.empty())
    report.derived(device.place,
                   fmt::format("device '{}' has cores and backend '{}', want backend: cpu",
                               device.name, device.backend));
  if (device.memory && device.memory->value == 0)
    report(device.place, fmt::format("device '{}' has memory 0B, want more", device.name));
}

void check_link(const LinkSpec& link, const std::set<std::string>& ends, const Reporter& report) {
  if (link.between.size() != 2 && !link.between.empty())
    report.derived(link.place, fmt::format("the link has {} end{}, want 2", link.between.size(),
                                           link.between.size() == 1 ? "" : "s"));
  if (link.between.size() == 2 && link.between[0].name == link.between[1].name)
    report(link.between[1].place,
           fmt::format("both ends of the link are '{}', want two different ones",
                       link.between[1].name));
  for (const SpecRef& end : link.between) {
    if (ends.contains(end.name)) continue;
    const std::vector<std::string> all(ends.begin(), ends.end());
    const std::string near = nearest(end.name, all);
    report(end.place,
           fmt::format("the link names '{}', which does not exist{}, want a node or node/device of "
                       "this cluster",
                       end.name, near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near)));
  }
  if (link.bandwidth && link.bandwidth->bytes_per_second <= 0)
    report(link.place, "the link has bandwidth 0, want more");
}

/// The nodes and node/devices of a cluster.
std::set<std::string> ends_of(const ClusterSpec& cluster) {
  std::set<std::string> ends;
  for (const NodeSpec& node : cluster.nodes) {
    ends.insert(node.name);
    for (const DeviceSpec& device : node.devices) ends.insert(node.name + "/" + device.name);
  }
  return ends;
}

void check_cluster(const ClusterSpec& cluster, const Reporter& report) {
  check_unique(cluster.nodes, "node", report);
  std::map<std::string, std::string> addresses;
  for (const NodeSpec& node : cluster.nodes) {
    check_unique(node.devices, "device", report);
    for (const DeviceSpec& device : node.devices) check_device(device, report);
    if (node.address.empty()) continue;
    const auto [it, added] = addresses.emplace(node.address, node.name);
    if (!added)
      report(node.place,
             fmt::format("node '{}' has the address {} of node '{}', want one of its own",
                         node.name, node.address, it->second));
  }
  const std::set<std::string> ends = ends_of(cluster);
  for (const LinkSpec& link : cluster.links) check_link(link, ends, report);
  if (!cluster.state.sqlite.empty() && !cluster.state.etcd.empty())
    report(cluster.state.place, "state has both sqlite and etcd, want one of them");
}

void check_pool(const PoolSpec& pool, const SpecSet& set, const Reporter& report) {
  if (set.clusters.empty()) return;
  const std::set<std::string> ends = ends_of(set.clusters.front());
  for (const SpecRef& device : pool.devices)
    if (device.name.find('/') == std::string::npos || !ends.contains(device.name))
      report(
          device.place,
          fmt::format("the pool names '{}', which does not exist, want node/device of the cluster",
                      device.name));
}

void check_model(const ModelSpec& model, const SpecSet& set, const Reporter& report) {
  if (model.replicas.min > model.replicas.max)
    report.derived(model.replicas.place,
                   fmt::format("replicas has min {} and max {}, want min <= max",
                               model.replicas.min, model.replicas.max));
  if (!model.pools.empty() && model.topology != TopologyKind::automatic)
    report.derived(model.pools.front().place,
                   fmt::format("model '{}' has pools and topology '{}', want one of them",
                               model.name, to_string(model.topology)));
  for (const PoolSpec& pool : model.pools) check_pool(pool, set, report);
  if (model.slo.ttft && model.slo.ttft->ns == 0) report(model.place, "slo.ttft is 0, want more");
  if (model.slo.tpot && model.slo.tpot->ns == 0) report(model.place, "slo.tpot is 0, want more");
}

void check_arrivals(const ArrivalSpec& arrivals, const Reporter& report) {
  const std::string process = to_string(arrivals.process);
  const bool closed = arrivals.process == ArrivalProcess::closed;
  const bool gamma = arrivals.process == ArrivalProcess::gamma;
  const auto need = [&](bool has, bool wants, const char* key) {
    if (has != wants)
      report.derived(arrivals.place,
                     fmt::format("arrivals has process '{}' and {} {}, want {}", process,
                                 has ? "a" : "no", key, wants ? "one" : "none"));
  };
  need(arrivals.rate.has_value(), !closed, "rate");
  need(arrivals.concurrency.has_value(), closed, "concurrency");
  need(arrivals.cv.has_value(), gamma, "cv");
}

void check_lengths(const LengthSpec& lengths, const char* key, const Reporter& report) {
  if (lengths.place.line == 0) return;
  if (lengths.min > lengths.max)
    report.derived(lengths.place, fmt::format("{} has min {} and max {}, want min <= max", key,
                                              lengths.min, lengths.max));
  if (lengths.shape != LengthShape::uniform &&
      (lengths.mean < lengths.min || lengths.mean > lengths.max))
    report.derived(lengths.place, fmt::format("{} has mean {}, want it within min {} and max {}",
                                              key, lengths.mean, lengths.min, lengths.max));
}

void check_workload(const WorkloadSpec& workload, const Reporter& report) {
  if (workload.arrivals.has_value() == workload.trace.has_value())
    report.derived(
        workload.place,
        fmt::format("workload '{}' has {}, want one of them", workload.name,
                    workload.trace ? "both arrivals and trace" : "neither arrivals nor trace"));
  if (workload.arrivals) check_arrivals(*workload.arrivals, report);
  if (workload.arrivals && !workload.requests && !workload.duration)
    report.derived(
        workload.place,
        fmt::format("workload '{}' has no end, want requests or duration", workload.name));
  if (workload.trace && (workload.prompt.place.line != 0 || workload.output.place.line != 0))
    report.derived(
        workload.place,
        fmt::format("workload '{}' has a trace and lengths, want the trace's own", workload.name));
  check_lengths(workload.prompt, "prompt", report);
  check_lengths(workload.output, "output", report);
}

void check_model_ref(const SpecRef& ref, const SpecSet& set, const Reporter& report) {
  if (ref.name.empty()) return;
  std::set<std::string> all;
  for (const ModelSpec& model : set.models) all.insert(model.name);
  if (all.contains(ref.name)) return;
  const std::vector<std::string> names(all.begin(), all.end());
  const std::string near = nearest(ref.name, names);
  report(ref.place, fmt::format("model '{}' does not exist{}, want the name of a Model{}", ref.name,
                                near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near),
                                names.empty() ? "; these files have none" : ": " + any_of(names)));
}

}  // namespace

void check_set(const SpecSet& set, SpecReferences references, const CheckReport& out) {
  const Reporter report{out};
  check_unique(set.models, "model", report);
  check_unique(set.workloads, "workload", report);
  check_unique(set.tenants, "tenant", report);
  for (std::size_t i = 1; i < set.clusters.size(); ++i)
    report(set.clusters[i].place, "a second Cluster, want at most one");
  for (std::size_t i = 1; i < set.policies.size(); ++i)
    report(set.policies[i].place, "a second Policy, want at most one");
  for (const ClusterSpec& cluster : set.clusters) check_cluster(cluster, report);
  for (const ModelSpec& model : set.models) check_model(model, set, report);
  for (const WorkloadSpec& workload : set.workloads) check_workload(workload, report);
  if (references == SpecReferences::may_be_elsewhere) return;
  for (const WorkloadSpec& workload : set.workloads) check_model_ref(workload.model, set, report);
  for (const TenantSpec& tenant : set.tenants)
    for (const SpecRef& ref : tenant.models) check_model_ref(ref, set, report);
}

}  // namespace infos
