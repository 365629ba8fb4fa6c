// SPDX-License-Identifier: Apache-2.0
// What the bytes of every weight and KV dtype mean, one element at a time and exactly: the oracle
// of packed kernels. Pure; any thread; never fast.
#pragma once

#include <cstdint>
#include <span>

#include "devices/abi/infos_device.h"

namespace infos::reference {

/// Elements and bytes of one block; {0, 0} for a dtype that holds no weights.
struct Block {
  std::uint32_t elements = 0;
  std::uint32_t bytes = 0;
};
Block block_of(std::uint32_t dtype);
/// "q4_0"; "unknown" otherwise.
const char* dtype_name(std::uint32_t dtype);
/// Bytes of `elements`, 0 when they are not a whole number of blocks or the dtype is unknown.
std::uint64_t dtype_bytes(std::uint32_t dtype, std::uint64_t elements);

double f16_to_double(std::uint16_t bits);
double bf16_to_double(std::uint16_t bits);
/// Round to nearest, ties to even; too large becomes infinite.
std::uint16_t double_to_f16(double value);
std::uint16_t double_to_bf16(double value);

/// Every element of `bytes`, exact: no format needs more than 53 bits.
/// Requires: bytes.size() == dtype_bytes(dtype, out.size()), which is not 0.
void dequantise(std::uint32_t dtype, std::span<const std::byte> bytes, std::span<double> out);

/// One element of a KV pool: F32, F16 or BF16.
double load_element(std::uint32_t dtype, const std::byte* at);
void store_element(std::uint32_t dtype, double value, std::byte* at);

}  // namespace infos::reference
