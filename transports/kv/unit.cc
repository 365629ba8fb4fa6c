// SPDX-License-Identifier: Apache-2.0
#include "transports/kv/unit.h"

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // the widest registers that this CPU has
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include "topology/base/check.h"

namespace infos {
namespace {

std::uint64_t check_of(const KvStamp& stamp, const KvUnit& unit) {
  std::array<std::uint64_t, 5> words{};
  std::memcpy(words.data(), &stamp, offsetof(KvStamp, check));
  words[3] = std::uint64_t{unit.rank} << 32 | unit.block;
  words[4] = unit.layer;
  return XXH3_64bits(words.data(), sizeof words);
}

/// Lays a block's layer out without gaps in the order of `strides`. Returns: its bytes.
std::uint64_t close_gaps(const KvLayout& l, const KvStrides& strides, std::uint64_t row,
                         KvStrides& out) {
  struct Along {
    std::uint64_t stride;
    std::uint64_t extent;
    std::uint64_t* out;
  };
  std::array axes{Along{strides.token, l.block_tokens, &out.token},
                  Along{strides.head, l.heads_of(0).count, &out.head}, Along{strides.v, 2, &out.v}};
  std::stable_sort(axes.begin(), axes.end(),
                   [](const Along& a, const Along& b) { return a.stride < b.stride; });
  for (const Along& axis : axes) {
    *axis.out = row;
    row *= axis.extent;
  }
  return row;
}

}  // namespace

KvStamp make_stamp(const KvUnit& unit, std::uint64_t generation, std::uint32_t tokens,
                   std::uint64_t hash) {
  KvStamp stamp{generation, tokens, 1, hash, 0};
  stamp.check = check_of(stamp, unit);
  return stamp;
}

bool is_intact(const KvStamp& stamp, const KvUnit& unit) {
  return stamp.generation != 0 && stamp.version == 1 && stamp.check == check_of(stamp, unit);
}

std::uint64_t stamp_table_bytes(const KvLayout& layout) {
  return std::uint64_t{layout.blocks} * layout.layers * sizeof(KvStamp);
}

std::uint64_t stamp_offset(const KvLayout& layout, const KvUnit& unit) {
  return (std::uint64_t{unit.block} * layout.layers + unit.layer) * sizeof(KvStamp);
}

std::uint64_t unit_bytes(const KvLayout& l) {
  const std::uint64_t row = l.row_bytes() + (l.dtype == KvDType::i8 ? sizeof(float) : 0);
  return row * 2 * l.heads_of(0).count * l.block_tokens;
}

KvLayout staging_layout(const KvLayout& source) {
  KvLayout l = source;
  l.blocks = 1;
  l.data = l.scale = {};
  l.scale_begin = 0;
  std::uint64_t end = close_gaps(source, source.data, source.row_bytes(), l.data);
  if (l.dtype == KvDType::i8) {
    l.scale_begin = end;
    end += close_gaps(source, source.scale, sizeof(float), l.scale);
    l.scale.layer = end;
  }
  l.data.layer = end;
  return l;
}

std::uint64_t KvUnitHash::operator()(const KvPart& part, const KvTables& tables,
                                     std::span<const std::byte* const> bases) {
  INFOS_CHECK(part.layer_end == part.layer_begin + 1);
  runs_.clear();
  program_.copies(part, tables, runs_);
  std::sort(runs_.begin(), runs_.end(), [](const KvCopy& a, const KvCopy& b) {
    return std::tie(a.from, a.to_rank) < std::tie(b.from, b.to_rank);
  });
  const auto same = [](const KvCopy& a, const KvCopy& b) { return a.from == b.from; };
  runs_.erase(std::unique(runs_.begin(), runs_.end(), same), runs_.end());
  if (runs_.size() == 1) return XXH3_64bits(bases[runs_[0].to_rank] + runs_[0].to, runs_[0].bytes);
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const KvCopy& run : runs_)
    XXH3_64bits_update(&state, bases[run.to_rank] + run.to, run.bytes);
  return XXH3_64bits_digest(&state);
}

}  // namespace infos
