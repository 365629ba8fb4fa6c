// SPDX-License-Identifier: Apache-2.0
// CRC-32C with the widest carry-less multiplication of this CPU: 64 bytes at once where there is
// VPCLMULQDQ (twice as fast as XXH3 with AVX-512 here), 16 with PCLMULQDQ, else a table. Any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace infos {

/// The checksum of what `crc` is the checksum of, followed by these bytes. Of nothing: 0.
std::uint32_t crc32c(std::uint32_t crc, const void* bytes, std::size_t size);

/// The ways to compute it, for tests. Null: not on this CPU.
using Crc32c = std::uint32_t (*)(std::uint32_t crc, const void* bytes, std::size_t size);
Crc32c crc32c_table();
Crc32c crc32c_narrow();
Crc32c crc32c_wide();

}  // namespace infos
