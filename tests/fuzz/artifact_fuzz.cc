// SPDX-License-Identifier: Apache-2.0
// Hostile artifacts of the CPU backend: refused with a sentence, or a plan that survives writing
// and reading again. The input lacks the checksum at the end, which is set here; without it nothing
// would get past.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "devices/cpu/plan.h"

namespace {

std::vector<std::uint8_t> with_checksum(const std::uint8_t* data, std::size_t size) {
  std::vector<std::uint8_t> bytes(data, data + size);
  std::uint64_t hash = 14695981039346656037ULL;
  for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 1099511628211ULL;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<std::uint8_t>(hash >> (8 * i)));
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto first = infos::cpu::deserialize(with_checksum(data, size));
  if (!first.ok()) {
    if (first.error().message.empty()) std::abort();
    return 0;
  }
  const auto once = infos::cpu::serialize(first->plan, first->compat);
  const auto second = infos::cpu::deserialize(once);
  if (!second.ok() || infos::cpu::serialize(second->plan, second->compat) != once) std::abort();
  return 0;
}
