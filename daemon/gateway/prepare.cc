// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/prepare.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace infos {
namespace {

// The API's own default for /v1/completions. Chat answers go on to their end or the context's.
constexpr std::uint32_t kCompletionTokensDefault = 16;

ApiError bad(std::string param, std::string message, std::string code = "invalid_value") {
  ApiError e;
  e.param = std::move(param);
  e.message = std::move(message);
  e.code = std::move(code);
  return e;
}

std::uint32_t vocabulary_of(const ServedModel& model) {
  const auto words = static_cast<std::uint32_t>(model.tokenizer->vocabulary());
  return model.config.vocab > 0 ? model.config.vocab : words;
}

ApiResult<std::vector<TokenId>> chat_tokens(const std::vector<ChatMessage>& messages,
                                            bool add_generation_prompt, const std::string& kwargs,
                                            const ServedModel& model) {
  if (!model.chat_template) {
    return bad("messages",
               "The model '" + model.name + "' has no chat template; use /v1/completions.",
               "unsupported_parameter");
  }
  ChatTemplate::Input input;
  input.messages = messages;
  input.add_generation_prompt = add_generation_prompt;
  input.bos_token = model.bos_token;
  input.eos_token = model.eos_token;
  input.extra_json = kwargs;
  const Result<std::string> text = model.chat_template->render(input);
  if (!text.ok())
    return bad("messages",
               "The model's chat template refuses these messages: " + text.error().message);
  // The template writes the special tokens itself, the first one too.
  return model.tokenizer->encode(*text, Tokenizer::Specials::parse, Tokenizer::AddBos::no);
}

std::optional<ApiError> check_tokens(const std::vector<TokenId>& tokens, const std::string& param,
                                     std::uint32_t vocabulary) {
  for (const TokenId token : tokens) {
    if (token < 0 || static_cast<std::uint32_t>(token) >= vocabulary) {
      return bad(param, "Token id " + std::to_string(token) + " is not one of the model's, 0 to " +
                            std::to_string(vocabulary - 1) + ".");
    }
  }
  return std::nullopt;
}

ApiResult<PreparedPrompt> completion_prompt(const Prompt& prompt, const GenerateRequest& request,
                                            const ServedModel& model) {
  PreparedPrompt out;
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    out.tokens = model.tokenizer->encode(*text, Tokenizer::Specials::parse,
                                         Tokenizer::AddBos::if_model_does);
    if (request.echo) out.text = *text;
  } else {
    out.tokens = std::get<std::vector<TokenId>>(prompt);
    if (auto error = check_tokens(out.tokens, "prompt", vocabulary_of(model)))
      return *std::move(error);
    if (request.echo) {
      Detokenizer detokenizer(*model.tokenizer);
      for (const TokenId token : out.tokens) out.text += detokenizer.push(token);
      out.text += detokenizer.flush();
    }
  }
  // Nothing to go on from: begin as every text of this model begins.
  if (out.tokens.empty() && model.tokenizer->bos() >= 0)
    out.tokens.push_back(model.tokenizer->bos());
  if (out.tokens.empty())
    return bad("prompt", "'prompt' holds no tokens; it must hold at least one.");
  const bool text_before = std::any_of(out.tokens.begin(), out.tokens.end(), [&](TokenId token) {
    return !model.tokenizer->is_control(token);
  });
  out.answer_start = text_before ? Tokenizer::Place::later : Tokenizer::Place::first;
  return out;
}

std::optional<ApiError> check_context(const PreparedPrompt& prompt, const GenerateRequest& request,
                                      std::uint32_t max_context) {
  if (prompt.tokens.size() < max_context) return std::nullopt;
  return bad(request.api == Api::chat ? "messages" : "prompt",
             "This model's maximum context length is " + std::to_string(max_context) +
                 " tokens, and your prompt has " + std::to_string(prompt.tokens.size()) +
                 " tokens; it must leave room for at least one more.",
             "context_length_exceeded");
}

SamplingParams sampling_of(const GenerateRequest& r, const GenerationDefaults& d,
                           std::uint64_t default_seed) {
  SamplingParams s;
  const auto pick = [](const std::optional<double>& asked, const std::optional<float>& model,
                       float otherwise) {
    return asked ? static_cast<float>(*asked) : model.value_or(otherwise);
  };
  s.temperature = pick(r.temperature, d.temperature, 1.0F);
  s.top_p = pick(r.top_p, d.top_p, 1.0F);
  s.min_p = pick(r.min_p, d.min_p, 0.0F);
  s.repetition_penalty = pick(r.repetition_penalty, d.repetition_penalty, 1.0F);
  s.presence_penalty = pick(r.presence_penalty, std::nullopt, 0.0F);
  s.frequency_penalty = pick(r.frequency_penalty, std::nullopt, 0.0F);
  s.top_k = r.top_k ? *r.top_k : std::max(0, d.top_k.value_or(0));
  s.logit_bias = r.logit_bias;
  s.seed = r.seed.value_or(default_seed);
  s.top_logprobs = r.top_logprobs;
  return s;
}

std::vector<TokenId> stop_tokens_of(const GenerateRequest& request, const ServedModel& model) {
  std::vector<TokenId> stops = request.stop_token_ids;
  if (!request.ignore_eos) {
    stops.insert(stops.end(), model.config.eos.begin(), model.config.eos.end());
    if (model.tokenizer->eos() >= 0) stops.push_back(model.tokenizer->eos());
  }
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  return stops;
}

}  // namespace

ApiResult<PreparedRequest> prepare(const GenerateRequest& request, const ServedModel& model,
                                   std::uint32_t max_context, std::uint64_t default_seed) {
  PreparedRequest out;
  const std::uint32_t vocabulary = vocabulary_of(model);
  if (auto error = check_tokens(request.stop_token_ids, "stop_token_ids", vocabulary))
    return *std::move(error);
  for (const auto& [token, bias] : request.logit_bias) {
    if (auto error = check_tokens({token}, "logit_bias", vocabulary)) return *std::move(error);
  }
  if (request.api == Api::chat) {
    auto tokens = chat_tokens(request.messages, request.add_generation_prompt,
                              request.template_kwargs, model);
    if (auto* error = std::get_if<ApiError>(&tokens)) return std::move(*error);
    PreparedPrompt prompt;
    prompt.tokens = std::get<0>(std::move(tokens));
    if (prompt.tokens.empty())
      return bad("messages", "The model's chat template makes an empty prompt of 'messages'.");
    out.prompts.push_back(std::move(prompt));
  } else {
    for (const Prompt& given : request.prompts) {
      auto prompt = completion_prompt(given, request, model);
      if (auto* error = std::get_if<ApiError>(&prompt)) return std::move(*error);
      out.prompts.push_back(std::get<0>(std::move(prompt)));
    }
  }
  for (const PreparedPrompt& prompt : out.prompts) {
    if (auto error = check_context(prompt, request, max_context)) return *std::move(error);
  }
  const std::uint32_t otherwise = request.api == Api::chat ? UINT32_MAX : kCompletionTokensDefault;
  out.max_new_tokens = request.max_tokens.value_or(otherwise);
  out.stop_tokens = stop_tokens_of(request, model);
  out.sampling = sampling_of(request, model.generation, default_seed);
  return out;
}

ApiResult<std::vector<TokenId>> prepare_tokens(const TokenizeRequest& request,
                                               const ServedModel& model) {
  if (!request.prompt)
    return chat_tokens(request.messages, request.add_generation_prompt, "", model);
  return model.tokenizer->encode(
      *request.prompt, Tokenizer::Specials::parse,
      request.add_special_tokens ? Tokenizer::AddBos::if_model_does : Tokenizer::AddBos::no);
}

}  // namespace infos
