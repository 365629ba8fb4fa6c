// SPDX-License-Identifier: Apache-2.0
// Number formats of weights: the bytes of each dtype to f32 and back, written to be obviously right
// rather than fast. The layouts are GGUF's, byte for byte; the quantisers are simple and
// deterministic. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "devices/engine/checkpoint.h"

namespace infos {

float f16_to_f32(std::uint16_t bits);
/// Rounds to nearest, ties to even; overflows to infinity; a NaN stays one.
std::uint16_t f32_to_f16(float value);
float bf16_to_f32(std::uint16_t bits);
/// Rounds to nearest, ties to even; a NaN stays one.
std::uint16_t f32_to_bf16(float value);

/// Bytes of `elements` values. Requires: whole blocks.
std::uint64_t bytes_of(DType dtype, std::uint64_t elements);

/// Requires: any dtype but none; whole blocks; in.size() == bytes_of(dtype, out.size()).
void dequantise(DType dtype, std::span<const std::byte> in, std::span<float> out);

/// Requires: f32, f16, bf16, q8_0, q4_0, q4_k or q6_k; finite values; whole blocks; out.size() ==
/// bytes_of(dtype, in.size()).
void quantise(DType dtype, std::span<const float> in, std::span<std::byte> out);

}  // namespace infos
