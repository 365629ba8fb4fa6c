// SPDX-License-Identifier: Apache-2.0
// Both sides of a session cut regions at the same places.
#pragma once

#include <cstdint>

namespace infos {

/// Registrations are at most this long: below every device's max_mr_size (2 GiB on some).
inline constexpr std::uint64_t kUcxSliceBytes = 1ull << 30;

}  // namespace infos
