// SPDX-License-Identifier: Apache-2.0
// Which path and method is whose: the built-in endpoints, the registered ones, and the answers for
// all others.
#include <algorithm>
#include <utility>

#include "daemon/gateway/gateway_state.h"
#include "topology/base/check.h"

namespace infos {
namespace {

HttpAnswer text_answer(int status, std::string body) {
  HttpAnswer answer;
  answer.status = status;
  answer.content_type = "text/plain; charset=utf-8";
  answer.body = std::move(body);
  return answer;
}

bool contains_word(std::string_view list, std::string_view word) {
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.size(), list.find(", ", at));
    if (list.substr(at, end - at) == word) return true;
    at = end + 2;
  }
  return false;
}

// The answer that a registered handler owes; dropped unanswered, the client still hears something.
class Owed {
 public:
  explicit Owed(std::shared_ptr<HttpSession> session) : session_(std::move(session)) {}
  ~Owed() {
    if (!done_)
      session_->reply(to_answer(api_error(500, "no_answer", "The handler gave no answer.")));
  }
  void reply(HttpReply reply) {
    if (std::exchange(done_, true)) return;
    HttpAnswer answer;
    answer.status = reply.status;
    answer.content_type = std::move(reply.content_type);
    answer.body = std::move(reply.body);
    session_->reply(answer);
  }

 private:
  std::shared_ptr<HttpSession> session_;
  bool done_ = false;
};

HttpAnswer no_such_url(const HttpHead& head) {
  const std::string_view path = head.path();
  return to_answer(api_error(
      404, "unknown_url",
      "Unknown request URL: " + head.method + " " + std::string(path.substr(0, 200)) + "."));
}

}  // namespace

HttpReply error_reply(int status, std::string_view code, std::string_view message) {
  HttpReply reply;
  reply.status = status;
  reply.body = error_body(api_error(status, std::string(code), std::string(message)));
  return reply;
}

void Gateway::State::add_built_ins() {
  using Session = const std::shared_ptr<HttpSession>&;
  const auto get = [&](const std::string& path, Exposure exposure, auto answer) {
    Route& route = path.back() == '*' ? prefixes[path.substr(0, path.size() - 1)] : routes[path];
    route.exposure = exposure;
    route.methods = "GET, HEAD";
    route.built_in = [answer](Session session, HttpMessage message) {
      session->reply(answer(message.head));
    };
  };
  const auto post = [&](const std::string& path, auto action) {
    Route& route = routes[path];
    route.methods = "POST";
    route.built_in = [action](Session session, HttpMessage message) {
      action(session, std::move(message));
    };
  };
  get("/live", Exposure::open, [](const HttpHead&) { return text_answer(200, "live\n"); });
  get("/ready", Exposure::open, [this](const HttpHead&) { return ready_answer(); });
  get("/metrics", Exposure::open, [this](const HttpHead&) {
    HttpAnswer answer = text_answer(200, metrics_text());
    answer.content_type = "text/plain; version=0.0.4; charset=utf-8";
    return answer;
  });
  get("/v1/models", Exposure::everywhere, [this](const HttpHead&) { return models_answer(); });
  get("/v1/models/*", Exposure::everywhere,
      [this](const HttpHead& head) { return one_model_answer(head.path()); });
  post("/v1/chat/completions",
       [this](Session s, HttpMessage m) { generate(s, std::move(m), Api::chat); });
  post("/v1/completions",
       [this](Session s, HttpMessage m) { generate(s, std::move(m), Api::completions); });
  post("/tokenize", [this](Session s, HttpMessage m) { tokenize(s, std::move(m)); });
  post("/detokenize", [this](Session s, HttpMessage m) { detokenize(s, std::move(m)); });
}

const Gateway::State::Route* Gateway::State::find_route(std::string_view path,
                                                        Origin origin) const {
  const Route* found = nullptr;
  if (const auto it = routes.find(path); it != routes.end()) {
    found = &it->second;
  } else {
    std::size_t longest = 0;
    for (const auto& [prefix, route] : prefixes) {
      if (path.starts_with(prefix) && prefix.size() >= longest) {
        found = &route;
        longest = prefix.size();
      }
    }
  }
  if (found && found->exposure == Exposure::unix_only && origin != Origin::unix_socket)
    return nullptr;
  return found;
}

std::string Gateway::State::allowed(const Route& route) {
  std::string methods = route.methods;
  const auto add = [&](const std::string& method) {
    if (contains_word(methods, method)) return;
    if (!methods.empty()) methods += ", ";
    methods += method;
  };
  for (const auto& [method, handler] : route.registered) {
    add(method);
    if (method == "GET") add("HEAD");
  }
  add("OPTIONS");
  return methods;
}

std::string Gateway::State::tenant_of(const HttpHead& head) const {
  if (!keys.required() || head.origin == Origin::unix_socket) return "";
  return keys.tenant(bearer_token(head.authorization)).value_or("");
}

// Called when the headers are there, so that a body that will not be used need not be read.
std::optional<HttpAnswer> Gateway::State::admit(const HttpHead& head) {
  const std::string_view path = head.path();
  const Route* route = find_route(path, head.origin);
  const bool open = route && route->exposure == Exposure::open;
  if (keys.required() && head.origin == Origin::tcp && !open && head.method != "OPTIONS" &&
      !keys.tenant(bearer_token(head.authorization))) {
    ApiError error =
        api_error(401, "invalid_api_key",
                  head.authorization.empty()
                      ? "You did not provide an API key; send it as 'Authorization: Bearer KEY'."
                      : "Incorrect API key provided.");
    error.type = "invalid_request_error";
    return to_answer(error);
  }
  if (!route) return no_such_url(head);
  const std::string methods = allowed(*route);
  if (!contains_word(methods, head.method)) {
    HttpAnswer answer =
        to_answer(api_error(405, "method_not_allowed",
                            "Not allowed to " + head.method.substr(0, 40) + " on " +
                                std::string(path.substr(0, 200)) + "; allowed: " + methods + "."));
    answer.allow = methods;
    return answer;
  }
  if (!head.content_encoding.empty() && head.content_encoding != "identity") {
    return to_answer(
        api_error(415, "unsupported_encoding", "The request's body must not be compressed."));
  }
  // Other types are taken for JSON: curl -d names its own default, and everybody forgets.
  if (head.content_type.starts_with("multipart/")) {
    return to_answer(
        api_error(415, "unsupported_media_type", "The request's body must be application/json."));
  }
  return std::nullopt;
}

void Gateway::State::request(const std::shared_ptr<HttpSession>& session, HttpMessage message) {
  const Route* route = find_route(message.head.path(), message.head.origin);
  if (!route) return session->reply(no_such_url(message.head));  // unregistered since admit()
  if (message.head.method == "OPTIONS" && !route->registered.contains("OPTIONS")) {
    HttpAnswer answer;
    answer.status = 204;
    answer.allow = allowed(*route);
    return session->reply(answer);
  }
  if (route->built_in) return route->built_in(session, std::move(message));
  name_request(*session, message.head);
  auto handler = route->registered.find(message.head.method);
  if (handler == route->registered.end() && message.head.method == "HEAD")
    handler = route->registered.find("GET");
  INFOS_CHECK(handler != route->registered.end());
  const HttpRequest request{message.head.method, message.head.target, message.head.path(),
                            message.head.query(), message.body};
  // Shared: a handler may copy its HttpRespond.
  const auto owed = std::make_shared<Owed>(session);
  handler->second(request, [owed](HttpReply reply) { owed->reply(std::move(reply)); });
}

HttpAnswer Gateway::State::models_answer() const {
  std::vector<ModelRow> rows;
  for (const auto& [name, model] : *models)
    rows.push_back({name, model->created, model->config.max_context});
  HttpAnswer answer;
  answer.body = models_body(rows);
  return answer;
}

HttpAnswer Gateway::State::one_model_answer(std::string_view path) const {
  const auto name = percent_decode(path.substr(std::string_view("/v1/models/").size()));
  const auto it = name ? models->find(*name) : models->end();
  if (it == models->end()) {
    ApiError error =
        api_error(404, "model_not_found", "The model '" + name.value_or("?") + "' does not exist.");
    error.param = "model";
    return to_answer(error);
  }
  HttpAnswer answer;
  answer.body = model_body({it->first, it->second->created, it->second->config.max_context});
  return answer;
}

HttpAnswer Gateway::State::ready_answer() const {
  const bool any = std::any_of(models->begin(), models->end(),
                               [&](const auto& entry) { return core.routable(entry.first); });
  if (ready == Ready::yes && !draining && any) return text_answer(200, "ready\n");
  HttpAnswer answer = text_answer(503, draining          ? "shutting down\n"
                                       : models->empty() ? "no model is configured\n"
                                                         : "no model can be served yet\n");
  answer.retry_after = seconds(1);
  return answer;
}

std::string Gateway::State::metrics_text() const {
  std::vector<WorkerView> views;
  for (const auto& [id, view] : workers) views.push_back(view);
  GatewayMetrics::Snapshot snapshot;
  snapshot.live_requests = core.live_requests();
  snapshot.workers = views;
  for (const auto& [name, model] : *models) snapshot.models.push_back(name);
  return metrics.text(snapshot);
}

}  // namespace infos
