// SPDX-License-Identifier: Apache-2.0
// How many KV blocks an engine gets: from the memory that is free, or that the operator gave, and
// from what its sequences can use at most. Pure, free_memory() excepted.
#pragma once

#include <cstdint>

#include "topology/base/result.h"
#include "topology/base/units.h"
#include "topology/model/model_config.h"

namespace infos {

struct KvBudgetRequest {
  Bytes memory;  ///< what the operator gave; 0: a quarter of `free`, at most what the sequences can
                 ///< use
  Bytes free;
  std::uint32_t element_bytes = 2;
  std::uint32_t block_tokens = 16;
  std::uint32_t max_sequences = 1;
  std::uint32_t max_context = 0;
};

struct KvBudget {
  std::uint32_t blocks = 0;
  std::uint32_t max_context = 0;  ///< as asked, or what all blocks together hold
};

/// Bytes of one block, K and V, all layers.
Bytes kv_block_bytes(const ModelConfig& config, std::uint32_t block_tokens,
                     std::uint32_t element_bytes);
/// Errors: resource_exhausted: not one block fits; names the bytes wanted and there.
Result<KvBudget> kv_budget(const ModelConfig& config, const KvBudgetRequest& request);

/// Memory that this process may still take: the machine's available memory, within the control
/// group's limit.
Bytes free_memory();

}  // namespace infos
