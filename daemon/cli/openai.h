// SPDX-License-Identifier: Apache-2.0
// The OpenAI-style API as chat and bench speak it: which models there are, and what one event of a
// stream says.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/cli/http_client.h"

namespace infos::cli {

/// Names of /v1/models. Errors: those of http_call, or the server's own message.
Result<std::vector<std::string>> list_models(const Endpoint& endpoint, const std::string& api_key);

/// What one `data:` of a stream says.
struct StreamEvent {
  bool done = false;          ///< "[DONE]"
  std::string text;           ///< of the first choice
  std::string finish_reason;  ///< of the first choice; empty: goes on
  std::string error;          ///< the server failed in the middle
  std::optional<std::uint64_t> prompt_tokens, completion_tokens, cached_tokens;
};
/// Errors: corrupt when it is no JSON object.
Result<StreamEvent> read_stream_event(std::string_view data);

}  // namespace infos::cli
