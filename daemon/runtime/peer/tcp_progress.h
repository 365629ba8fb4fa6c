// SPDX-License-Identifier: Apache-2.0
// How many bytes of a TCP connection the other end's system has acknowledged. Apart, because the
// kernel's header and the C library's cannot be included together. Any thread.
#pragma once

#include <cstdint>

namespace infos {

/// Bytes acknowledged since the connection was made; 0 when that cannot be known.
std::uint64_t acknowledged_bytes(int socket);

}  // namespace infos
