// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/gateway.h"

#include <boost/asio/post.hpp>

#include <chrono>
#include <ctime>
#include <random>
#include <set>
#include <utility>

#include "daemon/gateway/gateway_state.h"
#include "topology/base/check.h"
#include "topology/base/log.h"

namespace infos {
namespace {

std::uint64_t seed_of(std::uint64_t given) {
  if (given != 0) return given;
  std::random_device entropy;
  return (std::uint64_t{entropy()} << 32) | entropy();
}

}  // namespace

Gateway::State::State(boost::asio::io_context& io_context, GatewayOptions given, ApiKeys given_keys)
    : io(io_context),
      options(std::move(given)),
      keys(std::move(given_keys)),
      core(options.core),
      rng(seed_of(options.seed)),
      server(io_context, options, *this),
      timer(io_context),
      next_request(options.first_request.value) {
  add_built_ins();
}

Gateway::State::~State() = default;

void Gateway::State::stop() {
  if (std::exchange(stopped, true)) return;
  draining = true;
  fail_all(api_error(503, "shutting_down", "The server is shutting down."));
  server.stop();
  timer.cancel();
  helper.stop();  // what has not begun is dropped: nobody waits for it any more
  helper.join();
  *alive = false;
}

// Clients are told, not left with a connection that breaks: they could not know that asking again
// makes sense.
void Gateway::State::fail_all(const ApiError& error) {
  std::set<std::shared_ptr<Call>> calls;
  for (const auto& [id, place] : places) calls.insert(place.call);
  for (const auto& call : calls) fail_call(*call, error, Outcome::error);
}

// ---- the core ----

// Events that come of effects (a stop string, a client that is found gone) wait for their turn.
void Gateway::State::step(GatewayEvent event) {
  pending.push_back(std::move(event));
  if (stepping) return;
  stepping = true;
  do {
    while (!pending.empty()) {
      const GatewayEvent next = std::move(pending.front());
      pending.pop_front();
      effects.clear();
      const Time now = monotonic_now();
      core.step(now, next, effects);
      if (tap) tap(now, next, effects);
      traces.observe(now, next, effects);
      perform(effects);
    }
    // One write per connection and step, however many of its choices got tokens.
    std::vector<std::shared_ptr<HttpSession>> written;
    written.swap(dirty);
    for (const auto& session : written) session->flush();
  } while (!pending.empty() || !dirty.empty());
  stepping = false;
  arm_timer();
  check_drained();
}

void Gateway::State::perform(GatewayEffects& wishes) {
  for (GatewayEffect& effect : wishes) {
    if (auto* deliver = std::get_if<Deliver>(&effect)) {
      on_deliver(*deliver);
    } else if (auto* finish = std::get_if<Finish>(&effect)) {
      on_finish(*finish);
    } else if (auto* send = std::get_if<SendWorker>(&effect)) {
      if (send_worker) send_worker(*send);
    } else if (auto* reject = std::get_if<Reject>(&effect)) {
      on_reject(*reject);
    }
  }
}

void Gateway::State::on_reject(const Reject& reject) {
  const auto it = places.find(reject.request.value);
  if (it == places.end()) return;
  const auto call = it->second.call;
  places.erase(it);
  ApiError error = api_error(reject.http_status, reject.code, reject.message);
  error.retry_after = reject.retry_after;
  fail_call(*call, error, Outcome::rejected);
}

void Gateway::State::on_deliver(const Deliver& deliver) {
  const auto it = places.find(deliver.request.value);
  if (it == places.end()) return;
  Call& call = *it->second.call;
  const std::uint32_t choice = it->second.choice;
  const Time now = monotonic_now();
  Time& last = call.last_token[choice];
  if (last == Time{}) {
    call.metrics->ttft->Observe((now - call.arrived).seconds());
  } else {
    call.metrics->inter_token->Observe((now - last).seconds());
  }
  last = now;
  call.metrics->generated_tokens->Increment(static_cast<double>(deliver.tokens.size()));
  if (call.answer->deliver(choice, deliver.tokens)) step(StopHit{deliver.request});
  if (call.answer->mode() != AnswerMode::stream) return;
  if (!std::exchange(call.stream_begun, true)) {
    HttpAnswer head;
    head.content_type = "text/event-stream; charset=utf-8";
    call.session->begin_stream(head);
  }
  std::string& stream = call.session->stream();
  if (stream.empty()) dirty.push_back(call.session);
  call.answer->take_events(stream);
}

void Gateway::State::on_finish(const Finish& finish) {
  const auto it = places.find(finish.request.value);
  if (it == places.end()) return;
  const auto call = it->second.call;
  const std::uint32_t choice = it->second.choice;
  places.erase(it);
  if (finish.reason == FinishReason::error || finish.reason == FinishReason::cancelled) {
    const std::string why =
        finish.message.empty() ? "the request was cancelled by the server" : finish.message;
    return fail_call(
        *call,
        api_error(500, "generation_failed", "The answer could not be completed: " + why + "."),
        Outcome::error);
  }
  call->answer->finish(choice, finish);
  if (call->answer->complete()) complete_call(*call);
}

// Re-armed only when the core wants to be woken earlier; waking too early costs nothing but a look.
void Gateway::State::arm_timer() {
  const Time next = core.next_deadline();
  if (next >= timer_at || stopped) return;
  timer_at = next;
  timer.expires_at(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(next.ns)));
  timer.async_wait([this, watch = alive](boost::system::error_code ec) {
    if (ec || !*watch) return;
    timer_at = kNever;
    if (core.next_deadline() <= monotonic_now()) {
      step(GatewayTick{});
    } else {
      arm_timer();
    }
  });
}

void Gateway::State::check_drained() {
  if (!drained || !places.empty()) return;
  boost::asio::post(io, std::exchange(drained, nullptr));
}

// ---- the public side ----

Result<std::unique_ptr<Gateway>> Gateway::create(boost::asio::io_context& io,
                                                 GatewayOptions options) {
  ApiKeys keys;
  if (!options.api_keys_file.empty()) keys = INFOS_TRY(ApiKeys::load(options.api_keys_file));
  return std::unique_ptr<Gateway>(
      new Gateway(std::make_unique<State>(io, std::move(options), std::move(keys))));
}

Gateway::Gateway(std::unique_ptr<State> state) : state_(std::move(state)) {}
Gateway::~Gateway() { stop(); }

Result<std::uint16_t> Gateway::listen(const std::string& address, std::uint16_t port) {
  return state_->server.listen(address, port);
}
Status Gateway::listen_unix(const std::string& path) { return state_->server.listen_unix(path); }

Status Gateway::reload_api_keys() {
  if (state_->options.api_keys_file.empty()) return {};
  Result<ApiKeys> keys = ApiKeys::load(state_->options.api_keys_file);
  if (!keys.ok()) return std::move(keys).error();
  state_->keys = *std::move(keys);
  return {};
}

void Gateway::drain(std::function<void()> done) {
  state_->draining = true;
  state_->drained = std::move(done);
  state_->server.drain();
  state_->check_drained();
}

void Gateway::stop() { state_->stop(); }

Status Gateway::add_model(ServedModel model) {
  if (model.name.empty() || model.name.size() > 256) {
    return Error{ErrorCode::invalid_argument,
                 "a model's name has 1 to 256 bytes, not " + std::to_string(model.name.size())};
  }
  if (!model.tokenizer)
    return Error{ErrorCode::invalid_argument, "model " + model.name + ": no tokenizer"};
  if (model.config.max_context == 0) {
    return Error{ErrorCode::invalid_argument,
                 "model " + model.name + ": max_context is 0, at least 1 token is needed"};
  }
  if (model.created == 0) model.created = std::time(nullptr);
  auto next = std::make_shared<ModelMap>(*state_->models);
  const std::string name = model.name;
  (*next)[name] = std::make_shared<const ServedModel>(std::move(model));
  state_->models = std::move(next);
  state_->metrics.model(name);
  state_->step(ModelListed{name, true});
  return {};
}

void Gateway::remove_model(const std::string& name) {
  auto next = std::make_shared<ModelMap>(*state_->models);
  next->erase(name);
  state_->models = std::move(next);
  state_->step(ModelListed{name, false});
}

bool Gateway::offers(const std::string& name) const { return state_->models->contains(name); }

void Gateway::set_loading(const std::string& model, Loading loading) {
  if (state_->models->contains(model))
    state_->step(ModelListed{model, true, loading == Loading::failed});
}

void Gateway::worker_up(WorkerUp up) {
  state_->workers[up.worker] = {up.worker, up.generation, up.ready};
  state_->step(std::move(up));
}

void Gateway::worker_down(const WorkerDown& down) {
  const auto it = state_->workers.find(down.worker);
  if (it != state_->workers.end() && it->second.generation == down.generation)
    state_->workers.erase(it);
  state_->step(down);
}

void Gateway::worker_said(WorkerId worker, Generation generation, StepReport report) {
  const auto it = state_->workers.find(worker);
  if (it != state_->workers.end() && it->second.generation == generation)
    it->second.ready.load = report.load;
  state_->step(WorkerSaid{worker, generation, std::move(report)});
}

void Gateway::on_send_worker(std::function<void(const SendWorker&)> send) {
  state_->send_worker = std::move(send);
}
void Gateway::set_ready(Ready ready) { state_->ready = ready; }
bool Gateway::routable(const std::string& model) const { return state_->core.routable(model); }
std::size_t Gateway::live_requests() const { return state_->core.live_requests(); }

void Gateway::on_step(std::function<void(Time, const GatewayEvent&, const GatewayEffects&)> tap) {
  state_->tap = std::move(tap);
}

prometheus::Registry& Gateway::registry() { return *state_->metrics.registry(); }
std::shared_ptr<prometheus::Registry> Gateway::shared_registry() {
  return state_->metrics.registry();
}

std::vector<Gateway::WorkerView> Gateway::workers() const {
  std::vector<WorkerView> out;
  for (const auto& [id, view] : state_->workers) out.push_back(view);
  return out;
}

const TraceLog& Gateway::traces() const { return state_->traces; }
std::vector<RequestTrace> Gateway::take_ended_traces() { return state_->traces.take_ended(); }

void Gateway::handle(const std::string& method, const std::string& path, Exposure exposure,
                     HttpHandler handler) {
  INFOS_CHECK(!path.empty());
  const bool prefix = path.back() == '*';
  auto& table = prefix ? state_->prefixes : state_->routes;
  State::Route& route = table[prefix ? path.substr(0, path.size() - 1) : path];
  INFOS_CHECK(!route.built_in);
  route.exposure = exposure;
  route.registered[method] = std::move(handler);
}

}  // namespace infos
