// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/engine/kv_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace infos {

Bytes kv_block_bytes(const ModelConfig& config, std::uint32_t block_tokens,
                     std::uint32_t element_bytes) {
  return {std::uint64_t{2} * config.layers * config.kv_heads * config.head_dim * block_tokens *
          element_bytes};
}

Result<KvBudget> kv_budget(const ModelConfig& config, const KvBudgetRequest& request) {
  const Bytes block = kv_block_bytes(config, request.block_tokens, request.element_bytes);
  const std::uint64_t per_sequence =
      (std::uint64_t{request.max_context} + request.block_tokens - 1) / request.block_tokens;
  const bool given = request.memory.value != 0;
  const Bytes memory = given ? request.memory : Bytes{request.free.value / 4};
  std::uint64_t blocks = memory.value / block.value;
  if (!given) blocks = std::min(blocks, per_sequence * request.max_sequences);
  blocks = std::min<std::uint64_t>(blocks, 1U << 24);
  // Memory that becomes free may help; what the spec grants stays as it is.
  if (blocks == 0)
    return Error{given ? ErrorCode::invalid_argument : ErrorCode::resource_exhausted,
                 fmt::format("one KV block of {} tokens needs {}: {} is there for KV caches",
                             request.block_tokens, to_string(block), to_string(memory))};
  const std::uint64_t held = blocks * request.block_tokens;
  return KvBudget{static_cast<std::uint32_t>(blocks),
                  static_cast<std::uint32_t>(std::min<std::uint64_t>(request.max_context, held))};
}

namespace {
/// The number in a one-number file of a control group; UINT64_MAX when there is none ("max").
std::uint64_t group_number(const char* path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? value : UINT64_MAX;
}
}  // namespace

Bytes free_memory() {
  std::uint64_t available = 0;
  std::ifstream file("/proc/meminfo");
  for (std::string key; file >> key;) {
    if (key != "MemAvailable:") continue;
    file >> available;
    break;
  }
  available *= 1024;
  const std::uint64_t limit = group_number("/sys/fs/cgroup/memory.max");
  const std::uint64_t used = group_number("/sys/fs/cgroup/memory.current");
  if (limit != UINT64_MAX && used != UINT64_MAX)
    available = std::min(available, limit > used ? limit - used : 0);
  return {available};
}

}  // namespace infos
