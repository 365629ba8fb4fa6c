// SPDX-License-Identifier: Apache-2.0
// The names of weights: from Hugging Face's to the canonical, GGUF-style ones, and back. Pure; any
// thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "topology/model/model_config.h"

namespace infos {

/// The canonical name; nullopt for a name of none of the families.
/// "model.layers.3.mlp.experts.7.up_proj.weight" gives "blk.3.ffn_up.7.weight".
std::optional<std::string> canonical_name(std::string_view hugging_face_name);

/// The inverse, for a family (experts are named differently by Mixtral and Qwen3-MoE).
std::optional<std::string> hugging_face_name(std::string_view canonical_name, ModelFamily family);

}  // namespace infos
