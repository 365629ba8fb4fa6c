// SPDX-License-Identifier: Apache-2.0
// A KV layout as a peer may send it: whatever the bytes, an error or a layout that is whole: it
// writes to the same text again, every place lies within its pool, and programs can be made of it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "topology/base/check.h"
#include "topology/model/kv_layout.h"
#include "transports/kv/reshard.h"
#include "transports/kv/unit.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace infos;  // NOLINT: a fuzz target is one function
  const auto layout = decode_kv_layout({reinterpret_cast<const char*>(data), size});
  if (!layout.ok()) return 0;
  const KvLayout& l = *layout;
  INFOS_CHECK(l.validate().ok());
  const auto again = decode_kv_layout(encode(l));
  INFOS_CHECK(again.ok());
  INFOS_CHECK(encode(*again) == encode(l));
  const std::uint32_t head = l.heads_of(l.ranks - 1).begin;
  const std::uint64_t last =
      l.row_offset(l.ranks - 1, l.blocks - 1, l.layers - 1, head, l.block_tokens - 1, KvHalf::v);
  INFOS_CHECK(last + l.row_bytes() <= l.pool_bytes());
  // A mover refuses units that are larger than its staging, before it makes programs.
  if (unit_bytes(l) > 1u << 30 || l.ranks > 64) return 0;
  INFOS_CHECK(staging_layout(l).validate().ok());
  INFOS_CHECK(ReshardProgram::compile(l, staging_layout(l)).ok());
  return 0;
}
