// SPDX-License-Identifier: Apache-2.0
// Node: one infosd. Owns the gateway, the supervisor and the state store, joins them, and turns a
// spec into served models. A spec is checked whole, then stored, then acted on; in a cluster the
// controller makes a plan of it, and each node acts on its part. Runs on the thread
// of its io_context; models are opened and rows are stored on two helper threads. Never decides
// about requests or restarts: the cores do.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>

#include "daemon/gateway/gateway.h"
#include "daemon/infosd/options.h"
#include "daemon/infosd/trace_service.h"
#include "daemon/runtime/cluster_node.h"
#include "daemon/runtime/cluster_relay.h"
#include "daemon/runtime/recording_file.h"
#include "daemon/runtime/state_store.h"
#include "daemon/runtime/supervisor.h"
#include "topology/spec/spec.h"

namespace infos {

/// A spec that has been checked and can be acted on.
struct CheckedSpec {
  std::string yaml;
  std::string origin;  ///< "command line", "state", "apply"
  SpecSet set;
  std::vector<WorkerSpec> workers;
  std::vector<ServedModel> models;  ///< those that are not served from this source yet
};

class Node final : private WorkerListener, private ClusterHost {
 public:
  Node(boost::asio::io_context& io, InfosdOptions options);
  ~Node() override;

  /// Opens everything and begins to serve. Errors: in one sentence, for the person who started it.
  Status start();
  /// "infosd ready url=http://127.0.0.1:8080 ...". Requires: started.
  std::string ready_line() const;

  /// Replaces the whole spec. `done`: how many workers are wished for now, or all errors.
  void apply(std::string yaml, std::function<void(Result<std::size_t>)> done);
  /// No new requests; running ones may end until the drain limit; then stops workers and calls
  /// `done`.
  void shut_down(std::function<void()> done);
  /// Calls what main has set for "please end": POST /admin/v1/drain.
  void on_shut_down_wish(std::function<void()> wish) { shut_down_wish_ = std::move(wish); }
  void wish_shut_down() {
    if (shut_down_wish_) shut_down_wish_();
  }

  /// Null: this is the only node.
  ClusterNode* cluster() { return cluster_.get(); }
  const ClusterNode* cluster() const { return cluster_.get(); }
  /// What an operator asks of the cluster: here, or from a member when this is the controller.
  void ask_cluster(const std::string& path, const std::string& body, ClusterHost::Respond respond);

  const CheckedSpec& serving() const { return serving_; }
  const Gateway& gateway() const { return *gateway_; }
  const Supervisor& supervisor() const { return *supervisor_; }
  const std::string& url() const { return url_; }
  const InfosdOptions& options() const { return options_; }

 private:
  void worker_up(WorkerId worker, Generation generation, const WorkerReady& ready) override;
  void worker_down(WorkerId worker, Generation generation, const std::string& why) override;
  void worker_said(WorkerId worker, Generation generation, StepReport report) override;
  void worker_letter(KvLetter letter) override;
  void model_failed(const std::string& model) override;

  void cluster_tells_gateway(GatewayEvent event) override;
  void cluster_sends_worker(const SendWorker& message) override;
  void cluster_acts(const Plan& plan, std::vector<WorkerSpec> part) override;
  Result<PlanWish> cluster_reads(const std::string& yaml) override;
  void cluster_asked(const AdminAsk& ask, ClusterHost::Respond respond) override;

  void feed(RelayEvent event);
  Status open_relay();
  Status start_cluster();
  Result<std::string> written_down() const;
  void equip(std::vector<WorkerSpec>& workers) const;
  Status open_state();
  Status open_recording(const GatewayConfig& gateway, const AgentConfig& agent);
  Result<CheckedSpec> first_spec();
  Result<CheckedSpec> check(std::string yaml, const std::string& name, std::string origin) const;
  Status load_models(CheckedSpec& spec, const std::map<std::string, std::string>& served) const;
  Status listen();
  void store(CheckedSpec spec, std::function<void(Result<std::size_t>)> done);
  void act(CheckedSpec spec);
  static std::string text_identity(const ModelSpec& model);
  std::map<std::string, std::string> served_sources() const;

  boost::asio::io_context& io_;
  const InfosdOptions options_;
  std::unique_ptr<StateStore> state_;
  std::unique_ptr<ClusterRelay> relay_;  ///< of the only node
  // The gateway ends first: it cancels what runs, which is recorded and sent to workers.
  std::unique_ptr<RecordingFile> recording_;
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<Gateway> gateway_;
  std::unique_ptr<ClusterNode> cluster_;
  std::unique_ptr<TraceService> traces_;
  CheckedSpec serving_;
  std::string url_;
  std::function<void()> shut_down_wish_;
  bool applying_ = false;
  bool ending_ = false;
  boost::asio::thread_pool helper_{1};  // ends first: its work refers to the members above
};

/// Registers the admin API, which only the Unix socket serves.
void add_admin_api(Node& node, Gateway& gateway);
/// Its part about nodes, plans and tokens.
void add_cluster_admin_api(Node& node, Gateway& gateway);

}  // namespace infos
