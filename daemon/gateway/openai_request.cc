// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/openai_request.h"

#include <boost/json/serialize.hpp>

#include <algorithm>
#include <charconv>
#include <map>

#include "daemon/gateway/json_fields.h"

namespace infos {
namespace {

namespace json = boost::json;
using namespace json_fields;

// ---- the parameters that are served ----

struct Reader {
  GenerateRequest& out;
  const RequestLimits& limits;
  bool chat_logprobs = false;
  std::optional<std::int32_t> chat_top_logprobs;
  std::optional<std::int64_t> best_of;
};
using Read = void (*)(Reader&, std::string_view param, const json::value&);

enum Apis : std::uint8_t { chat = 1, completions = 2, both = 3 };

struct Parameter {
  Apis apis;
  Read read;
};

void read_stop(Reader& r, std::string_view param, const json::value& v) {
  const auto add = [&](const std::string& where, const json::value& s) {
    std::string text = as_string(where, s);
    if (text.empty() || text.size() > r.limits.stop_string_bytes) {
      refuse(where, "'" + where + "' must be 1 to " + std::to_string(r.limits.stop_string_bytes) +
                        " bytes long, not " + std::to_string(text.size()) + ".");
    }
    r.out.stop.push_back(std::move(text));
  };
  if (v.is_string()) return add(std::string(param), v);
  const json::array& array = as_array(param, v, "a string or an array of strings");
  if (array.size() > r.limits.stop_strings) {
    refuse(param, "'stop' holds " + std::to_string(array.size()) + " strings; at most " +
                      std::to_string(r.limits.stop_strings) + " are allowed.");
  }
  for (std::size_t i = 0; i < array.size(); ++i) add("stop[" + std::to_string(i) + "]", array[i]);
}

void read_logit_bias(Reader& r, std::string_view param, const json::value& v) {
  const json::object& object = as_object(param, v);
  if (object.size() > r.limits.logit_bias) {
    refuse(param, "'logit_bias' holds " + std::to_string(object.size()) + " tokens; at most " +
                      std::to_string(r.limits.logit_bias) + " are allowed.");
  }
  std::map<TokenId, float>
      sorted;  // one order whatever the client's; a repeated id keeps its last value
  for (const auto& [key, bias] : object) {
    TokenId token = -1;
    const auto [end, ec] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (ec != std::errc{} || end != key.data() + key.size() || token < 0) {
      refuse(param,
             "'logit_bias' keys must be token ids, not " + json::serialize(json::value(key)) + ".");
    }
    sorted[token] =
        static_cast<float>(as_number("logit_bias." + std::string(key), bias, -100, 100));
  }
  r.out.logit_bias.assign(sorted.begin(), sorted.end());
}

void read_stream_options(Reader& r, std::string_view param, const json::value& v) {
  for (const auto& [key, value] : as_object(param, v)) {
    const std::string where = "stream_options." + std::string(key);
    if (key == "include_usage") {
      r.out.include_usage = as_bool(where, value);
    } else if (key != "include_obfuscation" && key != "continuous_usage_stats") {
      refuse(where, "Unknown parameter: '" + where + "'.", "unknown_parameter");
    }
  }
}

void read_prompt(Reader& r, std::string_view param, const json::value& v) {
  auto& prompts = r.out.prompts;
  if (v.is_string()) {
    prompts.emplace_back(as_string(param, v));
    return;
  }
  const json::array& array =
      as_array(param, v, "a string, an array of strings, of token ids, or of arrays of token ids");
  if (!array.empty() && array[0].is_number()) {
    prompts.emplace_back(as_tokens(param, v));
    return;
  }
  if (array.empty() || array.size() > r.limits.choices) {
    refuse(param, "'prompt' must hold 1 to " + std::to_string(r.limits.choices) + " prompts, not " +
                      std::to_string(array.size()) + ".");
  }
  for (std::size_t i = 0; i < array.size(); ++i) {
    const std::string where = "prompt[" + std::to_string(i) + "]";
    if (array[i].is_string()) {
      prompts.emplace_back(as_string(where, array[i]));
    } else {
      prompts.emplace_back(as_tokens(where, array[i]));
    }
  }
}

void read_logprobs(Reader& r, std::string_view param, const json::value& v) {
  if (r.out.api == Api::chat) {
    r.chat_logprobs = as_bool(param, v);
  } else if (v.is_bool()) {  // some clients send false for "none"
    if (v.get_bool()) r.out.top_logprobs = 0;
  } else {
    r.out.top_logprobs = static_cast<std::int32_t>(as_integer(param, v, 0, r.limits.top_logprobs));
  }
}

void read_max_tokens(Reader& r, std::string_view param, const json::value& v) {
  // max_completion_tokens is the newer name of the same thing, read first: it wins.
  if (param == "max_tokens" && r.out.max_tokens) return;
  r.out.max_tokens = static_cast<std::uint32_t>(as_integer(param, v, 1, INT32_MAX));
}

const std::map<std::string_view, Parameter>& served() {
  static const std::map<std::string_view, Parameter> table = {
      {"model",
       {both, [](Reader& r, std::string_view p,
                 const json::value& v) { r.out.model = as_string(p, v); }}},
      {"messages",
       {chat, [](Reader& r, std::string_view,
                 const json::value& v) { r.out.messages = as_messages(v, r.limits); }}},
      {"prompt", {completions, read_prompt}},
      {"echo",
       {completions,
        [](Reader& r, std::string_view p, const json::value& v) { r.out.echo = as_bool(p, v); }}},
      {"best_of",
       {completions,
        [](Reader& r, std::string_view p, const json::value& v) {
          r.best_of = as_integer(p, v, 1, r.limits.choices);
        }}},
      {"n",
       {both,
        [](Reader& r, std::string_view p, const json::value& v) {
          r.out.n = static_cast<std::uint32_t>(as_integer(p, v, 1, r.limits.choices));
        }}},
      {"stream",
       {both,
        [](Reader& r, std::string_view p, const json::value& v) { r.out.stream = as_bool(p, v); }}},
      {"stream_options", {both, read_stream_options}},
      {"max_tokens", {both, read_max_tokens}},
      {"max_completion_tokens", {chat, read_max_tokens}},
      {"stop", {both, read_stop}},
      {"temperature",
       {both, [](Reader& r, std::string_view p,
                 const json::value& v) { r.out.temperature = as_number(p, v, 0, 2); }}},
      {"top_p",
       {both, [](Reader& r, std::string_view p,
                 const json::value& v) { r.out.top_p = as_number(p, v, 0, 1); }}},
      {"min_p",
       {both, [](Reader& r, std::string_view p,
                 const json::value& v) { r.out.min_p = as_number(p, v, 0, 1); }}},
      {"top_k",
       {both,
        [](Reader& r, std::string_view p, const json::value& v) {
          r.out.top_k =
              std::max<std::int32_t>(0, static_cast<std::int32_t>(as_integer(p, v, -1, INT32_MAX)));
        }}},
      {"presence_penalty",
       {both, [](Reader& r, std::string_view p,
                 const json::value& v) { r.out.presence_penalty = as_number(p, v, -2, 2); }}},
      {"frequency_penalty",
       {both, [](Reader& r, std::string_view p,
                 const json::value& v) { r.out.frequency_penalty = as_number(p, v, -2, 2); }}},
      {"repetition_penalty",
       {both, [](Reader& r, std::string_view p,
                 const json::value& v) { r.out.repetition_penalty = as_number(p, v, 0.01, 100); }}},
      {"logit_bias", {both, read_logit_bias}},
      {"logprobs", {both, read_logprobs}},
      {"top_logprobs",
       {chat,
        [](Reader& r, std::string_view p, const json::value& v) {
          r.chat_top_logprobs =
              static_cast<std::int32_t>(as_integer(p, v, 0, r.limits.top_logprobs));
        }}},
      {"seed",
       {both,
        [](Reader& r, std::string_view p, const json::value& v) {
          r.out.seed = v.is_uint64()
                           ? v.get_uint64()
                           : static_cast<std::uint64_t>(as_integer(p, v, INT64_MIN, INT64_MAX));
        }}},
      {"ignore_eos",
       {both, [](Reader& r, std::string_view p,
                 const json::value& v) { r.out.ignore_eos = as_bool(p, v); }}},
      {"stop_token_ids",
       {both,
        [](Reader& r, std::string_view p, const json::value& v) {
          r.out.stop_token_ids = as_tokens(p, v);
          if (r.out.stop_token_ids.size() > r.limits.stop_token_ids) {
            refuse(p, "'stop_token_ids' holds more than " +
                          std::to_string(r.limits.stop_token_ids) + " ids.");
          }
        }}},
      {"add_generation_prompt",
       {chat, [](Reader& r, std::string_view p,
                 const json::value& v) { r.out.add_generation_prompt = as_bool(p, v); }}},
      {"chat_template_kwargs",
       {chat,
        [](Reader& r, std::string_view p, const json::value& v) {
          r.out.template_kwargs = json::serialize(as_object(p, v));
        }}},
  };
  return table;
}

// ---- the parameters that change nothing ----

// Hints and labels: accepted whatever they hold.
constexpr std::string_view kIgnored[] = {
    "user",
    "metadata",
    "store",
    "service_tier",
    "parallel_tool_calls",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning_effort",
    "verbosity",
    "cache_prompt",
    "priority",
    "request_id",
};

// Known, not served: accepted at the value that asks for nothing, refused by name otherwise.
struct Neutral {
  std::string_view name;
  std::string_view value;  ///< JSON
};
constexpr Neutral kNeutral[] = {
    {"response_format", R"({"type":"text"})"},
    {"tools", "[]"},
    {"tool_choice", R"("none")"},
    {"tool_choice", R"("auto")"},
    {"functions", "[]"},
    {"function_call", R"("none")"},
    {"function_call", R"("auto")"},
    {"modalities", R"(["text"])"},
    {"audio", ""},
    {"prediction", ""},
    {"web_search_options", ""},
    {"suffix", R"("")"},
    {"min_tokens", "0"},
    {"length_penalty", "1"},
    {"length_penalty", "1E0"},
    {"use_beam_search", "false"},
    {"include_stop_str_in_output", "false"},
    {"skip_special_tokens", "true"},
    {"spaces_between_special_tokens", "true"},
    {"spaces_between_special_tokens", "false"},
    {"continue_final_message", "false"},
    {"add_special_tokens", "true"},
    {"add_special_tokens", "false"},
    {"prompt_logprobs", ""},
    {"guided_json", ""},
    {"guided_regex", ""},
    {"guided_choice", ""},
    {"guided_grammar", ""},
    {"structured_outputs", ""},
    {"grammar", R"("")"},
    {"json_schema", ""},
    {"chat_template", ""},
    {"documents", ""},
    {"truncate_prompt_tokens", ""},
    {"bad_words", "[]"},
    {"mirostat", "0"},
    {"typical_p", "1"},
    {"typical_p", "1E0"},
    {"tfs_z", "1"},
    {"tfs_z", "1E0"},
    {"allowed_token_ids", ""},
    {"logits_processors", ""},
    {"return_token_ids", "false"},
    {"echo", "false"},
    {"best_of", "1"},
};

// A parameter that no row of `served()` reads for this API.
void read_other(std::string_view name, const json::value& v) {
  if (std::find(std::begin(kIgnored), std::end(kIgnored), name) != std::end(kIgnored)) return;
  bool known = false;
  for (const Neutral& neutral : kNeutral) {
    if (neutral.name != name) continue;
    known = true;
    if (!v.is_object() || v.get_object().size() < 8) {
      if (json::serialize(v) == neutral.value) return;
    }
  }
  const std::string quoted = "'" + std::string(name) + "'";
  if (known || served().contains(name)) {
    refuse(name, quoted + " is not served here with the value " + shown(v) + "; leave it out.",
           "unsupported_parameter");
  }
  refuse(name, "Unknown parameter: " + quoted + ".", "unknown_parameter");
}

void finish_generate(Reader& r) {
  GenerateRequest& out = r.out;
  if (out.model.empty())
    refuse("model", "You must provide a 'model'.", "missing_required_parameter");
  if (out.api == Api::chat) {
    if (out.messages.empty())
      refuse("messages", "You must provide 'messages'.", "missing_required_parameter");
    if (r.chat_top_logprobs && !r.chat_logprobs && *r.chat_top_logprobs > 0) {
      refuse("top_logprobs", "'top_logprobs' needs 'logprobs': true.");
    }
    if (r.chat_logprobs) out.top_logprobs = r.chat_top_logprobs.value_or(0);
    return;
  }
  if (out.prompts.empty())
    refuse("prompt", "You must provide a 'prompt'.", "missing_required_parameter");
  if (r.best_of && *r.best_of != out.n) {
    refuse("best_of", "'best_of' is served only when it equals 'n'.", "unsupported_parameter");
  }
  if (out.echo && out.top_logprobs >= 0) {
    refuse("echo",
           "'echo' together with 'logprobs' is not served here: the prompt's own logprobs are not "
           "computed.",
           "unsupported_parameter");
  }
  if (out.n * out.prompts.size() > r.limits.choices) {
    refuse("n", "'n' times the number of prompts is " + std::to_string(out.n * out.prompts.size()) +
                    "; at most " + std::to_string(r.limits.choices) + " choices are allowed.");
  }
}

void read_generate(Api api, const json::object& body, const RequestLimits& limits,
                   GenerateRequest& out) {
  out.api = api;
  Reader reader{out, limits, false, {}, {}};
  const Apis here = api == Api::chat ? chat : completions;
  // The newer name first, whatever the order in the body.
  if (const json::value* v = body.if_contains("max_completion_tokens");
      v && !v->is_null() && api == Api::chat) {
    read_max_tokens(reader, "max_completion_tokens", *v);
  }
  for (const auto& [key, value] : body) {
    if (value.is_null()) continue;  // clients write null for "not given"
    const std::string_view name(key.data(), key.size());
    const auto it = served().find(name);
    if (it != served().end() && (it->second.apis & here)) {
      it->second.read(reader, name, value);
    } else {
      read_other(name, value);
    }
  }
  finish_generate(reader);
}

}  // namespace

ApiResult<GenerateRequest> parse_generate(Api api, std::string_view body,
                                          const RequestLimits& limits) {
  return read_body<GenerateRequest>(body, limits,
                                    [&](const json::object& object, GenerateRequest& out) {
                                      read_generate(api, object, limits, out);
                                    });
}

ApiResult<TokenizeRequest> parse_tokenize(std::string_view body, const RequestLimits& limits) {
  return read_body<TokenizeRequest>(
      body, limits, [&](const json::object& object, TokenizeRequest& out) {
        for (const auto& [key, v] : object) {
          if (v.is_null()) continue;
          const std::string_view name(key.data(), key.size());
          if (name == "model")
            out.model = as_string(name, v);
          else if (name == "prompt")
            out.prompt = as_string(name, v);
          else if (name == "messages")
            out.messages = as_messages(v, limits);
          else if (name == "add_special_tokens")
            out.add_special_tokens = as_bool(name, v);
          else if (name == "add_generation_prompt")
            out.add_generation_prompt = as_bool(name, v);
          else if (name == "return_token_strs")
            out.return_token_strs = as_bool(name, v);
          else
            read_other(name, v);
        }
        if (!out.prompt && out.messages.empty()) {
          refuse("prompt", "You must provide a 'prompt' or 'messages'.",
                 "missing_required_parameter");
        }
        if (out.prompt && !out.messages.empty())
          refuse("prompt", "Give either 'prompt' or 'messages', not both.");
      });
}

ApiResult<DetokenizeRequest> parse_detokenize(std::string_view body, const RequestLimits& limits) {
  return read_body<DetokenizeRequest>(
      body, limits, [&](const json::object& object, DetokenizeRequest& out) {
        bool seen = false;
        for (const auto& [key, v] : object) {
          if (v.is_null()) continue;
          const std::string_view name(key.data(), key.size());
          if (name == "model")
            out.model = as_string(name, v);
          else if (name == "tokens")
            out.tokens = as_tokens(name, v), seen = true;
          else
            read_other(name, v);
        }
        if (!seen) refuse("tokens", "You must provide 'tokens'.", "missing_required_parameter");
      });
}

}  // namespace infos
