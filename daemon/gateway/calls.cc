// SPDX-License-Identifier: Apache-2.0
// The life of one API call: parsed and tokenized (aside when long), given to the core, answered or
// given up.
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "daemon/gateway/gateway_state.h"
#include "topology/base/check.h"
#include "topology/base/log.h"

namespace infos {
namespace {

// Long prompts waiting for the helper thread; each may hold a body of the largest size.
constexpr std::size_t kHelperJobsMax = 32;

ApiError no_such_model(const std::string& name) {
  ApiError e = api_error(404, "model_not_found", "The model '" + name + "' does not exist.");
  e.param = "model";
  return e;
}

ApiResult<ReadyCall> prepare_call(Api api, const std::string& body, const RequestLimits& limits,
                                  const ModelMap& models, std::uint64_t default_seed) {
  auto parsed = parse_generate(api, body, limits);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  ReadyCall ready;
  ready.request = std::get<0>(std::move(parsed));
  const auto it = models.find(ready.request.model);
  if (it == models.end()) return no_such_model(ready.request.model);
  ready.model = it->second;
  auto prepared =
      prepare(ready.request, *ready.model, ready.model->config.max_context, default_seed);
  if (auto* error = std::get_if<ApiError>(&prepared)) return std::move(*error);
  ready.prepared = std::get<0>(std::move(prepared));
  return ready;
}

template <typename Request>
ApiResult<std::shared_ptr<const ServedModel>> model_of(const Request& request,
                                                       const ModelMap& models) {
  // With one model on offer there is no doubt which one is meant.
  if (request.model.empty() && models.size() == 1) return models.begin()->second;
  const auto it = models.find(request.model);
  if (it == models.end()) return no_such_model(request.model);
  return it->second;
}

ApiResult<std::string> tokenized(const std::string& body, const RequestLimits& limits,
                                 const ModelMap& models) {
  auto parsed = parse_tokenize(body, limits);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  const TokenizeRequest& request = std::get<0>(parsed);
  auto model = model_of(request, models);
  if (auto* error = std::get_if<ApiError>(&model)) return std::move(*error);
  const ServedModel& served = *std::get<0>(model);
  auto tokens = prepare_tokens(request, served);
  if (auto* error = std::get_if<ApiError>(&tokens)) return std::move(*error);
  return tokenize_body(std::get<0>(tokens), served.config.max_context,
                       request.return_token_strs ? served.tokenizer.get() : nullptr);
}

ApiResult<std::string> detokenized(const std::string& body, const RequestLimits& limits,
                                   const ModelMap& models) {
  auto parsed = parse_detokenize(body, limits);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  const DetokenizeRequest& request = std::get<0>(parsed);
  auto model = model_of(request, models);
  if (auto* error = std::get_if<ApiError>(&model)) return std::move(*error);
  const Tokenizer& tokenizer = *std::get<0>(model)->tokenizer;
  Detokenizer detokenizer(tokenizer);
  std::string text;
  for (const TokenId token : request.tokens) {
    if (static_cast<std::size_t>(token) >= tokenizer.vocabulary()) {
      ApiError e =
          api_error(400, "invalid_value",
                    "Token id " + std::to_string(token) + " is not one of the model's, 0 to " +
                        std::to_string(tokenizer.vocabulary() - 1) + ".");
      e.param = "tokens";
      return e;
    }
    text += detokenizer.push(token);
  }
  text += detokenizer.flush();
  return detokenize_body(text);
}

HttpAnswer json_answer(ApiResult<std::string> result) {
  if (const auto* error = std::get_if<ApiError>(&result)) return to_answer(*error);
  HttpAnswer answer;
  answer.body = std::get<0>(std::move(result));
  return answer;
}

}  // namespace

ApiError api_error(int status, std::string code, std::string message) {
  ApiError error;
  error.status = status;
  error.code = std::move(code);
  error.message = std::move(message);
  if (status == 401) error.type = "authentication_error";
  if (status == 429) error.type = "rate_limit_error";
  if (status >= 500) error.type = "server_error";
  return error;
}

HttpAnswer to_answer(const ApiError& error) {
  HttpAnswer answer;
  answer.status = error.status;
  answer.body = error_body(error);
  answer.retry_after = error.retry_after;
  // Whoever is told "not now" is told when.
  if ((error.status == 429 || error.status == 503) && answer.retry_after.ns == 0)
    answer.retry_after = seconds(1);
  return answer;
}

template <typename Work, typename Then>
void Gateway::State::run(std::size_t bytes, const std::shared_ptr<HttpSession>& session, Work work,
                         Then then) {
  if (bytes <= options.tokenize_aside_bytes) return then(work());
  if (helper_jobs >= kHelperJobsMax) {
    return session->reply(
        to_answer(api_error(503, "overloaded", "Too many long prompts are waiting; try again.")));
  }
  ++helper_jobs;
  auto guard = boost::asio::make_work_guard(io);
  boost::asio::post(helper, [this, watch = alive, guard = std::move(guard), work = std::move(work),
                             then = std::move(then)]() mutable {
    auto result = work();
    boost::asio::post(io,
                      [this, watch, result = std::move(result), then = std::move(then)]() mutable {
                        if (!*watch) return;
                        --helper_jobs;
                        then(std::move(result));
                      });
  });
}

std::string Gateway::State::new_id(const char* prefix) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id = prefix;
  for (int word = 0; word < 2; ++word) {
    std::uint64_t bits = rng.next();
    for (int i = 0; i < 12; ++i, bits >>= 4) id += kDigits[bits & 15];
  }
  return id;
}

std::string Gateway::State::name_request(HttpSession& session, const HttpHead& head) {
  std::string id = safe_request_id(head.request_id).value_or("");
  if (id.empty()) id = new_id("req-");
  session.set_request_id(id);
  return id;
}

void Gateway::State::generate(const std::shared_ptr<HttpSession>& session, HttpMessage message,
                              Api api) {
  auto call = std::make_shared<Call>();
  call->session = session;
  call->arrived = monotonic_now();
  call->request_id = name_request(*session, message.head);
  if (valid_traceparent(message.head.traceparent)) call->traceparent = message.head.traceparent;
  call->metrics = &metrics.model("");
  const std::size_t bytes = message.body.size();
  run(
      bytes, session,
      [api, body = std::move(message.body), limits = options.request, models_now = models,
       seed = rng.next()] { return prepare_call(api, body, limits, *models_now, seed); },
      [this, call, head = std::move(message.head)](ApiResult<ReadyCall> result) {
        if (!call->session->open()) return;
        if (auto* error = std::get_if<ApiError>(&result))
          return fail_call(*call, *error, Outcome::rejected);
        start_call(call, head, std::get<0>(std::move(result)));
      });
}

void Gateway::State::start_call(const std::shared_ptr<Call>& call, const HttpHead& head,
                                ReadyCall ready) {
  const GenerateRequest& request = ready.request;
  call->model = request.model;
  call->metrics = &metrics.model(request.model);
  call->tenant = tenant_of(head);
  if (draining)
    return fail_call(*call, api_error(503, "shutting_down", "The server is shutting down."),
                     Outcome::rejected);
  AnswerHead answer;
  answer.api = request.api;
  answer.id = new_id(request.api == Api::chat ? "chatcmpl-" : "cmpl-");
  call->answer_id = answer.id;
  answer.model = request.model;
  answer.fingerprint = options.system_fingerprint;
  answer.created = std::time(nullptr);
  answer.include_usage = request.include_usage;
  answer.top_logprobs = request.top_logprobs;
  std::vector<ChoiceStart> starts;
  for (const PreparedPrompt& prompt : ready.prepared.prompts) {
    starts.insert(starts.end(), request.n, ChoiceStart{prompt.text, prompt.answer_start});
  }
  call->answer = std::make_unique<Answer>(std::move(answer),
                                          request.stream ? AnswerMode::stream : AnswerMode::whole,
                                          ready.model->tokenizer, request.n, starts, request.stop);
  call->last_token.resize(starts.size());
  call->session->on_gone([this, watch = std::weak_ptr<Call>(call)] {
    if (const auto gone = watch.lock()) client_gone(*gone);
  });
  arrive(call, call->tenant, ready);
}

void Gateway::State::arrive(const std::shared_ptr<Call>& call, const std::string& tenant,
                            ReadyCall& ready) {
  const PreparedRequest& prepared = ready.prepared;
  const auto choices = static_cast<std::uint32_t>(call->last_token.size());
  for (std::uint32_t c = 0; c < choices; ++c) call->sequences.push_back(RequestId{next_request++});
  for (std::uint32_t c = 0; c < choices; ++c) places[call->sequences[c].value] = {call, c};
  for (const RequestId id : call->sequences)
    traces.name(id, {call->request_id, call->answer_id, call->traceparent});
  for (std::uint32_t c = 0; c < choices && !call->over; ++c) {
    const PreparedPrompt& prompt = prepared.prompts[c / ready.request.n];
    const auto room =
        static_cast<std::uint32_t>(ready.model->config.max_context - prompt.tokens.size());
    Arrive event;
    event.request = call->sequences[c];
    event.model = ready.request.model;
    event.tenant = tenant;
    event.prompt = prompt.tokens;
    event.max_new_tokens = std::min(prepared.max_new_tokens, room);
    event.stop_tokens = prepared.stop_tokens;
    event.sampling = prepared.sampling;
    event.sampling.seed += c % ready.request.n;
    step(std::move(event));
  }
}

void Gateway::State::fail_call(Call& call, const ApiError& error, Outcome outcome) {
  if (std::exchange(call.over, true)) return;
  call.metrics->requests[static_cast<std::size_t>(outcome)]->Increment();
  if (call.stream_begun) {
    AnswerWriter::error(call.session->stream(), error);
    call.session->end_stream();
  } else {
    call.session->reply(to_answer(error));
  }
  log_call(call, error.message.c_str());
  forget(call);
}

void Gateway::State::complete_call(Call& call) {
  if (std::exchange(call.over, true)) return;
  const Usage usage = call.answer->usage();
  call.metrics->requests[static_cast<std::size_t>(Outcome::ok)]->Increment();
  call.metrics->e2e->Observe((monotonic_now() - call.arrived).seconds());
  call.metrics->prompt_tokens->Increment(usage.prompt_tokens);
  call.metrics->cached_tokens->Increment(usage.cached_tokens);
  if (call.answer->mode() == AnswerMode::stream) {
    if (!call.stream_begun) {
      HttpAnswer head;
      head.content_type = "text/event-stream; charset=utf-8";
      call.session->begin_stream(head);
    }
    call.answer->take_events(call.session->stream());
    call.answer->close(call.session->stream());
    call.session->end_stream();
  } else {
    HttpAnswer answer;
    answer.body = call.answer->body();
    call.session->reply(answer);
  }
  log_call(call, "ok");
}

void Gateway::State::client_gone(Call& call) {
  if (std::exchange(call.over, true)) return;
  call.metrics->requests[static_cast<std::size_t>(Outcome::cancelled)]->Increment();
  log_call(call, "client gone");
  forget(call);
}

void Gateway::State::forget(Call& call) {
  for (const RequestId id : call.sequences) {
    if (places.erase(id.value) > 0) step(ClientGone{id});
  }
  check_drained();
}

void Gateway::State::log_call(const Call& call, const char* outcome) const {
  const Duration took = monotonic_now() - call.arrived;
  const Usage usage = call.answer ? call.answer->usage() : Usage{};
  log_info("gateway", "request",
           {{"outcome", outcome},
            {"model", call.model},
            {"tenant", call.tenant},
            {"seconds", took.seconds()},
            {"prompt_tokens", usage.prompt_tokens},
            {"tokens", usage.completion_tokens},
            {"request_id", call.request_id},
            {"traceparent", call.traceparent}});
}

void Gateway::State::tokenize(const std::shared_ptr<HttpSession>& session, HttpMessage message) {
  name_request(*session, message.head);
  const std::size_t bytes = message.body.size();
  run(
      bytes, session,
      [body = std::move(message.body), limits = options.request, models_now = models] {
        return tokenized(body, limits, *models_now);
      },
      [session](ApiResult<std::string> result) { session->reply(json_answer(std::move(result))); });
}

void Gateway::State::detokenize(const std::shared_ptr<HttpSession>& session, HttpMessage message) {
  name_request(*session, message.head);
  const std::size_t bytes = message.body.size();
  run(
      bytes, session,
      [body = std::move(message.body), limits = options.request, models_now = models] {
        return detokenized(body, limits, *models_now);
      },
      [session](ApiResult<std::string> result) { session->reply(json_answer(std::move(result))); });
}

}  // namespace infos
