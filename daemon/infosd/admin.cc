// SPDX-License-Identifier: Apache-2.0
// The admin API: what `infos get`, `describe`, `apply` and `drain` ask. JSON over the Unix socket;
// thread: the node's.
#include <boost/json.hpp>

#include <map>
#include <string>
#include <utility>

#include "daemon/infosd/node.h"

namespace infos {
namespace {

namespace json = boost::json;

HttpReply reply(json::object body, int status = 200) {
  return {status, "application/json", json::serialize(body) + "\n"};
}

json::object worker_json(const WorkerRow& row) {
  const WorkerSpec& spec = row.status.spec;
  json::object options;
  for (const auto& [key, value] : spec.options) options[key] = value;
  json::object out{{"worker", spec.worker.value},
                   {"generation", row.status.generation.value},
                   {"model", spec.model},
                   {"source", spec.source},
                   {"device", spec.device},
                   {"options", std::move(options)},
                   {"phase", row.status.phase},
                   {"restarts", row.status.restarts},
                   {"last_exit", row.status.last_exit}};
  const auto role = spec.options.find("role");
  out["role"] = role == spec.options.end() ? "aggregated" : role->second;
  if (row.pid == 0) return out;
  out["pid"] = row.pid;
  out["process_phase"] = to_string(row.phase);
  out["loaded_bytes"] = row.loaded_bytes;
  out["total_bytes"] = row.total_bytes;
  out["steps"] = row.steps;
  out["kv_blocks_used"] = row.kv_blocks_used;
  out["kv_blocks_total"] = row.kv_blocks_total;
  out["running"] = row.running;
  out["waiting"] = row.waiting;
  return out;
}

/// A worker of another node: what the plan says of it and what it reports.
json::object remote_json(const Plan& plan, const PlannedWorker& planned, const PeerRelay& relay) {
  json::object out{{"worker", planned.spec.worker.value},
                   {"model", planned.spec.model},
                   {"source", planned.spec.source},
                   {"device", planned.spec.device},
                   {"phase", "unknown"}};
  for (const PlannedNode& node : plan.nodes)
    if (node.node == planned.node) out["node"] = node.name;
  for (const RemoteWorker& remote : relay.remote_workers()) {
    if (remote.worker.worker != planned.spec.worker) continue;
    const WorkerLoad& load = remote.ready.load;
    out["phase"] = "serving";
    out["generation"] = remote.worker.generation.value;
    out["running"] = load.running;
    out["waiting"] = load.waiting;
    out["kv_blocks_used"] = load.kv_blocks_used;
    out["kv_blocks_total"] = load.kv_blocks_total;
  }
  return out;
}

HttpReply workers(const Node& node) {
  json::array rows;
  const ClusterNode* cluster = node.cluster();
  std::map<WorkerId, const PlannedWorker*> planned;
  if (cluster)
    for (const PlannedWorker& worker : cluster->plan().workers)
      planned[worker.spec.worker] = &worker;
  for (const WorkerRow& row : node.supervisor().workers()) {
    json::object& shown = rows.emplace_back(worker_json(row)).as_object();
    if (!cluster) continue;
    shown["node"] = cluster->self().name;
    const auto found = planned.find(row.status.spec.worker);
    if (found != planned.end()) shown["role"] = to_string(found->second->role);
  }
  for (const auto& [id, worker] : planned) {
    if (worker->node == cluster->self().node) continue;
    json::object shown = remote_json(cluster->plan(), *worker, cluster->relay());
    shown["role"] = to_string(worker->role);
    rows.push_back(std::move(shown));
  }
  return reply({{"workers", std::move(rows)}});
}

HttpReply models(const Node& node) {
  json::array rows;
  const std::vector<WorkerRow> all = node.supervisor().workers();
  for (const ModelSpec& model : node.serving().set.models) {
    std::uint64_t wanted = 0, serving = 0;
    std::string failure;
    if (const ClusterNode* cluster = node.cluster()) {
      for (const PlannedWorker& worker : cluster->plan().workers)
        if (worker.spec.model == model.name && worker.node != cluster->self().node) ++wanted;
      for (const RemoteWorker& worker : cluster->relay().remote_workers())
        if (worker.ready.model == model.name) ++serving;
    }
    for (const WorkerRow& row : all) {
      if (row.status.spec.model != model.name) continue;
      ++wanted;
      if (row.status.phase == "serving") ++serving;
      if (row.status.phase == "failed") failure = row.status.last_exit;
    }
    rows.push_back({{"name", model.name},
                    {"source", model.source},
                    {"routable", node.gateway().routable(model.name)},
                    {"workers", wanted},
                    {"workers_serving", serving},
                    {"failure", failure}});
  }
  return reply({{"models", std::move(rows)}});
}

HttpReply status(const Node& node) {
  return reply({{"version", INFOS_VERSION},
                {"url", node.url()},
                {"state", node.options().state_file},
                {"live_requests", node.gateway().live_requests()},
                {"models", node.serving().set.models.size()}});
}

HttpReply spec(const Node& node) {
  return reply({{"origin", node.serving().origin}, {"spec", node.serving().yaml}});
}

ClusterHost::Respond as_reply(const HttpRespond& respond) {
  return [respond](std::uint32_t status, std::string body) {
    if (status < 400)
      return respond({static_cast<int>(status), "application/json", std::move(body)});
    respond(error_reply(static_cast<int>(status), "refused", body));
  };
}

HttpReply apply_reply(const Result<std::size_t>& outcome) {
  if (outcome.ok()) return reply({{"applied", true}, {"workers", *outcome}});
  switch (outcome.error().code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::unsupported:
      return error_reply(400, "invalid_spec", outcome.error().message);
    case ErrorCode::unavailable:
      return error_reply(409, "conflict", outcome.error().message);
    default:
      return error_reply(503, "not_stored", outcome.error().message);
  }
}

}  // namespace

void add_admin_api(Node& node, Gateway& gateway) {
  const auto get = [&](const char* path, HttpReply (*answer)(const Node&)) {
    gateway.handle(
        "GET", path, Exposure::unix_only,
        [&node, answer](const HttpRequest&, HttpRespond respond) { respond(answer(node)); });
  };
  get("/admin/v1/status", status);
  get("/admin/v1/workers", workers);
  get("/admin/v1/models", models);
  get("/admin/v1/spec", spec);
  gateway.handle(
      "POST", "/admin/v1/apply", Exposure::unix_only,
      [&node](const HttpRequest& request, HttpRespond respond) {
        if (node.cluster())
          return node.ask_cluster("/admin/v1/apply", std::string(request.body), as_reply(respond));
        node.apply(std::string(request.body), [respond](const Result<std::size_t>& outcome) {
          respond(apply_reply(outcome));
        });
      });
  gateway.handle("POST", "/admin/v1/drain", Exposure::unix_only,
                 [&node](const HttpRequest&, HttpRespond respond) {
                   respond(reply({{"draining", true}}, 202));
                   node.wish_shut_down();
                 });
}

}  // namespace infos
