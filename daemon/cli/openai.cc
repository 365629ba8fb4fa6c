// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/openai.h"

#include <boost/json.hpp>

namespace infos::cli {
namespace {

namespace json = boost::json;

const json::value* member(const json::value* value, std::string_view name) {
  return value && value->is_object() ? value->as_object().if_contains(name) : nullptr;
}

std::string text(const json::value* value) {
  return value && value->is_string() ? std::string(value->as_string()) : std::string();
}

std::optional<std::uint64_t> count(const json::value* value) {
  if (!value || !value->is_number()) return std::nullopt;
  json::error_code failed;
  const auto n = value->to_number<std::uint64_t>(failed);
  if (failed) return std::nullopt;
  return n;
}

}  // namespace

Result<std::vector<std::string>> list_models(const Endpoint& endpoint, const std::string& api_key) {
  HttpCall call;
  call.target = "/v1/models";
  call.api_key = api_key;
  const HttpAnswer answer = INFOS_TRY(http_call(endpoint, call));
  if (answer.status != 200)
    return Error{ErrorCode::invalid_argument,
                 error_message(answer) +
                     (answer.status == 401 ? " Here: --api-key KEY or $INFOS_API_KEY." : "")};
  json::error_code failed;
  const json::value value = json::parse(answer.body, failed);
  const json::value* data = failed ? nullptr : member(&value, "data");
  if (!data || !data->is_array())
    return Error{ErrorCode::corrupt, "/v1/models: the answer has no list 'data'"};
  std::vector<std::string> names;
  for (const json::value& model : data->as_array()) names.push_back(text(member(&model, "id")));
  return names;
}

Result<StreamEvent> read_stream_event(std::string_view data) {
  StreamEvent event;
  if (data == "[DONE]") {
    event.done = true;
    return event;
  }
  json::error_code failed;
  const json::value value = json::parse(data, failed);
  if (failed || !value.is_object())
    return Error{ErrorCode::corrupt, "an event of the stream is not a JSON object"};
  if (const json::value* error = member(&value, "error"))
    event.error = text(member(error, "message"));
  if (const json::value* choices = member(&value, "choices");
      choices && choices->is_array() && !choices->as_array().empty()) {
    const json::value* choice = &choices->as_array().front();
    event.text = text(member(choice, "text")) + text(member(member(choice, "delta"), "content"));
    event.finish_reason = text(member(choice, "finish_reason"));
  }
  const json::value* usage = member(&value, "usage");
  event.prompt_tokens = count(member(usage, "prompt_tokens"));
  event.completion_tokens = count(member(usage, "completion_tokens"));
  event.cached_tokens = count(member(member(usage, "prompt_tokens_details"), "cached_tokens"));
  return event;
}

}  // namespace infos::cli
