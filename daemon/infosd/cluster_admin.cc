// SPDX-License-Identifier: Apache-2.0
// The admin API's part about the cluster: nodes, plan, drains, join tokens. What changes the
// cluster is done by the controller, whichever node is asked. Thread: the node's.
#include <fmt/format.h>

#include <boost/json.hpp>

#include <algorithm>
#include <utility>

#include "daemon/infosd/node.h"

namespace infos {
namespace {

namespace json = boost::json;

HttpReply reply(json::object body, int status = 200) {
  return {status, "application/json", json::serialize(body) + "\n"};
}

std::string milliseconds_text(Duration duration) {
  return duration.ns == 0 ? "" : fmt::format("{:.2f}ms", static_cast<double>(duration.ns) * 1e-6);
}

json::object peer_json(const PeerRow& peer) {
  return {{"node", peer.node.value},
          {"name", peer.info.identity.name},
          {"state", peer.up ? (peer.suspect ? "suspect" : "up") : "down"},
          {"roles", to_string(peer.info.identity.roles)},
          {"address", peer.info.address.empty() ? peer.address : peer.info.address},
          {"incarnation", peer.info.incarnation},
          {"round_trip", milliseconds_text(peer.round_trip)},
          {"last_down", peer.last_down},
          {"bytes_in", peer.bytes_in},
          {"bytes_out", peer.bytes_out}};
}

json::object self_json(const ClusterNode& cluster) {
  return {{"node", cluster.self().node.value},
          {"name", cluster.self().name},
          {"state", "here"},
          {"roles", to_string(cluster.self().roles)},
          {"address", cluster.listens()},
          {"incarnation", cluster.incarnation()}};
}

/// Every member that this node knows of, with what the plan and the controller say of it.
HttpReply nodes(Node& node) {
  ClusterNode& cluster = *node.cluster();
  std::map<NodeId, json::object> rows;
  rows[cluster.self().node] = self_json(cluster);
  for (const PeerRow& peer : cluster.net().peers()) rows[peer.node] = peer_json(peer);
  for (const PlannedNode& planned : cluster.plan().nodes) {
    json::object& row = rows[planned.node];
    row["node"] = planned.node.value;
    row["name"] = planned.name;
    row["drained"] = planned.drained;
    row["planned"] = std::ranges::count(cluster.plan().workers, planned.node, &PlannedWorker::node);
    if (!row.contains("state")) row["state"] = "down";
  }
  if (const ClusterController* controller = cluster.controller())
    for (const MemberStatus& member : controller->core().members()) {
      json::object& row = rows[member.node];
      row["node"] = member.node.value;
      row["name"] = member.name;
      row["plan"] = member.applied.value;
      row["running"] = member.running;
      if (!row.contains("state")) row["state"] = "down";
    }
  json::array list;
  for (auto& [id, row] : rows) list.push_back(std::move(row));
  return reply({{"nodes", std::move(list)}});
}

HttpReply plan(Node& node) {
  const Plan& plan = node.cluster()->plan();
  std::map<NodeId, std::string> names;
  for (const PlannedNode& planned : plan.nodes) names[planned.node] = planned.name;
  json::array workers, notes;
  for (const PlannedWorker& worker : plan.workers) {
    json::object options;
    for (const auto& [key, value] : worker.spec.options) options[key] = value;
    workers.push_back({{"worker", worker.spec.worker.value},
                       {"node", names[worker.node]},
                       {"device", worker.device},
                       {"model", worker.spec.model},
                       {"role", to_string(worker.role)},
                       {"pool", worker.pool},
                       {"options", std::move(options)}});
  }
  for (const std::string& note : plan.notes) notes.emplace_back(note);
  return reply({{"epoch", plan.epoch.value},
                {"term", plan.term},
                {"workers", std::move(workers)},
                {"notes", std::move(notes)}});
}

std::uint32_t status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::unsupported:
      return 400;
    case ErrorCode::not_found:
      return 404;
    case ErrorCode::already_exists:
      return 409;
    default:
      return 503;
  }
}

ClusterController::Done answer_to(const ClusterHost::Respond& respond) {
  return [respond](const Result<ClusterController::Applied>& applied) {
    if (!applied.ok()) return respond(status_of(applied.error().code), applied.error().message);
    const json::object body{
        {"applied", true}, {"workers", applied->workers}, {"epoch", applied->epoch.value}};
    respond(200, json::serialize(body) + "\n");
  };
}

/// {"what": "node" or "model", "name": NAME, "drained": true or false}
Result<DrainWish> read_drain(const std::string& body) {
  boost::system::error_code failed;
  const json::value read = json::parse(body, failed);
  DrainWish wish;
  const Error bad{ErrorCode::invalid_argument,
                  "want {\"what\": \"node\" or \"model\", \"name\": NAME, \"drained\": true or "
                  "false}"};
  if (failed || !read.is_object()) return bad;
  const json::object& object = read.as_object();
  const json::value* what = object.if_contains("what");
  const json::value* name = object.if_contains("name");
  const json::value* drained = object.if_contains("drained");
  if (!what || !what->is_string() || !name || !name->is_string()) return bad;
  if (drained && !drained->is_bool()) return bad;
  if (what->as_string() != "node" && what->as_string() != "model") return bad;
  wish.what = what->as_string() == "node" ? DrainWish::What::node : DrainWish::What::model;
  wish.name = std::string(name->as_string());
  wish.drained = !drained || drained->as_bool();
  return wish;
}

void token_reply(const HttpRespond& respond, const Result<std::string>& answer) {
  if (answer.ok()) return respond({200, "application/json", *answer});
  respond(error_reply(static_cast<int>(status_of(answer.error().code)), "refused",
                      answer.error().message));
}

void add_tokens(Node& node, Gateway& gateway) {
  TokenAdmin* tokens = node.cluster()->tokens();
  const auto handle = [&](const char* method, const char* path, auto call) {
    gateway.handle(
        method, path, Exposure::unix_only,
        [tokens, call](const HttpRequest& request, HttpRespond respond) {
          if (!tokens)
            return respond(
                error_reply(409, "not_the_controller",
                            "tokens are made where the cluster's authority is: on the controller"));
          call(*tokens, request, [respond = std::move(respond)](const Result<std::string>& answer) {
            token_reply(respond, answer);
          });
        });
  };
  handle("POST", "/admin/v1/tokens",
         [](TokenAdmin& t, const HttpRequest& r, auto done) { t.create(r.body, std::move(done)); });
  handle("GET", "/admin/v1/tokens",
         [](TokenAdmin& t, const HttpRequest&, auto done) { t.list(std::move(done)); });
  handle("POST", "/admin/v1/tokens/revoke",
         [](TokenAdmin& t, const HttpRequest& r, auto done) { t.revoke(r.body, std::move(done)); });
}

}  // namespace

void Node::ask_cluster(const std::string& path, const std::string& body,
                       ClusterHost::Respond respond) {
  ClusterController* controller = cluster_->controller();
  if (!controller) return cluster_->ask_controller(path, body, std::move(respond));
  if (path == "/admin/v1/apply") return controller->apply(body, answer_to(respond));
  if (path != "/admin/v1/drain-part") return respond(404, "no such question: " + path);
  const auto wish = read_drain(body);
  if (!wish.ok()) return respond(400, wish.error().message);
  controller->drain(*wish, answer_to(respond));
}

void add_cluster_admin_api(Node& node, Gateway& gateway) {
  const auto get = [&](const char* path, HttpReply (*answer)(Node&)) {
    gateway.handle(
        "GET", path, Exposure::unix_only,
        [&node, answer](const HttpRequest&, HttpRespond respond) { respond(answer(node)); });
  };
  get("/admin/v1/nodes", nodes);
  get("/admin/v1/plan", plan);
  gateway.handle("POST", "/admin/v1/drain-part", Exposure::unix_only,
                 [&node](const HttpRequest& request, HttpRespond respond) {
                   node.ask_cluster(
                       "/admin/v1/drain-part", std::string(request.body),
                       [respond](std::uint32_t status, std::string body) {
                         if (status < 400)
                           return respond({static_cast<int>(status), "application/json", body});
                         respond(error_reply(static_cast<int>(status), "refused", body));
                       });
                 });
  add_tokens(node, gateway);
}

}  // namespace infos
