// SPDX-License-Identifier: Apache-2.0
// Writes what the OpenAI API answers, as JSON text straight into strings: whole bodies, and stream
// events with their fixed parts made once per answer. Knows nothing of sockets, requests under way
// or time. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/control/messages.h"
#include "daemon/gateway/api_error.h"
#include "daemon/gateway/choice_text.h"
#include "daemon/gateway/openai_request.h"
#include "daemon/gateway/tokenizer.h"

namespace infos {

/// {"error":{"message","type","param","code"}}
std::string error_body(const ApiError& error);

struct ModelRow {
  std::string name;
  std::int64_t created = 0;  ///< Unix time, s
  std::uint32_t max_context = 0;
};
std::string model_body(const ModelRow& row);
std::string models_body(std::span<const ModelRow> rows);

/// {"count","max_model_len","tokens","token_strs"}; `strs` null: not asked for.
std::string tokenize_body(std::span<const TokenId> tokens, std::uint32_t max_context,
                          const Tokenizer* strs);
std::string detokenize_body(std::string_view text);

struct Usage {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
  std::uint32_t completion_tokens = 0;
};

/// What every part of one answer says.
struct AnswerHead {
  Api api = Api::chat;
  std::string id;  ///< "chatcmpl-..." or "cmpl-..."
  std::string model;
  std::string fingerprint;
  std::int64_t created = 0;        ///< Unix time, s
  bool include_usage = false;      ///< stream: `usage` in every event, null but in the last
  std::int32_t top_logprobs = -1;  ///< as in the request
};

/// One finished choice, for a whole body.
struct ChoiceResult {
  std::string text;
  std::vector<TokenEntry> entries;
  FinishReason reason = FinishReason::stop;
};

/// Renders one answer. `tokenizer` (for the texts of logprobs) must outlive it.
class AnswerWriter {
 public:
  AnswerWriter(AnswerHead head, const Tokenizer& tokenizer);

  // Server-sent events, appended to `out`, each "data: {...}\n\n".
  void role(std::string& out, std::uint32_t choice) const;
  void text(std::string& out, std::uint32_t choice, std::string_view text,
            std::span<const TokenEntry> entries) const;
  void finish(std::string& out, std::uint32_t choice, FinishReason reason) const;
  void usage(std::string& out, const Usage& usage) const;
  static void error(std::string& out, const ApiError& error);
  static void done(std::string& out) { out += "data: [DONE]\n\n"; }

  /// The body of an answer that is not streamed.
  std::string whole(std::span<const ChoiceResult> choices, const Usage& usage) const;
  const AnswerHead& head() const { return head_; }

 private:
  void append_logprobs(std::string& out, std::span<const TokenEntry> entries) const;
  void append_chat_logprobs(std::string& out, std::span<const TokenEntry> entries) const;
  void append_legacy_logprobs(std::string& out, std::span<const TokenEntry> entries) const;
  void open_choice(std::string& out, std::uint32_t choice) const;

  AnswerHead head_;
  const Tokenizer* tokenizer_;
  std::string event_head_;  ///< up to "choices":[
  std::string event_tail_;  ///< from ] on
};

}  // namespace infos
