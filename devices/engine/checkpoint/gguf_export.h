// SPDX-License-Identifier: Apache-2.0
// The GGUF keys that describe a model: the inverse of gguf_config.h. Pure; any thread. Never adds
// tensors.
#pragma once

#include <vector>

#include "devices/engine/checkpoint.h"
#include "devices/engine/checkpoint/gguf_writer.h"
#include "topology/base/result.h"
#include "topology/model/model_config.h"

namespace infos {

/// The word under general.architecture.
const char* gguf_architecture(const ModelConfig& config);

/// Architecture and tokenizer keys. `dtype` is that of most weights.
/// Errors: unsupported (rotary rows in an order that the architecture does not have; linear scaling
/// is written, llama3 and tables need rope_divisors() as tensor rope_freqs.weight; a
/// tokenizer.json, which has no GGUF form).
Result<GgufHeader> gguf_header(const ModelConfig& config, const TokenizerSource& tokenizer,
                               DType dtype);

/// What the tensor rope_freqs.weight [head_dim / 2] must hold; empty when the model has none.
std::vector<float> rope_divisors(const ModelConfig& config);

}  // namespace infos
