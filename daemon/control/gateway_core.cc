// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/gateway_core.h"

#include <algorithm>

#include "daemon/control/gateway_state.h"
#include "daemon/control/mutant.h"
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
      std::ranges::any_of(model->workers, [&](const auto& of) { return has_room(*of.second); });
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
  prefixes.remove_holder(worker.holder);
  const std::set<RequestId> helped = worker.helped;
  for (const RequestId request : helped)
    helper_ended(requests.at(request), FinishReason::error, out);
  const std::set<RequestId> orphans =
      planted(Mutant::orphans_forgotten) ? std::set<RequestId>{} : worker.attached;
  for (const RequestId request : orphans) retry(requests.at(request), "the worker is gone", out);
  INFOS_CHECK(worker.attached.empty() || planted(Mutant::orphans_forgotten));
  INFOS_CHECK(worker.helped.empty());
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
  worker.holder = prefixes.add_holder();
  prefixes.hold(worker.holder, event.ready.prefixes);
  worker.ready.prefixes.clear();
  models[event.ready.model].workers[event.worker] = &worker;
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
  if (found != requests.end() && found->second.worker && found->second.attempt() == attempt &&
      (found->second.worker == said.worker || found->second.helper.worker == said.worker)) {
    return &found->second;
  }
  out.push_back(SendWorker{said.worker, said.generation, Cancel{request, attempt}});
  return nullptr;
}

/// The decode side of a split attempt draws again what the prefill side drew. What was delivered
/// stands: if it cannot go on from there (the KV was converted with loss), its attempt is done
/// anew.
void GatewayCore::State::take_repeat(GatewayRequest& request, const TokenOut& token,
                                     GatewayEffects& out) {
  if (request.emitted[token.index] == token.sampled.token) return;
  ++counters.divergences;
  cancel(request, out);
  request.never_split = true;
  const RequestId id = request.arrive.request;
  retry(request, "the fetched KV gave another token", out);
  const auto again = requests.find(id);
  if (again != requests.end()) again->second.avoid = WorkerId{};  // its KV is its own now
}

/// The prefill side has ended: with the prompt computed, or in vain. The decode side goes on.
void GatewayCore::State::helper_ended(GatewayRequest& request, FinishReason reason,
                                      GatewayEffects& out) {
  detach_helper(request);
  if (reason == FinishReason::prefilled) return;
  ++counters.halves_lost;
  if (request.drawn) return;
  out.push_back(SendWorker{request.worker, workers.at(request.worker).generation,
                           KvWithheld{request.arrive.request, request.attempt()}});
}

/// Returns: true if another worker than the one that speaks has room again.
bool GatewayCore::State::take_tokens(const WorkerSaid& said, GatewayEffects& out) {
  bool freed = false;
  std::size_t mine =
      SIZE_MAX;  // the last effect, if it is a Deliver to the request of the token before
  for (const TokenOut& token : said.report.tokens) {
    GatewayRequest* request = current(said, token.request, token.attempt, out);
    if (!request) continue;
    prefill_over(*request);
    const bool helps = request->worker != said.worker;
    if (!helps && !request->drawn) freed |= first_draw(*request, out);
    const std::size_t next = request->emitted.size();
    if (token.index < next && request->helper.worker && !helps) take_repeat(*request, token, out);
    if (token.index < next && planted(Mutant::repeated_token_delivered))
      out.push_back(Deliver{token.request, {token.sampled}});
    if (token.index < next || next >= request->arrive.max_new_tokens)
      continue;  // said twice, or beyond the answer
    if (token.index > next && helps) continue;
    if (token.index > next && !planted(Mutant::token_gap_accepted)) {
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
  return freed;
}

/// An end that is of no attempt under way. A worker that has computed a prompt for another one
/// keeps its KV, and may not have heard that nobody wants it.
void GatewayCore::State::take_late_end(const WorkerSaid& said, const SequenceEnd& end,
                                       GatewayEffects& out) {
  if (end.reason != FinishReason::prefilled) return;
  out.push_back(SendWorker{said.worker, said.generation, Cancel{end.request, end.attempt}});
}

void GatewayCore::State::take_end(const WorkerSaid& said, const SequenceEnd& end,
                                  GatewayEffects& out) {
  const auto found = requests.find(end.request);
  if (found == requests.end()) return take_late_end(said, end, out);
  GatewayRequest& request = found->second;
  if (!request.worker || request.attempt() != end.attempt) return take_late_end(said, end, out);
  const bool helps = request.worker != said.worker;
  if (helps && (request.helper.worker != said.worker || !request.helping))
    return take_late_end(said, end, out);
  request.cached_tokens =
      std::max(request.helper.worker ? request.cached_tokens : 0, end.cached_tokens);
  if (helps && !planted(Mutant::half_taken_for_whole)) {
    // A stop token ends the answer whoever drew it.
    const bool over = end.reason == FinishReason::stop && !request.drawn &&
                      end.answer_tokens == request.emitted.size();
    helper_ended(request, over ? FinishReason::prefilled : end.reason, out);
    if (!over) return;
    cancel(request, out);
    return finish(request, FinishReason::stop, "", out);
  }
  cancel_helper(request, out);
  const bool answered = end.reason == FinishReason::stop || end.reason == FinishReason::length ||
                        (planted(Mutant::half_taken_for_whole) && helps);
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
  for (const FetchStat& stat : event.report.fetches) learn(event.worker, stat);
  prefixes.hold(worker.holder, event.report.held);
  prefixes.drop(worker.holder, event.report.dropped);
  const std::size_t busy = worker.attached.size() + worker.helped.size();
  const bool freed = take_tokens(event, out);
  for (const SequenceEnd& end : event.report.ended) take_end(event, end, out);
  if (freed || worker.attached.size() + worker.helped.size() != busy) pump(worker.ready.model, out);
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
const GatewayCounters& GatewayCore::counters() const { return state_->counters; }
std::size_t GatewayCore::live_requests() const { return state_->requests.size(); }

bool GatewayCore::routable(const std::string& model) const {
  const auto found = state_->models.find(model);
  if (found == state_->models.end() || found->second.withdrawn) return false;
  return std::ranges::any_of(found->second.workers,
                             [&](const auto& of) { return state_->has_room(*of.second); });
}

}  // namespace infos
