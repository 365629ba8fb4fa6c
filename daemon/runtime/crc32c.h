// SPDX-License-Identifier: Apache-2.0
// CRC32C (Castagnoli), the checksum of stored rows. Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace infos {

/// Continues `running` (0 at the beginning) over `bytes`. Source: RFC 3720, appendix B.4;
/// crc32c("123456789") = e3069283.
std::uint32_t crc32c(std::uint32_t running, std::string_view bytes);

}  // namespace infos
