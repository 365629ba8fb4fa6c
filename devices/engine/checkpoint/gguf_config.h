// SPDX-License-Identifier: Apache-2.0
// What a GGUF file's keys mean: the model's configuration and its tokenizer. Pure; any thread.
// Never touches weights, except for the names, shapes and the small RoPE table that decide a
// configuration.
#pragma once

#include "devices/engine/checkpoint.h"
#include "devices/engine/checkpoint/gguf_file.h"
#include "topology/base/result.h"
#include "topology/model/model_config.h"

namespace infos {

/// Architectures llama (and Mistral and Mixtral, which are stored as llama), qwen2, qwen3,
/// qwen3moe. Errors: corrupt (missing or wrong key), unsupported (architecture, RoPE scaling), each
/// naming file and key.
Result<ModelConfig> gguf_config(const GgufFile& file);

/// The tokenizer.* keys. Without tokenizer.ggml.model the source is empty.
Result<TokenizerSource> gguf_tokenizer(const GgufFile& file);

/// Sets bos and eos of `config` from the tokenizer: the named ids, and the control tokens whose
/// text ends a turn.
Result<ModelConfig> with_special_tokens(ModelConfig config, const GgufFile& file,
                                        const TokenizerSource& tokenizer);

}  // namespace infos
