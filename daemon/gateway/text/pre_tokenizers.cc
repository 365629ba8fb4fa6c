// SPDX-License-Identifier: Apache-2.0
// The pre-tokenizer names that GGUF files use, and the patterns that their models were trained
// with. Source: the models' published tokenizer.json files.
#include <array>

#include "daemon/gateway/text/split.h"

namespace infos::text {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// llama.cpp's fall-back for files without a name: punctuation, GPT-2's words, digits in threes.
constexpr std::string_view kDefaultPunctuation = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr std::string_view kDefaultWords =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";

struct Named {
  std::string_view name;
  std::array<std::string_view, 4> patterns;  ///< applied in order, empty: none
  bool ignore_merges = false;
};

constexpr std::array kNamed = {
    Named{"default", {kDefaultPunctuation, kDefaultWords, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
    Named{"gpt-2", {}},  // kGpt2Pattern, see below
    Named{"phi-2", {}},
    Named{"mpt", {}},
    Named{"olmo", {}},
    Named{"llama-bpe", {kLlama3}, true},
    Named{"llama3", {kLlama3}, true},
    Named{"llama-v3", {kLlama3}, true},
    Named{"dbrx", {kLlama3}},
    Named{"smaug-bpe", {kLlama3}},
    Named{"qwen2", {kQwen2}},
    Named{"deepseek-r1-qwen", {kQwen2}},
    Named{"stablelm2", {kQwen2}},
    Named{"tekken", {kTekken}, true},
    Named{"gpt-4o", {kGpt4o}},
    Named{"smollm", {R"(\p{N})", "gpt-2"}},
    Named{"starcoder", {R"(\p{N})", "gpt-2"}},
    Named{"refact", {R"(\p{N})", "gpt-2"}},
    Named{"command-r", {R"(\p{N})", "gpt-2"}},
    Named{"exaone", {R"(\p{N})", "gpt-2"}},
    Named{"codeshell", {R"(\p{N})", "gpt-2"}},
};

Status add_pattern(std::string_view pattern, Splitter& splitter) {
  splitter.add(RegexSplit{INFOS_TRY(Regex::compile(pattern == "gpt-2" ? kGpt2Pattern : pattern))});
  return {};
}

}  // namespace

Result<PreTokenizer> make_pre_tokenizer(std::string_view name) {
  if (name.empty()) name = "default";
  std::string known;
  for (const Named& named : kNamed) {
    known.append(known.empty() ? "" : ", ").append(named.name);
    if (named.name != name) continue;
    PreTokenizer out;
    out.ignore_merges = named.ignore_merges;
    if (named.patterns[0].empty()) INFOS_TRY(add_pattern(kGpt2Pattern, out.splitter));
    for (const std::string_view pattern : named.patterns)
      if (!pattern.empty()) INFOS_TRY(add_pattern(pattern, out.splitter));
    return out;
  }
  return Error{ErrorCode::unsupported, "tokenizer.ggml.pre: '" + std::string(name.substr(0, 64)) +
                                           "' is not supported; supported: " + known};
}

}  // namespace infos::text
