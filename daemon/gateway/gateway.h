// SPDX-License-Identifier: Apache-2.0
// The gateway's shell: serves HTTP (OpenAI API, health, metrics, and whatever else is registered)
// and drives GatewayCore with what clients and workers do. Owns listeners, connections, the core,
// the served models' text side and the metrics. Runs on the one thread of its io_context: every
// function here is called on that thread. Never talks to a worker itself.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/control/gateway_core.h"
#include "daemon/control/trace_log.h"
#include "daemon/gateway/chat_template.h"
#include "daemon/gateway/gateway_options.h"
#include "daemon/gateway/tokenizer.h"
#include "devices/engine/checkpoint.h"
#include "topology/base/result.h"
#include "topology/model/model_config.h"

namespace boost::asio {
class io_context;
}
namespace prometheus {
class Registry;
}

namespace infos {

/// What the gateway must know of a model to put it on offer. Shared, because a prompt may be
/// tokenized on the helper thread while the model is removed.
struct ServedModel {
  std::string name;                            ///< as clients say it
  std::shared_ptr<const Tokenizer> tokenizer;  ///< never null
  std::shared_ptr<const ChatTemplate>
      chat_template;                 ///< null: /v1/chat/completions is refused for this model
  std::string bos_token, eos_token;  ///< texts that templates refer to
  GenerationDefaults generation;
  ModelConfig config;        ///< context length, vocabulary, end tokens
  std::int64_t created = 0;  ///< Unix time in s; 0: the time of add_model
};

/// A request for a registered handler; valid during the call.
struct HttpRequest {
  std::string_view method;  ///< "GET"
  std::string_view target;  ///< as sent, query included
  std::string_view path;    ///< target without query
  std::string_view query;   ///< after '?', not decoded
  std::string_view body;
};
struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
};
/// Call it once, at once or later, on the gateway's thread, where it must end too: when the last
/// copy of it ends unused the client is answered 500. After the client is gone it does nothing.
using HttpRespond = std::function<void(HttpReply)>;
using HttpHandler = std::function<void(const HttpRequest&, HttpRespond)>;

/// Who may call a registered handler.
enum class Exposure {
  unix_only,   ///< only through the Unix socket: the admin API
  everywhere,  ///< TCP too, behind the API keys when there are any
  open,        ///< TCP too, without a key: health, static pages
};

/// The OpenAI error body for registered handlers: {"error":{message,type,param:null,code}}.
HttpReply error_reply(int status, std::string_view code, std::string_view message);

class Gateway {
 public:
  /// Errors: io or invalid_argument when the API key file is not as it must be (with its line).
  static Result<std::unique_ptr<Gateway>> create(boost::asio::io_context& io,
                                                 GatewayOptions options);
  ~Gateway();
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  // ---- listening ----
  /// Serves HTTP on address:port (an IP address or "localhost"; port 0: any free one). May be
  /// called more than once. Returns: the port. Errors: invalid_argument for an address off loopback
  /// unless options.insecure says allowed; io.
  Result<std::uint16_t> listen(const std::string& address, std::uint16_t port);
  /// Serves HTTP on a Unix socket, mode 0600; a dead socket file in its place is replaced. Needs no
  /// API key.
  Status listen_unix(const std::string& path);
  /// Reads options.api_keys_file again, for keys that come and go while serving. Errors: as
  /// create(); the old keys stay.
  Status reload_api_keys();
  /// No new connections or requests; calls `done` when the last request has ended (at once if there
  /// is none).
  void drain(std::function<void()> done);
  /// Closes everything now; requests under way are cancelled. Idempotent; the destructor calls it.
  void stop();

  // ---- models ----
  /// Puts a model on offer; one of the same name is replaced for later requests. Errors:
  /// invalid_argument.
  Status add_model(ServedModel model);
  void remove_model(const std::string& name);
  bool offers(const std::string& name) const;
  /// Whether waiting for a worker of a model on offer makes sense (the default). A worker that
  /// comes up says so too. Nothing happens for a model that is not on offer.
  enum class Loading { possible, failed };
  void set_loading(const std::string& model, Loading loading);

  // ---- workers: what the runtime hears of them ----
  void worker_up(WorkerUp up);
  void worker_down(const WorkerDown& down);
  void worker_up(WorkerId worker, Generation generation, const WorkerReady& ready) {
    worker_up(WorkerUp{worker, generation, ready});
  }
  void worker_down(WorkerId worker, Generation generation) {
    worker_down(WorkerDown{worker, generation});
  }
  void worker_said(WorkerId worker, Generation generation, StepReport report);
  /// Where the core's SendWorker effects go. Called inside the gateway's step: it must not call
  /// back into it.
  void on_send_worker(std::function<void(const SendWorker&)> send);

  // ---- readiness and the rest ----
  /// /ready is 200 when this is true (the default) and some listed model is routable; else 503.
  enum class Ready { no, yes };
  void set_ready(Ready ready);
  bool routable(const std::string& model) const;
  std::size_t live_requests() const;
  /// Registers `method path` (exact) or, with path ending in '*', every path with that prefix;
  /// longest wins. Built-in endpoints cannot be replaced (CHECKed).
  void handle(const std::string& method, const std::string& path, Exposure exposure,
              HttpHandler handler);
  /// Called after each step of the core with the event and the effects of that step alone, before
  /// they are performed: `infosd --record`. Every step is told, ticks too. It must not call back
  /// into the gateway.
  void on_step(std::function<void(Time, const GatewayEvent&, const GatewayEffects&)> tap);
  /// What /metrics prints; others may add their metrics. Outlives every connection, not the
  /// gateway.
  prometheus::Registry& registry();
  /// Shared, for those that keep a metric longer than the gateway.
  std::shared_ptr<prometheus::Registry> shared_registry();
  /// The loads that workers last reported, for `infos get` and `infos top`.
  struct WorkerView {
    WorkerId worker;
    Generation generation;
    WorkerReady ready;  ///< `load` kept up to date
  };
  std::vector<WorkerView> workers() const;
  /// Where the time of the last requests went.
  const TraceLog& traces() const;
  /// Those that ended since the last call, for exporters.
  std::vector<RequestTrace> take_ended_traces();

 private:
  struct State;
  explicit Gateway(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace infos
