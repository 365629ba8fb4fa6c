// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "devices/engine/checkpoint/gguf_config.h"

namespace infos {
namespace {

constexpr std::int32_t kControlToken = 3;

/// Control tokens that end a turn in the families read here, whatever eos_token_id says.
constexpr std::string_view kEndOfTurn[] = {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>",
                                           "<|im_end|>", "<|endoftext|>"};

Error corrupt(const GgufFile& file, std::string_view key, const std::string& what) {
  return {ErrorCode::corrupt, fmt::format("{}: {}: {}", file.label, key, what)};
}

/// A token id, -1 when the key is missing or says "none" (all bits set).
Result<std::int32_t> token_id(const GgufFile& file, const std::string& key, std::size_t tokens) {
  const auto* unset = file.metadata.count(key) ? &file.metadata.at(key) : nullptr;
  if (!unset) return -1;
  if (unset->type == GgufType::i32 || unset->type == GgufType::i64) {
    const bool all_ones = std::all_of(unset->bytes.begin(), unset->bytes.end(),
                                      [](std::byte b) { return b == std::byte{0xFF}; });
    if (all_ones) return -1;
  }
  const auto seen = *INFOS_TRY(file.get_unsigned(key));
  if (seen == std::numeric_limits<std::uint32_t>::max()) return -1;
  if (seen >= tokens)
    return corrupt(file, key, fmt::format("is {}: want less than the {} tokens", seen, tokens));
  return static_cast<std::int32_t>(seen);
}

Status read_types(const GgufFile& file, TokenizerSource::Gguf& out) {
  const std::string key = "tokenizer.ggml.token_type";
  const auto types = INFOS_TRY(file.get_integers(key));
  if (!types) {
    out.types.assign(out.tokens.size(), 1);
    return {};
  }
  if (types->size() != out.tokens.size())
    return corrupt(
        file, key,
        fmt::format("has {} entries: want {}, one per token", types->size(), out.tokens.size()));
  for (const std::int64_t type : *types) {
    if (type < 0 || type > 6) return corrupt(file, key, fmt::format("holds {}: want 1 to 6", type));
    out.types.push_back(static_cast<std::int32_t>(type));
  }
  return {};
}

Status read_vocabulary(const GgufFile& file, TokenizerSource::Gguf& out) {
  auto tokens = INFOS_TRY(file.get_strings("tokenizer.ggml.tokens"));
  if (!tokens || tokens->empty())
    return corrupt(file, "tokenizer.ggml.tokens", "the key is missing or empty");
  out.tokens = std::move(*tokens);
  out.scores = INFOS_TRY(file.get_floats("tokenizer.ggml.scores")).value_or(std::vector<float>());
  if (!out.scores.empty() && out.scores.size() != out.tokens.size())
    return corrupt(file, "tokenizer.ggml.scores",
                   fmt::format("has {} entries: want {}, one per token", out.scores.size(),
                               out.tokens.size()));
  INFOS_TRY(read_types(file, out));
  out.merges =
      INFOS_TRY(file.get_strings("tokenizer.ggml.merges")).value_or(std::vector<std::string>());
  const bool needs_scores = out.model == "llama" || out.model == "t5";
  if (needs_scores && out.scores.empty())
    return corrupt(file, "tokenizer.ggml.scores",
                   fmt::format("the key is missing; a \"{}\" tokenizer needs it", out.model));
  return {};
}

Status read_flags(const GgufFile& file, TokenizerSource::Gguf& out) {
  // Defaults of files that do not say: SentencePiece models and Llama 3 begin with BOS.
  const bool sentencepiece = out.model == "llama";
  const bool llama3 = out.pre == "llama-bpe" || out.pre == "llama3" || out.pre == "llama-v3";
  out.add_bos =
      INFOS_TRY(file.get_bool("tokenizer.ggml.add_bos_token")).value_or(sentencepiece || llama3);
  out.add_eos =
      INFOS_TRY(file.get_bool("tokenizer.ggml.add_eos_token")).value_or(out.model == "t5");
  out.add_space_prefix =
      INFOS_TRY(file.get_bool("tokenizer.ggml.add_space_prefix")).value_or(out.model != "gpt2");
  out.bos = INFOS_TRY(token_id(file, "tokenizer.ggml.bos_token_id", out.tokens.size()));
  out.eos = INFOS_TRY(token_id(file, "tokenizer.ggml.eos_token_id", out.tokens.size()));
  out.unknown = INFOS_TRY(token_id(file, "tokenizer.ggml.unknown_token_id", out.tokens.size()));
  out.padding = INFOS_TRY(token_id(file, "tokenizer.ggml.padding_token_id", out.tokens.size()));
  return {};
}

}  // namespace

Result<TokenizerSource> gguf_tokenizer(const GgufFile& file) {
  TokenizerSource source;
  const auto model = INFOS_TRY(file.get_string("tokenizer.ggml.model"));
  if (!model) return source;
  TokenizerSource::Gguf out;
  out.model = std::string(*model);
  if (out.model != "llama" && out.model != "gpt2" && out.model != "t5")
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: tokenizer.ggml.model: is \"{}\": want llama, gpt2 or t5",
                             file.label, out.model)};
  out.pre = std::string(INFOS_TRY(file.get_string("tokenizer.ggml.pre")).value_or("default"));
  INFOS_TRY(read_vocabulary(file, out));
  INFOS_TRY(read_flags(file, out));
  source.chat_template =
      std::string(INFOS_TRY(file.get_string("tokenizer.chat_template")).value_or(""));
  if (out.bos >= 0) source.bos_token = out.tokens[out.bos];
  if (out.eos >= 0) source.eos_token = out.tokens[out.eos];
  source.add_bos = out.add_bos;
  source.gguf = std::move(out);
  return source;
}

Result<ModelConfig> with_special_tokens(ModelConfig config, const GgufFile& file,
                                        const TokenizerSource& tokenizer) {
  if (!tokenizer.gguf) return config;
  const auto& gguf = *tokenizer.gguf;
  if (gguf.tokens.size() > config.vocab)
    return corrupt(file, "tokenizer.ggml.tokens",
                   fmt::format("has {} tokens, but token_embd.weight has {} rows",
                               gguf.tokens.size(), config.vocab));
  config.bos = gguf.bos;
  const auto add = [&](std::int32_t id) {
    if (id >= 0 && std::find(config.eos.begin(), config.eos.end(), id) == config.eos.end())
      config.eos.push_back(id);
  };
  add(gguf.eos);
  add(INFOS_TRY(token_id(file, "tokenizer.ggml.eot_token_id", gguf.tokens.size())));
  add(INFOS_TRY(token_id(file, "tokenizer.ggml.eom_token_id", gguf.tokens.size())));
  for (std::size_t i = 0; i < gguf.tokens.size(); ++i)
    if (gguf.types[i] == kControlToken && std::find(std::begin(kEndOfTurn), std::end(kEndOfTurn),
                                                    gguf.tokens[i]) != std::end(kEndOfTurn))
      add(static_cast<std::int32_t>(i));
  return config;
}

}  // namespace infos
