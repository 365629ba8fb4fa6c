// SPDX-License-Identifier: Apache-2.0
// Makes a parsed request ready for the core: chat template, tokenizing, the model's defaults, its
// limits. Touches only immutable things, so that long prompts can be prepared on the helper thread.
// Never talks to the core.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/gateway/gateway.h"
#include "daemon/gateway/openai_request.h"
#include "topology/model/sampling.h"

namespace infos {

struct PreparedPrompt {
  std::vector<TokenId> tokens;
  std::string text;  ///< for `echo`, else empty
  /// Whether the answer is a text of its own (chat, or after nothing but control tokens).
  Tokenizer::Place answer_start = Tokenizer::Place::first;
};

/// Choice c of the answer is choice c % n of prompt c / n, drawn with seed + c % n.
struct PreparedRequest {
  std::vector<PreparedPrompt> prompts;
  std::uint32_t max_new_tokens = 0;  ///< as asked for; a prompt may leave less room
  std::vector<TokenId> stop_tokens;
  SamplingParams sampling;
};

/// `max_context`: tokens of prompt and answer together. `default_seed`: when the request has none.
/// Errors: 400, naming the parameter; context_length_exceeded.
ApiResult<PreparedRequest> prepare(const GenerateRequest& request, const ServedModel& model,
                                   std::uint32_t max_context, std::uint64_t default_seed);

/// The tokens of a /tokenize request. Errors: as above.
ApiResult<std::vector<TokenId>> prepare_tokens(const TokenizeRequest& request,
                                               const ServedModel& model);

}  // namespace infos
