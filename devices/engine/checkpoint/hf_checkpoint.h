// SPDX-License-Identifier: Apache-2.0
// Opens a Hugging Face directory as a Checkpoint: config.json, model.safetensors or its shards,
// tokenizer and generation files. Any thread. Follows symbolic links that the directory itself
// holds (the hub's cache is made of them), but never a path that a file's contents spell out beyond
// it.
#pragma once

#include <memory>
#include <string>

#include "devices/engine/checkpoint.h"
#include "topology/base/result.h"

namespace infos {

/// Errors: not_found, io, corrupt, unsupported: each names the file and the field.
Result<std::unique_ptr<Checkpoint>> open_hugging_face(const std::string& directory);

}  // namespace infos
