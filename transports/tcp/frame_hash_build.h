// SPDX-License-Identifier: Apache-2.0
// One build of XXH3 with the registers that the including file is compiled for. Included by the
// frame_hash*.cc alone.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "transports/tcp/frame_hash.h"

namespace infos {
namespace {

static_assert(sizeof(XXH3_state_t) <= 640);

constexpr HashBuild kThisBuild = {
    [](void* state) { XXH3_64bits_reset(static_cast<XXH3_state_t*>(state)); },
    [](void* state, const void* bytes, std::size_t size) {
      XXH3_64bits_update(static_cast<XXH3_state_t*>(state), bytes, size);
    },
    [](const void* state) -> std::uint64_t {
      return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state));
    }};

}  // namespace
}  // namespace infos
