// SPDX-License-Identifier: Apache-2.0
// Goal: whatever the body, the OpenAI request parser gives a request within its limits or an error
// with a status and a sentence. Method: every entry point on the same bytes, limits checked
// afterwards.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "daemon/gateway/json_text.h"
#include "daemon/gateway/openai_request.h"
#include "daemon/gateway/openai_response.h"
#include "topology/base/check.h"

namespace infos {
namespace {

void check(const ApiError& error) {
  INFOS_CHECK(error.status == 400 || error.status == 413);
  INFOS_CHECK(!error.message.empty());
  INFOS_CHECK(!error_body(error).empty());
}

void check(const GenerateRequest& r, const RequestLimits& limits) {
  INFOS_CHECK(!r.model.empty());
  INFOS_CHECK(r.n >= 1 && r.n <= limits.choices);
  INFOS_CHECK(r.stop.size() <= limits.stop_strings);
  for (const std::string& stop : r.stop)
    INFOS_CHECK(!stop.empty() && stop.size() <= limits.stop_string_bytes);
  INFOS_CHECK(r.logit_bias.size() <= limits.logit_bias);
  INFOS_CHECK(r.stop_token_ids.size() <= limits.stop_token_ids);
  INFOS_CHECK(r.top_logprobs >= -1 &&
              r.top_logprobs <= static_cast<std::int32_t>(limits.top_logprobs));
  INFOS_CHECK(!r.temperature || (*r.temperature >= 0 && *r.temperature <= 2));
  INFOS_CHECK(!r.max_tokens || *r.max_tokens >= 1);
  if (r.api == Api::chat) {
    INFOS_CHECK(!r.messages.empty() && r.messages.size() <= limits.messages);
  } else {
    INFOS_CHECK(!r.prompts.empty() && r.prompts.size() * r.n <= limits.choices);
  }
}

}  // namespace
}  // namespace infos

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace infos;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  RequestLimits limits;
  limits.json_bytes = 1u << 20;
  for (const Api api : {Api::chat, Api::completions}) {
    const auto result = parse_generate(api, body, limits);
    if (const auto* error = std::get_if<ApiError>(&result))
      check(*error);
    else
      check(std::get<GenerateRequest>(result), limits);
  }
  const auto tokenize = parse_tokenize(body, limits);
  if (const auto* error = std::get_if<ApiError>(&tokenize)) check(*error);
  const auto detokenize = parse_detokenize(body, limits);
  if (const auto* error = std::get_if<ApiError>(&detokenize)) check(*error);
  std::string text;
  append_json_string(text, body);
  return 0;
}
