// SPDX-License-Identifier: Apache-2.0
// What the JSON files of a Hugging Face directory mean: config.json, generation_config.json,
// tokenizer_config.json. Pure functions of their text; any thread. What a file asks for that the
// phase graphs cannot compute is refused by name, never left out.
#pragma once

#include <string>
#include <string_view>

#include "devices/engine/checkpoint.h"
#include "topology/base/result.h"
#include "topology/model/model_config.h"

namespace infos {

/// Architectures LlamaForCausalLM, Mistral-, Mixtral-, Qwen2-, Qwen3- and Qwen3MoeForCausalLM.
/// Errors: corrupt (not JSON, missing key, wrong type), unsupported; each names `label` and the
/// key.
Result<ModelConfig> hf_config(std::string_view text, const std::string& label);

struct HfGeneration {
  GenerationDefaults defaults;
  std::vector<std::int32_t> eos;
};
Result<HfGeneration> hf_generation(std::string_view text, const std::string& label);

/// Fills chat_template, bos_token, eos_token and add_bos. A list of named templates gives the one
/// called "default".
Result<TokenizerSource> hf_tokenizer_config(std::string_view text, const std::string& label);

}  // namespace infos
