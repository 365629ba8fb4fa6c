// SPDX-License-Identifier: Apache-2.0
// The inside of GatewayCore, shared by its halves: gateway_core.cc takes events, gateway_route.cc
// chooses workers.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/gateway_core.h"

namespace infos {

struct GatewayRequest {
  Arrive arrive;
  std::uint64_t order = 0;  ///< of arrival; a request that must be placed again keeps its place
  std::vector<TokenId> emitted;  ///< delivered tokens
  std::uint32_t attempts = 0;
  std::uint32_t cached_tokens = 0;    ///< of the last attempt that said so
  WorkerId worker;                    ///< none: queued
  WorkerId avoid;                     ///< where the last attempt failed
  std::uint32_t prefill_pending = 0;  ///< tokens submitted while the attempt has not drawn one
  Time timer = kNever;                ///< its entry in `timers`
  Attempt attempt() const { return Attempt{attempts}; }
  std::size_t length() const { return arrive.prompt.size() + emitted.size(); }
};

struct GatewayWorker {
  Generation generation;
  std::uint64_t link = 0;  ///< orders news of one generation
  bool up = false;
  WorkerReady ready;
  WorkerLoad load;
  std::set<RequestId> attached;
  std::uint64_t prefill_pending = 0;  ///< sum over `attached`
};

struct GatewayModel {
  bool listed = false;
  bool withdrawn = false;
  bool failed = false;                       ///< no worker comes until it is listed anew
  std::set<WorkerId> workers;                ///< up
  std::map<std::uint64_t, RequestId> queue;  ///< by order of arrival
};

struct GatewayCore::State {
  explicit State(const GatewayConfig& wanted) : config(wanted) {}

  // gateway_core.cc
  void on(const Arrive& event, GatewayEffects& out);
  void on(const ClientGone& event, GatewayEffects& out);
  void on(const StopHit& event, GatewayEffects& out);
  void on(const WorkerUp& event, GatewayEffects& out);
  void on(const WorkerDown& event, GatewayEffects& out);
  void on(const WorkerSaid& event, GatewayEffects& out);
  void on(const ModelListed& event, GatewayEffects& out);
  void on(const GatewayTick&, GatewayEffects&) {}
  std::optional<Reject> refuse(const Arrive& event);
  void take_tokens(GatewayWorker& worker, const WorkerSaid& said, GatewayEffects& out);
  void take_end(const WorkerSaid& said, const SequenceEnd& end, GatewayEffects& out);
  void worker_lost(WorkerId id, GatewayWorker& worker, GatewayEffects& out);
  void expire(GatewayEffects& out);
  GatewayRequest* current(const WorkerSaid& said, RequestId request, Attempt attempt,
                          GatewayEffects& out);

  // gateway_requests.cc
  void enqueue(GatewayRequest& request);
  void dequeue(GatewayRequest& request);
  void detach(GatewayRequest& request);
  void cancel(const GatewayRequest& request, GatewayEffects& out);
  void retry(GatewayRequest& request, const std::string& why, GatewayEffects& out);
  void finish(GatewayRequest& request, FinishReason reason, std::string message,
              GatewayEffects& out);
  void fail(GatewayRequest& request, const char* code, std::string message, GatewayEffects& out);
  void reject(GatewayRequest& request, std::uint16_t status, const char* code, std::string message,
              GatewayEffects& out);
  void forget(GatewayRequest& request);
  void arm(GatewayRequest& request, Time at);

  // gateway_route.cc
  /// Places queued requests of a model while workers have room.
  void pump(const std::string& model, GatewayEffects& out);
  enum class Placement { placed, no_room, fits_nowhere };
  Placement place(GatewayRequest& request, const GatewayModel& model, GatewayEffects& out);
  double predicted_seconds(const GatewayWorker& worker, const GatewayRequest& request) const;
  bool has_room(const GatewayWorker& worker) const;
  std::uint32_t longest_context(const GatewayModel& model) const;
  Duration predicted_wait(const GatewayModel& model) const;

  GatewayConfig config;
  Time now{INT64_MIN};
  std::map<RequestId, GatewayRequest> requests;
  std::map<WorkerId, GatewayWorker> workers;
  std::map<std::string, GatewayModel> models;
  std::map<std::string, std::uint32_t> tenants;  ///< live requests of named tenants
  std::set<std::pair<Time, RequestId>> timers;
  std::uint64_t arrivals = 0;
  std::uint64_t tokens_held = 0;  ///< prompt tokens of live requests
};

}  // namespace infos
