// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/gateway_core.h"

#include <algorithm>

#include "daemon/control/gateway_state.h"
#include "topology/base/check.h"

namespace infos {

namespace {

// Without the reason: it names the server's files, and is not the client's to mend.
std::string failed_to_load(const std::string& model) {
  return "the model '" + model + "' failed to load on this server";
}

}  // namespace

/// Why a new request is not admitted.
std::optional<Reject> GatewayCore::State::refuse(const Arrive& event) {
  const auto no = [&](std::uint16_t status, const char* code, std::string message) {
    const Duration wait = status == 429 ? predicted_wait(models.at(event.model)) : Duration{};
    return Reject{event.request, status, code, std::move(message), wait};
  };
  const auto found = models.find(event.model);
  const GatewayModel* model = found == models.end() ? nullptr : &found->second;
  if (!model || model->withdrawn || (!model->listed && model->workers.empty())) {
    return no(404, "model_not_found", "the model '" + event.model + "' does not exist");
  }
  if (model->failed && model->workers.empty())
    return no(503, "model_failed", failed_to_load(event.model));
  if (event.prompt.empty())
    return no(400, "invalid_prompt", "the prompt has no tokens, at least one is needed");
  const std::uint32_t context = longest_context(*model);
  if (!model->workers.empty() && event.prompt.size() >= context) {
    return no(400, "context_length_exceeded",
              "the prompt has " + std::to_string(event.prompt.size()) +
                  " tokens, the context of this model is " + std::to_string(context) +
                  " with at least one for the answer");
  }
  if (event.deadline <= now) return no(503, "deadline_exceeded", "the deadline has passed already");
  if (requests.size() >= config.max_requests) {
    return no(429, "rate_limit_exceeded",
              std::to_string(requests.size()) + " requests are being served, no more are taken");
  }
  if (tokens_held + event.prompt.size() > config.max_tokens_total) {
    return no(429, "rate_limit_exceeded",
              "all requests together hold " + std::to_string(tokens_held) +
                  " prompt tokens, at most " + std::to_string(config.max_tokens_total));
  }
  const auto tenant = tenants.find(event.tenant);
  if (config.max_per_tenant > 0 && tenant != tenants.end() &&
      tenant->second >= config.max_per_tenant) {
    return no(429, "rate_limit_exceeded",
              "the tenant has " + std::to_string(tenant->second) +
                  " requests under way, no more are taken");
  }
  const bool room =
      std::ranges::any_of(model->workers, [&](WorkerId id) { return has_room(workers.at(id)); });
  if ((!room || !model->queue.empty()) && model->queue.size() >= config.max_queued_per_model) {
    return no(429, "rate_limit_exceeded",
              std::to_string(model->queue.size()) + " requests wait already");
  }
  return std::nullopt;
}

void GatewayCore::State::on(const Arrive& event, GatewayEffects& out) {
  if (requests.contains(event.request)) return;
  if (std::optional<Reject> refusal = refuse(event)) {
    out.push_back(std::move(*refusal));
    return;
  }
  GatewayRequest& request = requests[event.request];
  request.arrive = event;
  request.order = ++arrivals;
  tokens_held += event.prompt.size();
  if (!event.tenant.empty()) ++tenants[event.tenant];
  enqueue(request);
  pump(event.model, out);
}

void GatewayCore::State::on(const ClientGone& event, GatewayEffects& out) {
  const auto found = requests.find(event.request);
  if (found == requests.end()) return;
  const std::string model = found->second.arrive.model;
  cancel(found->second, out);
  finish(found->second, FinishReason::cancelled, "", out);
  pump(model, out);
}

void GatewayCore::State::on(const StopHit& event, GatewayEffects& out) {
  const auto found = requests.find(event.request);
  if (found == requests.end()) return;
  const std::string model = found->second.arrive.model;
  cancel(found->second, out);
  finish(found->second, FinishReason::stop, "", out);
  pump(model, out);
}

/// All its requests go on elsewhere.
void GatewayCore::State::worker_lost(WorkerId id, GatewayWorker& worker, GatewayEffects& out) {
  if (!worker.up) return;
  worker.up = false;
  models[worker.ready.model].workers.erase(id);
  const std::set<RequestId> orphans = worker.attached;
  for (const RequestId request : orphans) retry(requests.at(request), "the worker is gone", out);
  INFOS_CHECK(worker.attached.empty());
}

void GatewayCore::State::on(const WorkerUp& event, GatewayEffects& out) {
  GatewayWorker& worker = workers[event.worker];
  if (std::pair(event.generation, event.link) < std::pair(worker.generation, worker.link)) return;
  if (worker.generation && event.generation == worker.generation && event.link == worker.link)
    return;  // said twice, or down since
  const std::string before = worker.ready.model;
  worker_lost(event.worker, worker, out);
  worker.generation = event.generation;
  worker.link = event.link;
  worker.up = true;
  worker.ready = event.ready;
  worker.load = event.ready.load;
  models[event.ready.model].workers.insert(event.worker);
  models[event.ready.model].failed = false;
  pump(event.ready.model, out);
  if (before != event.ready.model) pump(before, out);
}

void GatewayCore::State::on(const WorkerDown& event, GatewayEffects& out) {
  GatewayWorker& worker = workers[event.worker];
  if (std::pair(event.generation, event.link) < std::pair(worker.generation, worker.link)) return;
  worker_lost(event.worker, worker, out);
  worker.generation = event.generation;
  worker.link = event.link;
  pump(worker.ready.model, out);
}

/// The request that a worker speaks of, if what it says is of the attempt under way. Otherwise the
/// worker is told to stop.
GatewayRequest* GatewayCore::State::current(const WorkerSaid& said, RequestId request,
                                            Attempt attempt, GatewayEffects& out) {
  const auto found = requests.find(request);
  if (found != requests.end() && found->second.worker == said.worker &&
      found->second.attempt() == attempt) {
    return &found->second;
  }
  out.push_back(SendWorker{said.worker, said.generation, Cancel{request, attempt}});
  return nullptr;
}

void GatewayCore::State::take_tokens(GatewayWorker& worker, const WorkerSaid& said,
                                     GatewayEffects& out) {
  std::size_t mine =
      SIZE_MAX;  // the last effect, if it is a Deliver to the request of the token before
  for (const TokenOut& token : said.report.tokens) {
    GatewayRequest* request = current(said, token.request, token.attempt, out);
    if (!request) continue;
    if (request->prefill_pending > 0) {
      worker.prefill_pending -= request->prefill_pending;
      request->prefill_pending = 0;
    }
    const std::size_t next = request->emitted.size();
    if (token.index < next || next >= request->arrive.max_new_tokens)
      continue;  // said twice, or beyond the answer
    if (token.index > next) {
      cancel(*request, out);
      retry(*request,
            "token " + std::to_string(token.index) + " came where " + std::to_string(next) +
                " was due",
            out);
      continue;
    }
    request->emitted.push_back(token.sampled.token);
    if (mine != SIZE_MAX && mine + 1 == out.size()) {
      auto& last = std::get<Deliver>(out[mine]);
      if (last.request == token.request) {
        last.tokens.push_back(token.sampled);
        continue;
      }
    }
    mine = out.size();
    out.push_back(Deliver{token.request, {token.sampled}});
  }
}

void GatewayCore::State::take_end(const WorkerSaid& said, const SequenceEnd& end,
                                  GatewayEffects& out) {
  const auto found = requests.find(end.request);
  if (found == requests.end()) return;
  GatewayRequest& request = found->second;
  if (request.worker != said.worker || request.attempt() != end.attempt) return;
  request.cached_tokens = end.cached_tokens;
  const bool answered = end.reason == FinishReason::stop || end.reason == FinishReason::length;
  if (answered && end.answer_tokens == request.emitted.size()) {
    finish(request, end.reason, "", out);
  } else if (answered) {
    retry(request,
          "the answer has " + std::to_string(end.answer_tokens) + " tokens, " +
              std::to_string(request.emitted.size()) + " came",
          out);
  } else if (end.reason == FinishReason::error && !end.retryable) {
    finish(request, FinishReason::error, end.message, out);
  } else {
    retry(request, end.message.empty() ? "the worker gave it back" : end.message, out);
  }
}

void GatewayCore::State::on(const WorkerSaid& event, GatewayEffects& out) {
  const auto found = workers.find(event.worker);
  if (found == workers.end() || !found->second.up || found->second.generation != event.generation)
    return;
  GatewayWorker& worker = found->second;
  worker.load = event.report.load;
  const std::size_t attached = worker.attached.size();
  take_tokens(worker, event, out);
  for (const SequenceEnd& end : event.report.ended) take_end(event, end, out);
  if (worker.attached.size() != attached) pump(worker.ready.model, out);
}

void GatewayCore::State::on(const ModelListed& event, GatewayEffects& out) {
  if (!event.listed && !models.contains(event.model)) return;
  GatewayModel& model = models[event.model];
  model.listed = event.listed;
  model.withdrawn = !event.listed;
  model.failed = event.failed;
  if (event.listed && !(event.failed && model.workers.empty())) return;
  const std::map<std::uint64_t, RequestId> queued = model.queue;
  for (const auto& [order, id] : queued) {
    GatewayRequest& request = requests.at(id);
    const std::string message = event.listed
                                    ? failed_to_load(event.model)
                                    : "the model '" + event.model + "' is no longer served";
    if (event.listed)
      fail(request, "model_failed", message, out);
    else if (request.emitted.empty())
      reject(request, 404, "model_not_found", message, out);
    else
      finish(request, FinishReason::error, message, out);
  }
}

/// Deadlines and queue time-outs that are due.
void GatewayCore::State::expire(GatewayEffects& out) {
  std::set<std::string> freed;
  while (!timers.empty() && timers.begin()->first <= now) {
    GatewayRequest& request = requests.at(timers.begin()->second);
    freed.insert(request.arrive.model);
    cancel(request, out);
    if (request.arrive.deadline <= now)
      fail(request, "deadline_exceeded", "the deadline has passed", out);
    else
      fail(request, "no_worker", "no worker could take the request in time", out);
  }
  for (const std::string& model : freed) pump(model, out);
}

GatewayCore::GatewayCore(const GatewayConfig& config) : state_(std::make_unique<State>(config)) {}
GatewayCore::~GatewayCore() = default;
GatewayCore::GatewayCore(GatewayCore&&) noexcept = default;
GatewayCore& GatewayCore::operator=(GatewayCore&&) noexcept = default;

void GatewayCore::step(Time now, const GatewayEvent& event, GatewayEffects& out) {
  state_->now = std::max(state_->now, now);
  state_->expire(out);
  std::visit([&](const auto& e) { state_->on(e, out); }, event);
}

Time GatewayCore::next_deadline() const {
  return state_->timers.empty() ? kNever : state_->timers.begin()->first;
}
std::size_t GatewayCore::live_requests() const { return state_->requests.size(); }

bool GatewayCore::routable(const std::string& model) const {
  const auto found = state_->models.find(model);
  if (found == state_->models.end() || found->second.withdrawn) return false;
  return std::ranges::any_of(found->second.workers,
                             [&](WorkerId id) { return state_->has_room(state_->workers.at(id)); });
}

}  // namespace infos
