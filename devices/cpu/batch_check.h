// SPDX-License-Identifier: Apache-2.0
// The check of a batch before any memory is touched. Pure; any thread.
#pragma once

#include <cstdint>

#include "devices/abi/infos_device.h"
#include "topology/base/result.h"

namespace infos::cpu {

struct BatchLimits {
  std::uint32_t max_tokens = 0, max_sequences = 0, max_context = 0;
  std::uint32_t token_limit = 0;  ///< token ids are below this
  std::uint32_t block_tokens = 1, n_blocks = 0;
};

/// Errors: invalid_argument: the row or sequence, the value seen, the values allowed.
Status check_batch(const infos_batch& batch, const BatchLimits& limits);

}  // namespace infos::cpu
