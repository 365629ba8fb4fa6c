// SPDX-License-Identifier: Apache-2.0
// Where GatewayCore sends a request: to the worker that is predicted to complete it first.
#include <algorithm>
#include <cmath>
#include <limits>

#include "daemon/control/gateway_state.h"

namespace infos {
namespace {

// Until a worker has measured itself. Any positive figures do: they only rank workers that know
// nothing.
constexpr double kPrefillRateGuess = 1000;  // tokens/s
constexpr double kDecodeStepGuess = 0.02;   // s
constexpr double kAnswerTokensGuess = 128;  // answers mostly end long before their limit
constexpr double kCrowding =
    1.0 / 32;  // how much one more sequence lengthens a decode step, as a share of it

}  // namespace

bool GatewayCore::State::has_room(const GatewayWorker& worker) const {
  return worker.up && !worker.load.draining &&
         worker.attached.size() < config.max_running_per_worker;
}

std::uint32_t GatewayCore::State::longest_context(const GatewayModel& model) const {
  std::uint32_t longest = 0;
  for (const WorkerId id : model.workers)
    longest = std::max(longest, workers.at(id).ready.max_context);
  return longest;
}

/// Seconds until `request` would be complete there: prefill ahead of it and its own at the measured
/// rate, then its decode steps in that company, behind those that wait for a place or for KV
/// blocks.
double GatewayCore::State::predicted_seconds(const GatewayWorker& worker,
                                             const GatewayRequest& request) const {
  const WorkerLoad& load = worker.load;
  const double rate =
      load.prefill_tokens_per_second > 0 ? load.prefill_tokens_per_second : kPrefillRateGuess;
  const double step = load.decode_step_seconds > 0 ? load.decode_step_seconds : kDecodeStepGuess;
  const double rows = static_cast<double>(worker.prefill_pending + request.length());
  const double answer = std::min<double>(request.arrive.max_new_tokens, kAnswerTokensGuess);
  const double company = static_cast<double>(worker.attached.size());
  const double ahead = load.running > 0 ? static_cast<double>(load.waiting) / load.running : 0;
  return rows / rate + answer * step * (1 + kCrowding * company + ahead);
}

/// A guess for Retry-After, whole seconds.
Duration GatewayCore::State::predicted_wait(const GatewayModel& model) const {
  double soonest = std::numeric_limits<double>::infinity();
  for (const WorkerId id : model.workers)
    soonest = std::min(soonest, predicted_seconds(workers.at(id), GatewayRequest{}));
  if (!std::isfinite(soonest)) return seconds(5);
  const double queued =
      static_cast<double>(model.queue.size()) / static_cast<double>(model.workers.size());
  const double wait = std::ceil(soonest * (1 + queued / 16));
  return seconds(static_cast<std::int64_t>(std::clamp(wait, 1.0, 30.0)));
}

GatewayCore::State::Placement GatewayCore::State::place(GatewayRequest& request,
                                                        const GatewayModel& model,
                                                        GatewayEffects& out) {
  WorkerId best;
  double best_seconds = 0;
  bool fits_somewhere = false;
  for (const WorkerId id : model.workers) {
    const GatewayWorker& worker = workers.at(id);
    if (request.length() >= worker.ready.max_context) continue;
    fits_somewhere = true;
    if (!has_room(worker)) continue;
    double predicted = predicted_seconds(worker, request);
    if (id == request.avoid) predicted += 1e6;  // only if there is nobody else
    if (!best || predicted < best_seconds) best = id, best_seconds = predicted;
  }
  if (!best)
    return fits_somewhere || model.workers.empty() ? Placement::no_room : Placement::fits_nowhere;
  GatewayWorker& worker = workers.at(best);
  const RequestId id = request.arrive.request;
  ++request.attempts;
  request.worker = best;
  request.prefill_pending = static_cast<std::uint32_t>(request.length());
  worker.prefill_pending += request.prefill_pending;
  worker.attached.insert(id);
  arm(request, request.arrive.deadline);
  Submit submit;
  submit.request = id;
  submit.attempt = request.attempt();
  submit.tokens.reserve(request.length());
  submit.tokens = request.arrive.prompt;
  submit.tokens.insert(submit.tokens.end(), request.emitted.begin(), request.emitted.end());
  submit.prompt_tokens = static_cast<std::uint32_t>(request.arrive.prompt.size());
  submit.max_new_tokens = request.arrive.max_new_tokens;
  submit.stop_tokens = request.arrive.stop_tokens;
  submit.sampling = request.arrive.sampling;
  out.push_back(SendWorker{best, worker.generation, std::move(submit)});
  return Placement::placed;
}

void GatewayCore::State::pump(const std::string& name, GatewayEffects& out) {
  const auto found = models.find(name);
  if (found == models.end()) return;
  GatewayModel& model = found->second;
  for (auto at = model.queue.begin(); at != model.queue.end();) {
    GatewayRequest& request = requests.at(at->second);
    const Placement placement = place(request, model, out);
    if (placement == Placement::no_room) return;
    if (placement == Placement::placed) {
      at = model.queue.erase(at);
      continue;
    }
    ++at;
    // A full context ends an answer; a prompt that fits nowhere waits for a larger worker until its
    // time is over.
    if (!request.emitted.empty()) finish(request, FinishReason::length, "", out);
  }
}

}  // namespace infos
