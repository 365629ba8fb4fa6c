// SPDX-License-Identifier: Apache-2.0
// The safetensors container: reads the directory out of a span and checks that the tensors tile the
// data exactly. Everything returned points into that span. Any thread. Never interprets names.
// Source: https://github.com/huggingface/safetensors#format
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "devices/engine/checkpoint.h"
#include "topology/base/result.h"

namespace infos {

struct SafetensorsLimits {
  std::uint64_t header_bytes = 32 << 20;
  std::uint64_t tensors = 1 << 18;
};

/// Errors: corrupt (lengths, JSON, duplicate names, shapes, offsets, overlaps, holes), unsupported
/// (dtype), each naming `label`, the tensor and the field. Tensors come in order of offset, under
/// the names of the file.
Result<std::vector<TensorView>> parse_safetensors(std::span<const std::byte> bytes,
                                                  const std::string& label,
                                                  const SafetensorsLimits& limits = {});

}  // namespace infos
