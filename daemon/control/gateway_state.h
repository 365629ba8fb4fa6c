// SPDX-License-Identifier: Apache-2.0
// The inside of GatewayCore, shared by its parts: gateway_core.cc takes events, gateway_requests.cc
// keeps requests, gateway_route.cc chooses workers by what gateway_cost.cc predicts.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/block_hash.h"
#include "daemon/control/gateway_core.h"
#include "daemon/control/prefix_index.h"

namespace infos {

struct GatewayRequest {
  Arrive arrive;
  std::uint64_t order = 0;  ///< of arrival; a request that must be placed again keeps its place
  std::vector<TokenId> emitted;  ///< delivered tokens
  std::uint32_t attempts = 0;
  std::uint32_t cached_tokens = 0;    ///< of the last attempt that said so
  WorkerId worker;                    ///< none: queued
  WorkerId avoid;                     ///< where the last attempt failed
  WorkerRef helper;                   ///< computes the prompt for `worker`; none: nobody does
  bool helping = false;               ///< the helper has not ended yet
  bool drawn = false;                 ///< `worker` has drawn a token: it needs the helper no more
  bool never_split = false;           ///< a split attempt diverged
  WorkerId prefilling;                ///< whose backlog `prefill_pending` counts in
  std::uint32_t prefill_pending = 0;  ///< tokens to compute before the attempt's first token
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
  std::set<RequestId> helped;         ///< whose prompt it computes for another worker
  std::uint64_t prefill_pending = 0;  ///< sum over both
  std::uint32_t holder = 0;           ///< in the prefix index; valid while up
};

/// What is known of moving KV between two workers.
struct GatewayLink {
  double bytes_per_second = 0;
  double seconds = 0;  ///< what a move takes beside its bytes
};

struct GatewayModel {
  bool listed = false;
  bool withdrawn = false;
  bool failed = false;                         ///< no worker comes until it is listed anew
  std::map<WorkerId, GatewayWorker*> workers;  ///< up
  std::map<std::uint64_t, RequestId> queue;    ///< by order of arrival
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
  bool take_tokens(const WorkerSaid& said, GatewayEffects& out);
  void take_end(const WorkerSaid& said, const SequenceEnd& end, GatewayEffects& out);
  void take_late_end(const WorkerSaid& said, const SequenceEnd& end, GatewayEffects& out);
  void worker_lost(WorkerId id, GatewayWorker& worker, GatewayEffects& out);
  void expire(GatewayEffects& out);
  GatewayRequest* current(const WorkerSaid& said, RequestId request, Attempt attempt,
                          GatewayEffects& out);
  void take_repeat(GatewayRequest& request, const TokenOut& token, GatewayEffects& out);
  void helper_ended(GatewayRequest& request, FinishReason reason, GatewayEffects& out);

  // gateway_requests.cc
  void enqueue(GatewayRequest& request);
  void dequeue(GatewayRequest& request);
  void detach(GatewayRequest& request);
  void detach_helper(GatewayRequest& request);
  void prefill_over(GatewayRequest& request);
  void cancel(GatewayRequest& request, GatewayEffects& out);
  void cancel_helper(GatewayRequest& request, GatewayEffects& out);
  bool first_draw(GatewayRequest& request, GatewayEffects& out);
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
  /// A worker that could serve the request, and what that would take.
  struct Candidate {
    WorkerId id;
    GatewayWorker* worker = nullptr;
    std::uint32_t missing = 0;   ///< tokens to compute or fetch there
    double queue_seconds = 0;    ///< prefill ahead of it
    double prefill_seconds = 0;  ///< its own
    double decode_seconds = 0;
    double score = 0;  ///< what it is ranked by
  };
  struct Choice {
    const Candidate* prefill = nullptr;  ///< none: alone
    const Candidate* decode = nullptr;
    double seconds = 0;
  };
  std::vector<Candidate> candidates(const GatewayRequest& request, const GatewayModel& model);
  Choice best_alone(const std::vector<Candidate>& all, const GatewayModel& model,
                    const GatewayRequest& request) const;
  Choice best_pair(const std::vector<Candidate>& all, const GatewayRequest& request);
  void submit(GatewayRequest& request, const Choice& choice, GatewayEffects& out);
  const std::vector<BlockHash>& chain(const GatewayRequest& request, std::uint32_t block_tokens);

  // gateway_cost.cc
  void predict(Candidate& candidate, const GatewayRequest& request) const;
  double pair_seconds(const Candidate& prefill, const Candidate& decode) const;
  void learn(WorkerId to, const FetchStat& stat);
  bool has_room(const GatewayWorker& worker) const;
  std::uint32_t longest_context(const GatewayModel& model) const;
  Duration predicted_wait(const GatewayModel& model) const;

  GatewayConfig config;
  Time now{INT64_MIN};
  std::map<RequestId, GatewayRequest> requests;
  std::map<WorkerId, GatewayWorker> workers;
  std::map<std::string, GatewayModel> models;
  std::map<std::pair<WorkerId, WorkerId>, GatewayLink> links;  ///< from, to
  PrefixIndex prefixes{config.prefix_index_bytes};
  GatewayCounters counters;
  std::map<std::uint32_t, std::vector<BlockHash>> chains;  ///< of the request placed now, by size
  std::vector<std::uint32_t> depths;
  std::map<std::string, std::uint32_t> tenants;  ///< live requests of named tenants
  std::set<std::pair<Time, RequestId>> timers;
  std::uint64_t arrivals = 0;
  std::uint64_t tokens_held = 0;  ///< prompt tokens of live requests
};

}  // namespace infos
