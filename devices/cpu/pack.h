// SPDX-License-Identifier: Apache-2.0
// GGUF weight bytes into the panels that the kernels read, and back into floats. Runs at load time
// (and for embedding rows in execute); plain C++, any thread. Never trusts a size: callers check
// with weight_bytes() first.
#pragma once

#include <cstdint>
#include <optional>

#include "devices/cpu/kernels.h"

namespace infos::cpu {

/// The kernel format for an infos_dtype, none when weights of that type are not supported.
std::optional<WeightKind> weight_kind(std::uint32_t dtype);
/// Values per block; k of a matrix must be a multiple.
std::uint32_t block_elements(WeightKind kind);
/// Bytes of one row of k values as it lies in a file. Requires: k a multiple of block_elements.
std::uint64_t row_bytes(WeightKind kind, std::uint64_t k);

/// Shape of the packed form; data is null.
PackedMatrix packed_shape(WeightKind kind, std::uint32_t n, std::uint32_t k);
/// Packs panels [begin, end) of the matrix at `source` ([n] rows as in a file) to `out`, which
/// holds all panels, zeroed.
void pack_panels(const PackedMatrix& shape, const void* source, std::uint32_t begin,
                 std::uint32_t end, std::uint8_t* out);

/// A row as it lies in a file, as floats.
void read_row(WeightKind kind, const void* row, std::uint64_t k, float* out);
/// The same values, read back from panels.
void read_packed_row(const PackedMatrix& matrix, std::uint32_t row, float* out);

}  // namespace infos::cpu
