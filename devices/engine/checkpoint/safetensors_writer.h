// SPDX-License-Identifier: Apache-2.0
// Writes a safetensors file out of views. One thread; the views must live until it returns.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "devices/engine/checkpoint.h"
#include "topology/base/result.h"

namespace infos {

/// The head (length and directory, padded so that the data begins at a multiple of 8) for these
/// tensors in this order. Requires: plain dtypes, names without characters that JSON escapes.
std::vector<std::byte> safetensors_header(std::span<const TensorView> tensors);

/// Errors: io, not_found, naming the path.
Status write_safetensors(const std::string& path, std::span<const TensorView> tensors);

}  // namespace infos
