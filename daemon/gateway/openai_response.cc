// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/openai_response.h"

#include <algorithm>
#include <utility>

#include "daemon/gateway/json_text.h"
#include "topology/base/check.h"

namespace infos {
namespace {

void append_nullable(std::string& out, std::string_view text) {
  if (text.empty()) {
    out += "null";
  } else {
    append_json_string(out, text);
  }
}

void append_integer(std::string& out, std::int64_t n) {
  if (n < 0) out += '-';
  append_json_number(out,
                     n < 0 ? 0 - static_cast<std::uint64_t>(n) : static_cast<std::uint64_t>(n));
}

const char* finish_word(FinishReason reason) {
  return reason == FinishReason::length ? "\"length\"" : "\"stop\"";
}

void append_usage(std::string& out, const Usage& usage) {
  out += "{\"prompt_tokens\":";
  append_json_number(out, std::uint64_t{usage.prompt_tokens});
  out += ",\"completion_tokens\":";
  append_json_number(out, std::uint64_t{usage.completion_tokens});
  out += ",\"total_tokens\":";
  append_json_number(out, std::uint64_t{usage.prompt_tokens} + usage.completion_tokens);
  out += ",\"prompt_tokens_details\":{\"cached_tokens\":";
  append_json_number(out, std::uint64_t{usage.cached_tokens});
  out += "}}";
}

// "token":..,"logprob":..,"bytes":[..] without the braces.
void append_token(std::string& out, const Tokenizer& tokenizer, TokenId token, float logprob) {
  const std::string bytes = tokenizer.piece(token, Tokenizer::Place::later);
  out += "\"token\":";
  append_json_string(out, bytes);
  out += ",\"logprob\":";
  append_json_number(out, double{logprob});
  out += ",\"bytes\":[";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += ',';
    append_json_number(out, std::uint64_t{static_cast<unsigned char>(bytes[i])});
  }
  out += ']';
}

void append_error(std::string& out, const ApiError& error) {
  out += "{\"error\":{\"message\":";
  append_json_string(out, error.message);
  out += ",\"type\":";
  append_json_string(out, error.type);
  out += ",\"param\":";
  append_nullable(out, error.param);
  out += ",\"code\":";
  append_nullable(out, error.code);
  out += "}}";
}

void append_model(std::string& out, const ModelRow& row) {
  out += "{\"id\":";
  append_json_string(out, row.name);
  out += ",\"object\":\"model\",\"created\":";
  append_integer(out, row.created);
  out += ",\"owned_by\":\"infos\",\"max_model_len\":";
  append_json_number(out, std::uint64_t{row.max_context});
  out += '}';
}

}  // namespace

std::string error_body(const ApiError& error) {
  std::string out;
  append_error(out, error);
  return out;
}

std::string model_body(const ModelRow& row) {
  std::string out;
  append_model(out, row);
  return out;
}

std::string models_body(std::span<const ModelRow> rows) {
  std::string out = "{\"object\":\"list\",\"data\":[";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i > 0) out += ',';
    append_model(out, rows[i]);
  }
  return out + "]}";
}

std::string tokenize_body(std::span<const TokenId> tokens, std::uint32_t max_context,
                          const Tokenizer* strs) {
  std::string out = "{\"count\":";
  append_json_number(out, std::uint64_t{tokens.size()});
  out += ",\"max_model_len\":";
  append_json_number(out, std::uint64_t{max_context});
  out += ",\"tokens\":[";
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    append_integer(out, tokens[i]);
  }
  out += "],\"token_strs\":";
  if (!strs) return out + "null}";
  out += '[';
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    append_json_string(out, strs->piece(tokens[i], Tokenizer::Place::later));
  }
  return out + "]}";
}

std::string detokenize_body(std::string_view text) {
  std::string out = "{\"prompt\":";
  append_json_string(out, text);
  return out + "}";
}

AnswerWriter::AnswerWriter(AnswerHead head, const Tokenizer& tokenizer)
    : head_(std::move(head)), tokenizer_(&tokenizer) {
  event_head_ = "{\"id\":";
  append_json_string(event_head_, head_.id);
  event_head_ += head_.api == Api::chat ? ",\"object\":\"chat.completion.chunk\",\"created\":"
                                        : ",\"object\":\"text_completion\",\"created\":";
  append_integer(event_head_, head_.created);
  event_head_ += ",\"model\":";
  append_json_string(event_head_, head_.model);
  event_head_ += ",\"system_fingerprint\":";
  append_json_string(event_head_, head_.fingerprint);
  event_head_ += ",\"choices\":[";
  event_tail_ = head_.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n";
}

void AnswerWriter::open_choice(std::string& out, std::uint32_t choice) const {
  out += "data: ";
  out += event_head_;
  out += "{\"index\":";
  append_json_number(out, std::uint64_t{choice});
}

void AnswerWriter::role(std::string& out, std::uint32_t choice) const {
  INFOS_CHECK(head_.api == Api::chat);
  open_choice(out, choice);
  out +=
      ",\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},\"logprobs\":null,"
      "\"finish_reason\":null}";
  out += event_tail_;
}

void AnswerWriter::text(std::string& out, std::uint32_t choice, std::string_view text,
                        std::span<const TokenEntry> entries) const {
  open_choice(out, choice);
  if (head_.api == Api::chat) {
    out += ",\"delta\":{\"content\":";
    append_json_string(out, text);
    out += "},\"logprobs\":";
  } else {
    out += ",\"text\":";
    append_json_string(out, text);
    out += ",\"logprobs\":";
  }
  append_logprobs(out, entries);
  out += ",\"finish_reason\":null}";
  out += event_tail_;
}

void AnswerWriter::finish(std::string& out, std::uint32_t choice, FinishReason reason) const {
  open_choice(out, choice);
  out += head_.api == Api::chat ? ",\"delta\":{}" : ",\"text\":\"\"";
  out += ",\"logprobs\":null,\"finish_reason\":";
  out += finish_word(reason);
  out += '}';
  out += event_tail_;
}

void AnswerWriter::usage(std::string& out, const Usage& usage) const {
  out += "data: ";
  out += event_head_;
  out += "],\"usage\":";
  append_usage(out, usage);
  out += "}\n\n";
}

void AnswerWriter::error(std::string& out, const ApiError& error) {
  out += "data: ";
  append_error(out, error);
  out += "\n\n";
}

std::string AnswerWriter::whole(std::span<const ChoiceResult> choices, const Usage& usage) const {
  std::string out = "{\"id\":";
  append_json_string(out, head_.id);
  out += head_.api == Api::chat ? ",\"object\":\"chat.completion\",\"created\":"
                                : ",\"object\":\"text_completion\",\"created\":";
  append_integer(out, head_.created);
  out += ",\"model\":";
  append_json_string(out, head_.model);
  out += ",\"choices\":[";
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) out += ',';
    out += "{\"index\":";
    append_json_number(out, std::uint64_t{i});
    if (head_.api == Api::chat) {
      out += ",\"message\":{\"role\":\"assistant\",\"content\":";
      append_json_string(out, choices[i].text);
      out += ",\"refusal\":null}";
    } else {
      out += ",\"text\":";
      append_json_string(out, choices[i].text);
    }
    out += ",\"logprobs\":";
    append_logprobs(out, choices[i].entries);
    out += ",\"finish_reason\":";
    out += finish_word(choices[i].reason);
    out += '}';
  }
  out += "],\"usage\":";
  append_usage(out, usage);
  out += ",\"system_fingerprint\":";
  append_json_string(out, head_.fingerprint);
  return out + "}";
}

void AnswerWriter::append_logprobs(std::string& out, std::span<const TokenEntry> entries) const {
  if (head_.top_logprobs < 0) {
    out += "null";
  } else if (head_.api == Api::chat) {
    append_chat_logprobs(out, entries);
  } else {
    append_legacy_logprobs(out, entries);
  }
}

void AnswerWriter::append_chat_logprobs(std::string& out,
                                        std::span<const TokenEntry> entries) const {
  out += "{\"content\":[";
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const SampledToken& sampled = entries[i].sampled;
    out += i > 0 ? ",{" : "{";
    append_token(out, *tokenizer_, sampled.token, sampled.logprob);
    out += ",\"top_logprobs\":[";
    const auto count =
        std::min<std::size_t>(sampled.top.size(), static_cast<std::size_t>(head_.top_logprobs));
    for (std::size_t j = 0; j < count; ++j) {
      out += j > 0 ? ",{" : "{";
      append_token(out, *tokenizer_, sampled.top[j].token, sampled.top[j].logprob);
      out += '}';
    }
    out += "]}";
  }
  out += "],\"refusal\":null}";
}

void AnswerWriter::append_legacy_logprobs(std::string& out,
                                          std::span<const TokenEntry> entries) const {
  const auto each = [&](const char* key, auto&& write) {
    out += key;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out += ',';
      write(entries[i]);
    }
    out += ']';
  };
  const auto text_of = [&](TokenId token) {
    return utf8_lossy(tokenizer_->piece(token, Tokenizer::Place::later));
  };
  each("{\"tokens\":[",
       [&](const TokenEntry& e) { append_json_string(out, text_of(e.sampled.token)); });
  each(",\"token_logprobs\":[",
       [&](const TokenEntry& e) { append_json_number(out, double{e.sampled.logprob}); });
  each(",\"top_logprobs\":[", [&](const TokenEntry& e) {
    // The most likely ones and the chosen one; a text that two tokens share stands once, for the
    // likelier.
    std::vector<std::string> seen;
    out += '{';
    const auto add = [&](TokenId token, float logprob) {
      std::string text = text_of(token);
      if (std::find(seen.begin(), seen.end(), text) != seen.end()) return;
      if (!seen.empty()) out += ',';
      append_json_string(out, text);
      out += ':';
      append_json_number(out, double{logprob});
      seen.push_back(std::move(text));
    };
    const auto count =
        std::min<std::size_t>(e.sampled.top.size(), static_cast<std::size_t>(head_.top_logprobs));
    for (std::size_t j = 0; j < count; ++j) add(e.sampled.top[j].token, e.sampled.top[j].logprob);
    add(e.sampled.token, e.sampled.logprob);
    out += '}';
  });
  each(",\"text_offset\":[", [&](const TokenEntry& e) { append_json_number(out, e.text_chars); });
  out += '}';
}

}  // namespace infos
