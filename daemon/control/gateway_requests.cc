// SPDX-License-Identifier: Apache-2.0
// A request's life inside GatewayCore: queue, attachment to a worker, its one last word.
#include <algorithm>

#include "daemon/control/gateway_state.h"
#include "daemon/control/mutant.h"
#include "topology/base/check.h"

namespace infos {
namespace {

Time after(Time now, Duration wait) { return wait.ns >= kNever.ns - now.ns ? kNever : now + wait; }

}  // namespace

/// (Re)sets a request's only timer.
void GatewayCore::State::arm(GatewayRequest& request, Time at) {
  if (request.timer != kNever) timers.erase({request.timer, request.arrive.request});
  request.timer = at;
  if (at != kNever) timers.emplace(at, request.arrive.request);
}

void GatewayCore::State::enqueue(GatewayRequest& request) {
  models[request.arrive.model].queue.emplace(request.order, request.arrive.request);
  arm(request, std::min(request.arrive.deadline, after(now, config.queue_timeout)));
}

void GatewayCore::State::dequeue(GatewayRequest& request) {
  models[request.arrive.model].queue.erase(request.order);
}

/// Its prompt is no longer in anybody's backlog.
void GatewayCore::State::prefill_over(GatewayRequest& request) {
  if (!request.prefilling) return;
  workers.at(request.prefilling).prefill_pending -= request.prefill_pending;
  request.prefill_pending = 0;
  request.prefilling = WorkerId{};
}

/// The prefill side has ended; who it was is still known.
void GatewayCore::State::detach_helper(GatewayRequest& request) {
  if (!request.helping) return;
  request.helping = false;
  workers.at(request.helper.worker).helped.erase(request.arrive.request);
  if (request.prefilling == request.helper.worker) prefill_over(request);
}

/// The request is no longer its workers'.
void GatewayCore::State::detach(GatewayRequest& request) {
  if (!request.worker) return;
  prefill_over(request);
  detach_helper(request);
  workers.at(request.worker).attached.erase(request.arrive.request);
  request.worker = WorkerId{};
  request.helper = WorkerRef{};
}

/// The helper may have ended and still keep KV for the other. Once that has drawn, it was told.
void GatewayCore::State::cancel_helper(GatewayRequest& request, GatewayEffects& out) {
  if (!request.helper.worker) return;
  if (!request.drawn) {
    out.push_back(SendWorker{request.helper.worker, request.helper.generation,
                             Cancel{request.arrive.request, request.attempt()}});
  }
  detach_helper(request);
  request.helper = WorkerRef{};
}

/// The decode side has all KV, wherever it is from. It may never have asked its helper for any (it
/// found a prefix, they do not reach each other), which would keep it for long. Returns: true if
/// the helper was at work.
bool GatewayCore::State::first_draw(GatewayRequest& request, GatewayEffects& out) {
  const bool helped = request.helping;
  if (request.helper.worker) {
    out.push_back(SendWorker{request.helper.worker, request.helper.generation,
                             Cancel{request.arrive.request, request.attempt()}});
    detach_helper(request);
  }
  request.drawn = true;
  return helped;
}

/// Tells its workers, if it has any, to stop.
void GatewayCore::State::cancel(GatewayRequest& request, GatewayEffects& out) {
  if (!request.worker) return;
  cancel_helper(request, out);
  out.push_back(SendWorker{request.worker, workers.at(request.worker).generation,
                           Cancel{request.arrive.request, request.attempt()}});
}

/// The attempt is over without an answer: another one, if there may be one. The caller pumps.
void GatewayCore::State::retry(GatewayRequest& request, const std::string& why,
                               GatewayEffects& out) {
  request.avoid = request.worker;
  cancel_helper(request, out);
  detach(request);
  if (request.emitted.size() >= request.arrive.max_new_tokens && !request.emitted.empty()) {
    finish(request, FinishReason::length, "", out);  // only its end was lost
  } else if (request.attempts >= config.max_attempts) {
    fail(request, "attempts_exhausted",
         "gave up after " + std::to_string(request.attempts) + " attempts: " + why, out);
  } else {
    enqueue(request);
  }
}

void GatewayCore::State::finish(GatewayRequest& request, FinishReason reason, std::string message,
                                GatewayEffects& out) {
  Finish end;
  end.request = request.arrive.request;
  end.reason = reason;
  end.prompt_tokens = static_cast<std::uint32_t>(request.arrive.prompt.size());
  end.cached_tokens = request.cached_tokens;
  end.completion_tokens = static_cast<std::uint32_t>(request.emitted.size());
  end.attempts = std::max(request.attempts, 1U);
  end.message = std::move(message);
  if (planted(Mutant::double_completion)) out.push_back(end);
  out.push_back(std::move(end));
  forget(request);
}

/// It could not be served: a refusal while the client has seen nothing, else an answer that ends
/// with an error.
void GatewayCore::State::fail(GatewayRequest& request, const char* code, std::string message,
                              GatewayEffects& out) {
  if (request.emitted.empty())
    reject(request, 503, code, std::move(message), out);
  else
    finish(request, FinishReason::error, std::move(message), out);
}

void GatewayCore::State::reject(GatewayRequest& request, std::uint16_t status, const char* code,
                                std::string message, GatewayEffects& out) {
  INFOS_CHECK(request.emitted.empty());
  const Duration wait =
      status == 429 || status == 503 ? predicted_wait(models[request.arrive.model]) : Duration{};
  out.push_back(Reject{request.arrive.request, status, code, std::move(message), wait});
  forget(request);
}

void GatewayCore::State::forget(GatewayRequest& request) {
  detach(request);
  dequeue(request);
  arm(request, kNever);
  tokens_held -= request.arrive.prompt.size();
  const auto tenant = tenants.find(request.arrive.tenant);
  if (tenant != tenants.end() && --tenant->second == 0) tenants.erase(tenant);
  requests.erase(request.arrive.request);
}

}  // namespace infos
