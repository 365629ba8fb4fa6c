// SPDX-License-Identifier: Apache-2.0
// Reads the JSON bodies of the OpenAI API into plain requests: every parameter is served, known to
// be harmless and ignored, or refused by name. Knows nothing of models or tokenizers. Pure; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/gateway/api_error.h"
#include "daemon/gateway/chat_template.h"
#include "daemon/gateway/gateway_options.h"
#include "topology/base/ids.h"

namespace infos {

enum class Api : std::uint8_t { chat, completions };

/// A prompt as a client gives it to /v1/completions.
using Prompt = std::variant<std::string, std::vector<TokenId>>;

/// A body of /v1/chat/completions or /v1/completions. Absent optionals: the model's default, then
/// the API's.
struct GenerateRequest {
  Api api = Api::chat;
  std::string model;
  // chat
  std::vector<ChatMessage> messages;
  bool add_generation_prompt = true;
  std::string template_kwargs;  ///< a JSON object, empty: none
  // completions
  std::vector<Prompt> prompts;
  bool echo = false;
  // both
  std::uint32_t n = 1;
  bool stream = false;
  bool include_usage = false;
  bool ignore_eos = false;
  std::optional<std::uint32_t> max_tokens;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  std::optional<double> temperature, top_p, min_p, presence_penalty, frequency_penalty,
      repetition_penalty;
  std::optional<std::int32_t> top_k;  ///< 0: off
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::optional<std::uint64_t> seed;
  std::int32_t top_logprobs = -1;  ///< as SamplingParams::top_logprobs
};

/// A body of /tokenize: a prompt, or messages for the chat template.
struct TokenizeRequest {
  std::string model;
  std::optional<std::string> prompt;
  std::vector<ChatMessage> messages;
  bool add_special_tokens = true;  ///< for `prompt`; a chat template brings its own
  bool add_generation_prompt = true;
  bool return_token_strs = false;
};

/// A body of /detokenize.
struct DetokenizeRequest {
  std::string model;
  std::vector<TokenId> tokens;
};

/// Errors (all): 400 with the parameter at fault; 413 when the document needs more memory than its
/// text allows for.
ApiResult<GenerateRequest> parse_generate(Api api, std::string_view body,
                                          const RequestLimits& limits);
ApiResult<TokenizeRequest> parse_tokenize(std::string_view body, const RequestLimits& limits);
ApiResult<DetokenizeRequest> parse_detokenize(std::string_view body, const RequestLimits& limits);

}  // namespace infos
