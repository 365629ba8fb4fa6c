// SPDX-License-Identifier: Apache-2.0
#include "transports/kv/exporter.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <bit>

#include "topology/base/check.h"

namespace infos {
namespace {

std::atomic_ref<std::uint64_t> word(std::span<std::byte> table, std::uint64_t offset) {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(table.data() + offset));
}

}  // namespace

KvExporter::KvExporter(ReshardProgram self, std::vector<const std::byte*> pools,
                       std::vector<std::span<std::byte>> stamps)
    : self_(std::move(self)), pools_(std::move(pools)), stamps_(std::move(stamps)) {}

Result<KvExporter> KvExporter::create(const KvLayout& layout, std::vector<const std::byte*> pools,
                                      std::vector<std::span<std::byte>> stamps) {
  ReshardProgram self = INFOS_TRY(ReshardProgram::compile(layout, layout));
  if (pools.size() != layout.ranks || stamps.size() != layout.ranks)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} pools and {} stamp tables for {} ranks", pools.size(),
                             stamps.size(), layout.ranks)};
  for (const auto& table : stamps)
    if (table.size() < stamp_table_bytes(layout))
      return Error{ErrorCode::invalid_argument,
                   fmt::format("a stamp table of {} bytes, want {}", table.size(),
                               stamp_table_bytes(layout))};
  return KvExporter(std::move(self), std::move(pools), std::move(stamps));
}

void KvExporter::write(const KvUnit& unit, const KvStamp& stamp) {
  const std::span<std::byte> table = stamps_[unit.rank];
  const std::uint64_t at = stamp_offset(layout(), unit);
  const auto words = std::bit_cast<std::array<std::uint64_t, 4>>(stamp);
  word(table, at).store(0, std::memory_order_release);
  for (std::uint32_t i = 1; i < 4; ++i)
    word(table, at + 8 * i).store(words[i], std::memory_order_relaxed);
  word(table, at).store(words[0], std::memory_order_release);
}

void KvExporter::stamp(const KvFinal& part) {
  INFOS_CHECK(part.block.value < layout().blocks);
  INFOS_CHECK(part.layer_end <= layout().layers);
  INFOS_CHECK(part.tokens <= layout().block_tokens);
  INFOS_CHECK(part.generation != 0);
  KvUnitHash hash(self_, scratch_);
  const KvTables tables{{&part.block, 1}, {&part.block, 1}};
  for (std::uint32_t rank = 0; rank < layout().ranks; ++rank) {
    if (!self_.reads(rank)) continue;
    for (std::uint32_t layer = part.layer_begin; layer < part.layer_end; ++layer) {
      const KvUnit unit{rank, part.block.value, layer};
      const std::uint64_t bytes = hash({0, part.tokens, layer, layer + 1, rank}, tables, pools_);
      write(unit, make_stamp(unit, part.generation, part.tokens, bytes));
    }
  }
}

void KvExporter::unstamp(BlockId block) {
  INFOS_CHECK(block.value < layout().blocks);
  for (std::uint32_t rank = 0; rank < layout().ranks; ++rank)
    for (std::uint32_t layer = 0; layer < layout().layers; ++layer)
      word(stamps_[rank], stamp_offset(layout(), {rank, block.value, layer}))
          .store(0, std::memory_order_release);
}

}  // namespace infos
