// SPDX-License-Identifier: Apache-2.0
// Node as one of several: what the relay carries, and acting on plans.
#include <fmt/format.h>

#include <utility>

#include <boost/asio/post.hpp>

#include "daemon/infosd/model_text.h"
#include "daemon/infosd/node.h"
#include "daemon/runtime/peer/address.h"
#include "daemon/runtime/worker_args.h"
#include "topology/base/log.h"

namespace infos {

namespace asio = boost::asio;

namespace {

/// A worker that moves KV listens where its daemon does, with the node's certificate.
void add_data_listener(WorkerSpec& worker, const std::string& listens, const std::string& dir) {
  const auto at = split_address(listens);
  INFOS_CHECK(at.ok());
  worker.options["kv_listen"] = at->host;
  worker.options["kv_tls_certificate"] = dir + "/node.pem";
  worker.options["kv_tls_key"] = dir + "/node.pem";
  worker.options["kv_tls_authority"] = dir + "/ca.pem";
}

}  // namespace

Status Node::open_relay() {
  if (!options_.cluster_dir.empty()) {
    const ClusterNodeOptions options{options_.cluster_dir, options_.peer_listen, INFOS_VERSION};
    cluster_ =
        INFOS_TRY(ClusterNode::open(io_, options, *state_, static_cast<ClusterHost&>(*this)));
    return {};
  }
  ClusterRelay::Ports ports;
  ports.to_peer = [](NodeId, const PeerMessage&) {};
  ports.to_local = [this](const SendWorker& message) { cluster_sends_worker(message); };
  ports.to_gateway = [this](GatewayEvent event) { cluster_tells_gateway(std::move(event)); };
  relay_ = std::make_unique<ClusterRelay>(io_, RelayConfig{}, std::move(ports));
  return {};
}

/// The command line's spec is the first wish, when the cluster has none yet.
Status Node::start_cluster() {
  Status status = cluster_->start();
  if (!status.ok()) return status;
  const std::string yaml = INFOS_TRY(written_down());
  if (yaml.empty()) return {};
  ClusterController* controller = cluster_->controller();
  if (!controller || controller->core().plan().epoch) {
    log_warn("infosd", controller ? "the cluster has a plan: --model and --config are not used"
                                  : "--model and --config are not used: apply on the controller");
    return {};
  }
  const auto checked = cluster_reads(yaml);
  if (!checked.ok()) return checked.error();
  controller->apply(yaml, [](const Result<ClusterController::Applied>& applied) {
    if (!applied.ok())
      log_error("infosd", "the first spec was not taken", {{"why", applied.error().message}});
  });
  return {};
}

void Node::feed(RelayEvent event) {
  if (cluster_)
    cluster_->feed(std::move(event));
  else
    relay_->feed(std::move(event));
}

void Node::cluster_sends_worker(const SendWorker& message) { supervisor_->send(message); }

void Node::cluster_tells_gateway(GatewayEvent event) {
  if (auto* up = std::get_if<WorkerUp>(&event)) {
    gateway_->worker_up(std::move(*up));
  } else if (const auto* down = std::get_if<WorkerDown>(&event)) {
    gateway_->worker_down(*down);
  } else if (auto* said = std::get_if<WorkerSaid>(&event)) {
    gateway_->worker_said(said->worker, said->generation, std::move(said->report));
  }
}

Result<PlanWish> Node::cluster_reads(const std::string& yaml) {
  const SpecFile file{"spec", yaml};
  const SpecOutcome outcome = parse_spec(std::span(&file, 1));
  if (!outcome.ok()) return Error{ErrorCode::invalid_argument, outcome.error_text()};
  PlanWish wish = INFOS_TRY(plan_wish(outcome.set, {"spec"}));
  for (const ModelWish& model : wish.models)
    for (const PoolWish& pool : model.pools) {
      const auto options = parse_worker_options(pool.options);
      if (!options.ok())
        return Error{ErrorCode::invalid_argument,
                     fmt::format("model {}: {}", model.name, options.error().message)};
    }
  wish.spec = yaml;
  return wish;
}

/// What a worker that moves KV is told by this node, beside what the plan says.
void Node::equip(std::vector<WorkerSpec>& workers) const {
  for (WorkerSpec& worker : workers) {
    if (!worker.options.contains("role")) continue;
    if (cluster_) add_data_listener(worker, cluster_->listens(), options_.cluster_dir);
    if (!options_.kv_transports.empty()) worker.options["kv_transports"] = options_.kv_transports;
  }
}

/// Workers first: they load for longest. A model whose files are not here is served by the gateways
/// of other nodes.
void Node::cluster_acts(const Plan& plan, std::vector<WorkerSpec> part) {
  if (ending_) return;
  equip(part);
  supervisor_->set_desired(part);
  auto spec = std::make_shared<CheckedSpec>();
  spec->yaml = plan.spec;
  spec->origin = fmt::format("plan {}", plan.epoch.value);
  spec->workers = std::move(part);
  for (const PlannedModel& planned : plan.models) {
    ModelSpec model;
    model.name = planned.name;
    model.source = planned.source;
    model.engine.max_context = planned.max_context;
    spec->set.models.push_back(std::move(model));
  }
  asio::post(helper_, [this, spec, epoch = plan.epoch, served = served_sources()] {
    const Status loaded = load_models(*spec, served);
    asio::post(io_, [this, spec, loaded, epoch] {
      if (ending_ || cluster_->plan().epoch != epoch) return;  // the next plan has its own
      if (!loaded.ok())
        log_error("infosd", "this node's gateway does not offer a model",
                  {{"why", loaded.error().message}});
      act(std::move(*spec));
    });
  });
}

void Node::cluster_asked(const AdminAsk& ask, ClusterHost::Respond respond) {
  ask_cluster(ask.path, ask.body, std::move(respond));
}

}  // namespace infos
