// SPDX-License-Identifier: Apache-2.0
// Opens a GGUF file as a Checkpoint: container, configuration, tokenizer and the check that the
// weights are the model. Any thread.
#pragma once

#include <memory>
#include <string>

#include "devices/engine/checkpoint.h"
#include "devices/engine/checkpoint/file_bytes.h"
#include "topology/base/result.h"

namespace infos {

/// Takes the bytes; `label` is the path that errors and Checkpoint::path() give.
/// Errors: corrupt, unsupported, invalid_argument: each names the label and the field.
Result<std::unique_ptr<Checkpoint>> open_gguf(FileBytes file, const std::string& label);

}  // namespace infos
