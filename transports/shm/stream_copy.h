// SPDX-License-Identifier: Apache-2.0
// Copies that go around the caches (non-temporal stores): for KV blocks, which are larger than the
// caches and not read again by this core. Any thread.
#pragma once

#include <cstddef>

namespace infos {

/// Like memcpy; the bytes are visible to other threads after stream_fence().
void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes);
void stream_fence();

}  // namespace infos
