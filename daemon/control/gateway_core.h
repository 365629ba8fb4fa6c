// SPDX-License-Identifier: Apache-2.0
// GatewayCore owns requests from admission to their last token: bounded queues, routing over
// workers, retry elsewhere when a worker dies, cancel. It works on tokens; text, HTTP and
// tokenizers are the shell's. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "daemon/control/messages.h"
#include "topology/base/units.h"

namespace infos {

struct GatewayConfig {
  std::uint32_t max_requests = 4096;           ///< admitted and not ended, all models
  std::uint32_t max_queued_per_model = 1024;   ///< waiting for a worker; beyond: 429
  std::uint32_t max_running_per_worker = 256;  ///< submitted to one worker and not ended
  std::uint32_t max_attempts = 8;              ///< placements of one request before it fails
  Duration queue_timeout = seconds(60);        ///< waiting for a worker at all; beyond: 503
  std::uint32_t max_tokens_total = 16u << 20;  ///< prompt tokens held by all requests; beyond: 429
  std::uint32_t max_per_tenant =
      0;  ///< admitted and not ended, per named tenant; beyond: 429; 0: no limit
  std::uint64_t seed = 1;
  /// How much dearer a prompt counts on a decode worker: what it computes, it takes from answers.
  double decode_prefill_cost = 1.5;
  std::uint64_t prefix_index_bytes = 64u << 20;  ///< of what is remembered of workers' prefixes
  friend bool operator==(const GatewayConfig&, const GatewayConfig&) = default;
};

// ---- events ----

/// A client asks. `request` is fresh; tokens, limits and stop tokens are final.
struct Arrive {
  RequestId request;
  std::string model;
  std::string tenant;  ///< empty: anonymous
  std::vector<TokenId> prompt;
  std::uint32_t max_new_tokens = 0;
  std::vector<TokenId> stop_tokens;
  SamplingParams sampling;
  Time deadline = kNever;
  friend bool operator==(const Arrive&, const Arrive&) = default;
};
/// The client went away or asked to stop.
struct ClientGone {
  RequestId request;
  friend bool operator==(const ClientGone&, const ClientGone&) = default;
};
/// The shell saw a stop string in the text: the answer is complete.
struct StopHit {
  RequestId request;
  friend bool operator==(const StopHit&, const StopHit&) = default;
};
/// A worker process of generation `generation` serves. The same process may be lost and found
/// again: later news has a higher generation, or the same one and a higher link.
struct WorkerUp {
  WorkerId worker;
  Generation generation;
  WorkerReady ready;
  std::uint64_t link = 0;  ///< counts the links over which it was heard of; 0: it is of this node
  friend bool operator==(const WorkerUp&, const WorkerUp&) = default;
};
/// That process is gone (or is no longer believed).
struct WorkerDown {
  WorkerId worker;
  Generation generation;
  std::uint64_t link = 0;
  friend bool operator==(const WorkerDown&, const WorkerDown&) = default;
};
/// A worker said something.
struct WorkerSaid {
  WorkerId worker;
  Generation generation;
  StepReport report;
  friend bool operator==(const WorkerSaid&, const WorkerSaid&) = default;
};
/// A model is configured (listed, may be asked for) or no longer.
struct ModelListed {
  std::string model;
  bool listed = true;
  bool failed = false;  ///< every worker of it gave up for good: waiting is in vain
  friend bool operator==(const ModelListed&, const ModelListed&) = default;
};
struct GatewayTick {
  friend bool operator==(const GatewayTick&, const GatewayTick&) = default;
};
using GatewayEvent = std::variant<Arrive, ClientGone, StopHit, WorkerUp, WorkerDown, WorkerSaid,
                                  ModelListed, GatewayTick>;

// ---- effects ----

/// Not admitted: nothing else will be said of this request.
struct Reject {
  RequestId request;
  std::uint16_t http_status = 503;  ///< 400, 404, 429 or 503
  std::string code;                 ///< OpenAI-style, e.g. "model_not_found", "rate_limit_exceeded"
  std::string message;
  Duration retry_after;  ///< 0: none
  friend bool operator==(const Reject&, const Reject&) = default;
};
/// The next tokens of an answer, in order, each exactly once.
struct Deliver {
  RequestId request;
  std::vector<SampledToken> tokens;
  friend bool operator==(const Deliver&, const Deliver&) = default;
};
/// The answer is complete; the last word about this request.
struct Finish {
  RequestId request;
  FinishReason reason = FinishReason::stop;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
  std::uint32_t completion_tokens = 0;
  std::uint32_t attempts = 1;
  std::string message;  ///< for `error`
  friend bool operator==(const Finish&, const Finish&) = default;
};
/// Say something to a worker process; silently lost if that generation is gone.
struct SendWorker {
  WorkerId worker;
  Generation generation;
  ToWorker message;
  friend bool operator==(const SendWorker&, const SendWorker&) = default;
};
using GatewayEffect = std::variant<Reject, Deliver, Finish, SendWorker>;
using GatewayEffects = std::vector<GatewayEffect>;

/// Since start.
struct GatewayCounters {
  std::uint64_t alone = 0;        ///< attempts on one worker
  std::uint64_t split = 0;        ///< attempts on two
  std::uint64_t halves_lost = 0;  ///< split attempts whose prefill side gave up
  std::uint64_t divergences =
      0;  ///< the decode side drew another token than was delivered: its attempt was done anew
};

/// Requests of a model with prefill and decode workers may be split: one worker computes the prompt
/// and the first token, another fetches the KV and goes on. Roles are a preference: whoever is left
/// does everything.
class GatewayCore {
 public:
  explicit GatewayCore(const GatewayConfig& config);
  ~GatewayCore();
  GatewayCore(GatewayCore&&) noexcept;
  GatewayCore& operator=(GatewayCore&&) noexcept;

  void step(Time now, const GatewayEvent& event, GatewayEffects& out);
  Time next_deadline() const;

  const GatewayCounters& counters() const;
  /// Requests admitted and not ended.
  std::size_t live_requests() const;
  /// True when a request for `model` would be sent to a worker now.
  bool routable(const std::string& model) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace infos
