// SPDX-License-Identifier: Apache-2.0
// The admin API: what `infos get`, `describe`, `apply` and `drain` ask. JSON over the Unix socket;
// thread: the node's.
#include <boost/json.hpp>

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

HttpReply workers(const Node& node) {
  json::array rows;
  for (const WorkerRow& row : node.supervisor().workers()) rows.push_back(worker_json(row));
  return reply({{"workers", std::move(rows)}});
}

HttpReply models(const Node& node) {
  json::array rows;
  const std::vector<WorkerRow> all = node.supervisor().workers();
  for (const ModelSpec& model : node.serving().set.models) {
    std::uint64_t wanted = 0, serving = 0;
    std::string failure;
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
  gateway.handle("POST", "/admin/v1/apply", Exposure::unix_only,
                 [&node](const HttpRequest& request, HttpRespond respond) {
                   node.apply(std::string(request.body),
                              [respond](const Result<std::size_t>& outcome) {
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
