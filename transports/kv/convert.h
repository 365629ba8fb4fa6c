// SPDX-License-Identifier: Apache-2.0
// Converts runs of KV elements between dtypes. Rounding is to nearest, ties to even; a value beyond
// the destination's range, infinities too, becomes its largest finite one; NaN stays NaN in floats
// and becomes 0 in i8. The same bits on every CPU, with or without vector instructions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "topology/model/kv_layout.h"

namespace infos {

/// Converts `n` adjacent floats of `from` to floats of `to`. Need not be aligned; must not overlap.
using KvConvert = void (*)(const std::byte* from, std::byte* to, std::size_t n);

/// Requires: neither is i8, and they differ.
KvConvert float_conversion(KvDType from, KvDType to);

/// One row of i8 with its scale to floats, through f32: each value is q * scale rounded once to
/// f32, then to `to`. Requires: `to` is not i8.
void dequantise_row(const std::byte* from, const std::byte* scale, KvDType to, std::byte* out,
                    std::size_t n);
/// One row of floats to i8: scale = largest |x| / 127, q = x / scale. Requires: `from` is not i8.
void quantise_row(const std::byte* from, KvDType dtype, std::byte* out, std::byte* scale,
                  std::size_t n);

}  // namespace infos
