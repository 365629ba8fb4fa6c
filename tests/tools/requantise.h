// SPDX-License-Identifier: Apache-2.0
// Writes an opened checkpoint as a GGUF file whose matrices have another dtype. For tests: one
// tensor at a time is held in memory. One thread.
#pragma once

#include <string>

#include "devices/engine/checkpoint.h"
#include "topology/base/result.h"

namespace infos::test {

/// Vectors and routers become f32; rows that the dtype's blocks do not fit become q8_0 or q4_0 (as
/// synth_row_dtype says), and f16 where even those do not. Errors: unsupported (a checkpoint that
/// has no GGUF form), io.
Status requantise(const Checkpoint& checkpoint, DType dtype, const std::string& path);

}  // namespace infos::test
