// SPDX-License-Identifier: Apache-2.0
// Models by name whose figures are known without their files: real ones, and tiny ones of every
// family for tests. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/base/result.h"
#include "topology/model/model_config.h"

namespace infos {

/// In the order of the table.
std::vector<std::string> shape_names();

/// Configuration as a GGUF file of that model has it (rotary rows permuted for Llama and Mistral).
/// Errors: not_found, naming the shape and those there are.
Result<ModelConfig> named_shape(std::string_view name);

}  // namespace infos
