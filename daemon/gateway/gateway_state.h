// SPDX-License-Identifier: Apache-2.0
// The inside of Gateway: the core with its event queue, the calls under way, the models on offer,
// the routes. Internal to this folder. Runs on the gateway's thread, but for prepare_call(), which
// touches only what it is given.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "daemon/gateway/answer.h"
#include "daemon/gateway/api_keys.h"
#include "daemon/gateway/gateway.h"
#include "daemon/gateway/gateway_metrics.h"
#include "daemon/gateway/http_server.h"
#include "daemon/gateway/openai_request.h"
#include "daemon/gateway/prepare.h"
#include "topology/base/rng.h"

namespace infos {

/// Replaced as a whole when a model comes or goes, so that the helper thread can read it.
using ModelMap = std::map<std::string, std::shared_ptr<const ServedModel>>;

/// One generation request of a client: one or more sequences in the core.
struct Call {
  std::shared_ptr<HttpSession> session;
  std::unique_ptr<Answer> answer;
  std::vector<RequestId> sequences;  ///< one per choice
  std::vector<Time> last_token;      ///< one per choice
  std::string model, request_id, answer_id, traceparent, tenant;
  ModelMetrics* metrics = nullptr;
  Time arrived;
  bool stream_begun = false;
  bool over = false;  ///< answered, failed or gone: hears nothing more
};

/// A request that is parsed, tokenized and checked.
struct ReadyCall {
  GenerateRequest request;
  PreparedRequest prepared;
  std::shared_ptr<const ServedModel> model;
};

/// How a failure reads in HTTP.
HttpAnswer to_answer(const ApiError& error);
ApiError api_error(int status, std::string code, std::string message);

struct Gateway::State final : HttpApi {
  State(boost::asio::io_context& io_context, GatewayOptions given, ApiKeys given_keys);
  ~State() override;
  void stop();

  // ---- the core (gateway.cc) ----
  void step(GatewayEvent event);
  void perform(GatewayEffects& effects);
  void on_reject(const Reject& reject);
  void on_deliver(const Deliver& deliver);
  void on_finish(const Finish& finish);
  void arm_timer();
  void check_drained();

  // ---- calls (calls.cc) ----
  void generate(const std::shared_ptr<HttpSession>& session, HttpMessage message, Api api);
  void start_call(const std::shared_ptr<Call>& call, const HttpHead& head, ReadyCall ready);
  void arrive(const std::shared_ptr<Call>& call, const std::string& tenant, ReadyCall& ready);
  void fail_all(const ApiError& error);
  void fail_call(Call& call, const ApiError& error, Outcome outcome);
  void complete_call(Call& call);
  void client_gone(Call& call);
  /// Ends every sequence of the call that is still in the core.
  void forget(Call& call);
  void log_call(const Call& call, const char* outcome) const;
  void tokenize(const std::shared_ptr<HttpSession>& session, HttpMessage message);
  void detokenize(const std::shared_ptr<HttpSession>& session, HttpMessage message);
  /// Runs `work` here, or on the helper thread when `bytes` is large, then `then(its result)` here.
  template <typename Work, typename Then>
  void run(std::size_t bytes, const std::shared_ptr<HttpSession>& session, Work work, Then then);
  std::string new_id(const char* prefix);
  /// The id that goes back in X-Request-Id: the client's, if it may be repeated, or a new one.
  std::string name_request(HttpSession& session, const HttpHead& head);

  // ---- routes (routes.cc) ----
  std::optional<HttpAnswer> admit(const HttpHead& head) override;
  void request(const std::shared_ptr<HttpSession>& session, HttpMessage message) override;
  void count_response(int status) override { metrics.response(status); }
  void count_connections(std::size_t open) override { metrics.connections(open); }
  struct Route {
    Exposure exposure = Exposure::everywhere;
    std::map<std::string, HttpHandler> registered;  ///< by method
    std::string methods;                            ///< built-in ones: "GET, HEAD"
    /// Built-in: answers; null for registered routes.
    std::function<void(const std::shared_ptr<HttpSession>&, HttpMessage)> built_in;
  };
  void add_built_ins();
  const Route* find_route(std::string_view path, Origin origin) const;
  static std::string allowed(const Route& route);
  HttpAnswer models_answer() const;
  HttpAnswer one_model_answer(std::string_view path) const;
  HttpAnswer ready_answer() const;
  std::string metrics_text() const;
  std::string tenant_of(const HttpHead& head) const;

  boost::asio::io_context& io;
  const GatewayOptions options;
  ApiKeys keys;
  GatewayCore core;
  TraceLog traces;
  GatewayMetrics metrics;
  Rng rng;
  HttpServer server;
  boost::asio::steady_timer timer;
  std::uint64_t next_request;
  boost::asio::thread_pool helper{1};
  std::size_t helper_jobs = 0;

  std::shared_ptr<const ModelMap> models = std::make_shared<ModelMap>();
  std::map<WorkerId, WorkerView> workers;
  std::map<std::string, Route, std::less<>> routes;    ///< exact paths
  std::map<std::string, Route, std::less<>> prefixes;  ///< without the '*'

  struct Place {
    std::shared_ptr<Call> call;
    std::uint32_t choice = 0;
  };
  std::unordered_map<std::uint64_t, Place> places;  ///< by RequestId
  std::deque<GatewayEvent> pending;
  GatewayEffects effects;
  std::vector<std::shared_ptr<HttpSession>> dirty;  ///< have stream bytes to send after this step
  bool stepping = false;
  Time timer_at = kNever;
  Ready ready = Ready::yes;
  bool draining = false;
  bool stopped = false;
  std::function<void(const SendWorker&)> send_worker;
  std::function<void(Time, const GatewayEvent&, const GatewayEffects&)> tap;
  std::function<void()> drained;
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);  ///< late completions look here
};

}  // namespace infos
