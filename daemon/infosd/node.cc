// SPDX-License-Identifier: Apache-2.0
#include "daemon/infosd/node.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/infosd/model_text.h"
#include "daemon/runtime/local_plan.h"
#include "daemon/runtime/sqlite_store.h"
#include "daemon/runtime/store_wait.h"
#include "daemon/runtime/threaded_store.h"
#include "topology/base/log.h"

namespace infos {
namespace {

namespace asio = boost::asio;

// What an operator applied outranks what the command line says, so that a restart of the same unit
// keeps it.
constexpr const char* kAppliedKey = "spec/applied";
constexpr const char* kInitialKey = "spec/initial";

Result<std::string> read_text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kSpecBytesMax + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad())
    return Error{ErrorCode::io, fmt::format("--config {}: it cannot be read", path)};
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace

Node::Node(asio::io_context& io, InfosdOptions options) : io_(io), options_(std::move(options)) {}

Node::~Node() { helper_.join(); }

// ---- start ----

Status Node::start() {
  Status status = open_state();
  if (status.ok()) status = open_relay();
  if (!status.ok()) return status;
  CheckedSpec spec;
  if (!cluster_) spec = INFOS_TRY(first_spec());

  GatewayOptions gateway;
  SupervisorOptions supervisor;
  if (cluster_) {
    gateway.first_request = first_request(cluster_->self().node, cluster_->incarnation());
    supervisor.agent.generation_base = generation_base(cluster_->incarnation());
  }
  gateway.core.decode_prefill_cost = options_.decode_prefill_cost;
  gateway.api_keys_file = options_.api_keys_file;
  gateway.insecure = options_.insecure ? Insecure::allowed : Insecure::refused;
  gateway_ = INFOS_TRY(Gateway::create(io_, gateway));
  supervisor.agent.silence_limit = options_.silence_limit;
  supervisor.agent.stop_timeout = std::min(supervisor.agent.stop_timeout, options_.drain_limit);
  supervisor.log_level = options_.log_level_word;
  supervisor.log_format = options_.log_format == LogFormat::json ? "json" : "text";
  supervisor.record = options_.record_file;
  supervisor_ = std::make_unique<Supervisor>(io_, supervisor, static_cast<WorkerListener&>(*this));
  gateway_->on_send_worker([this](const SendWorker& message) { feed(GatewaySays{message}); });
  add_admin_api(*this, *gateway_);
  if (cluster_) add_cluster_admin_api(*this, *gateway_);
  traces_ = INFOS_TRY(TraceService::create(io_, *gateway_, options_.otlp_url, ""));
  status = open_recording(gateway.core, supervisor.agent);
  if (status.ok()) status = listen();
  if (!status.ok()) return status;
  if (cluster_) return start_cluster();
  act(std::move(spec));
  return {};
}

Status Node::open_state() {
  if (options_.state_file.empty()) {
    state_ = make_memory_store();
    return {};
  }
  OpenedStore opened = INFOS_TRY(open_sqlite_store(options_.state_file));
  state_ = std::move(opened.store);
  return {};
}

/// Gateway and agent go into one file, each worker process into its own.
Status Node::open_recording(const GatewayConfig& gateway, const AgentConfig& agent) {
  if (options_.record_file.empty()) return {};
  recording_ = INFOS_TRY(RecordingFile::create(options_.record_file));
  recording_->start(0, gateway);
  recording_->start(0, agent);
  gateway_->on_step([this](Time now, const GatewayEvent& event, const GatewayEffects& effects) {
    recording_->step(0, now, event, effects);
  });
  supervisor_->on_step([this](Time now, const AgentEvent& event, const AgentEffects& effects) {
    recording_->step(0, now, event, effects);
  });
  return {};
}

/// The spec of the command line; empty: there is none.
Result<std::string> Node::written_down() const {
  if (!options_.config_file.empty()) return read_text_file(options_.config_file);
  return options_.models.empty() ? std::string() : quick_spec(options_);
}

/// Applied before, else the command line's (which is stored), else what an earlier command line
/// said.
Result<CheckedSpec> Node::first_spec() {
  std::string yaml = INFOS_TRY(read_key(*state_, kAppliedKey));
  const bool given = !options_.models.empty() || !options_.config_file.empty();
  if (!yaml.empty() && given)
    log_warn("infosd",
             "the state file holds a spec that was applied: --model and --config are not used",
             {{"state", options_.state_file}});
  if (yaml.empty() && given) {
    const bool quick = options_.config_file.empty();
    CheckedSpec spec = INFOS_TRY(
        check(INFOS_TRY(written_down()), quick ? "--model" : options_.config_file, "command line"));
    Status loaded = load_models(spec, {});
    if (!loaded.ok()) return loaded.error();
    StoreWrite wish{kInitialKey, spec.yaml, std::nullopt, "command line"};
    const auto stored =
        wait_for<StoreWritten>([&](auto done) { state_->write(std::move(wish), std::move(done)); });
    if (!stored.ok()) return stored.error();
    return spec;
  }
  if (yaml.empty()) yaml = INFOS_TRY(read_key(*state_, kInitialKey));
  if (yaml.empty()) return CheckedSpec{};
  CheckedSpec spec = INFOS_TRY(check(std::move(yaml), options_.state_file, "state"));
  // A model whose file has gone must not keep the others from being served; its worker says what is
  // wrong.
  Status loaded = load_models(spec, {});
  if (!loaded.ok())
    log_error("infosd", "a stored model cannot be opened", {{"why", loaded.error().message}});
  return spec;
}

Status Node::listen() {
  const bool v6 = options_.listen_address.find(':') != std::string::npos;
  const std::string host = v6 ? "[" + options_.listen_address + "]" : options_.listen_address;
  const auto port = gateway_->listen(options_.listen_address, options_.listen_port);
  if (!port.ok())
    return Error{port.error().code, fmt::format("--listen {}:{}: {}", host, options_.listen_port,
                                                port.error().message)};
  url_ = fmt::format("http://{}:{}", host, *port);
  if (options_.admin_socket.empty()) return {};
  return gateway_->listen_unix(options_.admin_socket);
}

std::string Node::ready_line() const {
  std::string line = fmt::format("infosd ready url={} pid={}", url_, ::getpid());
  if (cluster_)
    line += fmt::format(" node={} peers={}", cluster_->self().name, cluster_->listens());
  if (!options_.admin_socket.empty()) line += fmt::format(" admin={}", options_.admin_socket);
  return line;
}

// ---- specs ----

Result<CheckedSpec> Node::check(std::string yaml, const std::string& name,
                                std::string origin) const {
  const SpecFile file{name, yaml};
  SpecOutcome outcome = parse_spec(std::span(&file, 1));
  if (!outcome.ok()) return Error{ErrorCode::invalid_argument, outcome.error_text()};
  CheckedSpec spec;
  spec.workers = INFOS_TRY(local_plan(outcome.set, serving_.workers, {name}));
  spec.yaml = std::move(yaml);
  spec.origin = std::move(origin);
  spec.set = std::move(outcome.set);
  return spec;
}

/// What the gateway's side of a model depends on: two models with the same are served alike.
std::string Node::text_identity(const ModelSpec& model) {
  return fmt::format("{}\n{}", model.source, model.engine.max_context);
}

std::map<std::string, std::string> Node::served_sources() const {
  std::map<std::string, std::string> sources;
  for (const ModelSpec& model : serving_.set.models)
    if (gateway_->offers(model.name)) sources[model.name] = text_identity(model);
  return sources;
}

/// Opens what is not served from the same source already; goes on after an error and says all of
/// them.
Status Node::load_models(CheckedSpec& spec,
                         const std::map<std::string, std::string>& served) const {
  std::string errors;
  for (const ModelSpec& model : spec.set.models) {
    const auto found = served.find(model.name);
    if (found != served.end() && found->second == text_identity(model)) continue;
    auto loaded = load_served_model(model.name, model.source, model.engine.max_context);
    if (loaded.ok())
      spec.models.push_back(*std::move(loaded));
    else
      errors += fmt::format("{}model {}: {}", errors.empty() ? "" : "\n", model.name,
                            loaded.error().message);
  }
  if (errors.empty()) return {};
  return Error{ErrorCode::invalid_argument, std::move(errors)};
}

void Node::apply(std::string yaml, std::function<void(Result<std::size_t>)> done) {
  if (applying_)
    return done(Error{ErrorCode::unavailable, "another apply is under way: try again"});
  auto checked = check(std::move(yaml), "spec", "apply");
  if (!checked.ok()) return done(std::move(checked).error());
  applying_ = true;
  asio::post(helper_, [this, served = served_sources(), done = std::move(done),
                       spec = std::make_shared<CheckedSpec>(*std::move(checked))] {
    Status loaded = load_models(*spec, served);
    asio::post(io_, [this, loaded = std::move(loaded), spec, done] {
      if (loaded.ok()) return store(std::move(*spec), done);
      applying_ = false;
      done(loaded.error());
    });
  });
}

/// Stored first, then acted on.
void Node::store(CheckedSpec spec, std::function<void(Result<std::size_t>)> done) {
  StoreWrite wish{kAppliedKey, spec.yaml, std::nullopt, "apply"};
  const auto shared = std::make_shared<CheckedSpec>(std::move(spec));
  state_->write(std::move(wish), [this, shared, done](Result<StoreWritten> written) {
    asio::post(io_, [this, shared, done, written = std::move(written)] {
      applying_ = false;
      if (!written.ok()) return done(written.error());
      const std::size_t workers = shared->workers.size();
      act(std::move(*shared));
      done(workers);
    });
  });
}

void Node::act(CheckedSpec spec) {
  std::map<std::string, std::string> gone = served_sources();
  for (const ModelSpec& model : spec.set.models) gone.erase(model.name);
  for (const auto& [name, source] : gone) gateway_->remove_model(name);
  for (ServedModel& model : spec.models) {
    const std::string name = model.name;
    const Status added = gateway_->add_model(std::move(model));
    if (!added.ok())
      log_error("infosd", "a model cannot be offered",
                {{"model", name}, {"why", added.error().message}});
  }
  spec.models.clear();
  log_info("infosd", "a spec is acted on",
           {{"origin", spec.origin},
            {"models", spec.set.models.size()},
            {"workers", spec.workers.size()}});
  serving_ = std::move(spec);
  for (const ModelSpec& model : serving_.set.models)
    gateway_->set_loading(model.name, Gateway::Loading::possible);
  std::vector<WorkerSpec> workers = serving_.workers;
  equip(workers);
  supervisor_->set_desired(std::move(workers));
}

// ---- workers ----

void Node::worker_up(WorkerId worker, Generation generation, const WorkerReady& ready) {
  feed(LocalUp{{worker, generation}, ready});
}
void Node::worker_down(WorkerId worker, Generation generation, const std::string& why) {
  feed(LocalDown{{worker, generation}, why});
}
void Node::worker_said(WorkerId worker, Generation generation, StepReport report) {
  feed(LocalSaid{{worker, generation}, std::move(report)});
}
void Node::worker_letter(KvLetter letter) { feed(LocalLetter{std::move(letter)}); }

void Node::model_failed(const std::string& model) {
  if (cluster_)  // another node's worker may still come up
    for (const PlannedWorker& worker : cluster_->plan().workers)
      if (worker.spec.model == model && worker.node != cluster_->self().node) return;
  gateway_->set_loading(model, Gateway::Loading::failed);
}

// ---- the end ----

void Node::shut_down(std::function<void()> done) {
  log_info("infosd", "shuts down", {{"live_requests", gateway_->live_requests()}});
  ending_ = true;
  gateway_->set_ready(Gateway::Ready::no);
  // One of the two ends the wait: the last request, or the limit. Shared by both handlers.
  const auto timer =
      std::make_shared<asio::steady_timer>(io_, std::chrono::nanoseconds(options_.drain_limit.ns));
  const auto ended = std::make_shared<bool>(false);
  const auto go_on = [this, timer, ended, done](const char* why) {
    if (std::exchange(*ended, true)) return;
    log_info("infosd", "stops serving", {{"why", why}});
    timer->cancel();
    gateway_->stop();
    supervisor_->stop([this, done] {
      if (cluster_) cluster_->stop();
      done();
    });
  };
  timer->async_wait([go_on](boost::system::error_code error) {
    if (!error) go_on("the drain limit has passed");
  });
  gateway_->drain([go_on] { go_on("no request is left"); });
}

}  // namespace infos
