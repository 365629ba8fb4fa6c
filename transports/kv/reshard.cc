// SPDX-License-Identifier: Apache-2.0
#include "transports/kv/reshard.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "topology/base/check.h"
#include "transports/kv/convert.h"

namespace infos {
namespace {

enum AxisOf : std::uint8_t { kToken, kHead, kHalf, kLayer };
constexpr std::size_t kAxes = 4;
constexpr std::uint32_t kTokensMax = 1U << 30;  ///< of a sequence, so that sums stay in 32 bits

std::uint64_t stride_of(const KvStrides& s, std::uint8_t axis) {
  switch (axis) {
    case kToken:
      return s.token;
    case kHead:
      return s.head;
    case kHalf:
      return s.v;
    default:
      return s.layer;
  }
}

/// Where a row begins.
std::uint64_t place(const KvStrides& s, BlockId block, std::uint64_t layer, std::uint64_t head,
                    std::uint64_t slot) {
  return block.value * s.block + layer * s.layer + head * s.head + slot * s.token;
}

/// Adds a copy, or lengthens the last one when it goes on from there on both sides.
void append(std::vector<KvCopy>& out, const KvCopy& copy) {
  if (!out.empty()) {
    KvCopy& last = out.back();
    if (last.from_rank == copy.from_rank && last.to_rank == copy.to_rank &&
        last.from + last.bytes == copy.from && last.to + last.bytes == copy.to) {
      last.bytes += copy.bytes;
      return;
    }
  }
  out.push_back(copy);
}

}  // namespace

/// A (heads, tokens, layers, halves) box that lies within one block on either side. Offsets are of
/// its first row.
struct ReshardProgram::Box {
  std::uint32_t from_rank, to_rank;
  std::uint64_t from, to;
  std::uint64_t from_scale, to_scale;
  std::array<std::uint32_t, kAxes> extent;  ///< by AxisOf
};

Result<ReshardProgram> ReshardProgram::compile(const KvLayout& from, const KvLayout& to) {
  INFOS_TRY(from.validate());
  INFOS_TRY(to.validate());
  INFOS_TRY(can_reshard(from, to, KvPolicy::permissive));
  ReshardProgram p;
  p.from_ = from;
  p.to_ = to;
  for (std::uint32_t f = 0; f < from.ranks; ++f) {
    const KvHeads have = from.heads_of(f);
    if (f > 0 && from.heads_of(f - 1).begin == have.begin) continue;  // the same head again
    for (std::uint32_t t = 0; t < to.ranks; ++t) {
      const KvHeads want = to.heads_of(t);
      const std::uint32_t begin = std::max(have.begin, want.begin);
      const std::uint32_t end = std::min(have.begin + have.count, want.begin + want.count);
      if (begin < end)
        p.pairs_.push_back({f, t, begin - have.begin, begin - want.begin, end - begin});
    }
  }
  for (std::uint8_t axis = 0; axis < kAxes; ++axis) {
    Axis a{stride_of(from.data, axis), stride_of(to.data, axis), stride_of(from.scale, axis),
           stride_of(to.scale, axis), axis};
    p.data_.push_back(a);
    std::swap(a.from, a.from_scale);
    std::swap(a.to, a.to_scale);
    p.scale_.push_back(a);
  }
  const auto inner_first = [](const Axis& a, const Axis& b) { return a.from < b.from; };
  std::stable_sort(p.data_.begin(), p.data_.end(), inner_first);
  std::stable_sort(p.scale_.begin(), p.scale_.end(), inner_first);
  return p;
}

bool ReshardProgram::reads(std::uint32_t from_rank) const {
  return std::any_of(pairs_.begin(), pairs_.end(),
                     [&](const Pair& pair) { return pair.from_rank == from_rank; });
}

/// Cuts a part where a block ends on either side.
template <typename Emit>
void ReshardProgram::walk(const KvPart& part, const KvTables& tables, const Emit& emit) const {
  INFOS_CHECK(part.layer_end <= from_.layers);
  INFOS_CHECK(part.token_end <= kTokensMax);
  if (part.layer_begin >= part.layer_end) return;
  for (const Pair& pair : pairs_) {
    if (part.from_rank != kAllRanks && part.from_rank != pair.from_rank) continue;
    std::uint32_t token = part.token_begin;
    while (token < part.token_end) {
      const std::uint32_t i = (token - tables.from_begin) / from_.block_tokens;
      const std::uint32_t j = (token - tables.to_begin) / to_.block_tokens;
      const std::uint32_t end =
          std::min({part.token_end, tables.from_begin + (i + 1) * from_.block_tokens,
                    tables.to_begin + (j + 1) * to_.block_tokens});
      INFOS_CHECK(i < tables.from.size());
      INFOS_CHECK(j < tables.to.size());
      const auto from = [&](const KvStrides& s) {
        return place(s, tables.from[i], part.layer_begin - tables.from_layer, pair.from_head,
                     token % from_.block_tokens);
      };
      const auto to = [&](const KvStrides& s) {
        return place(s, tables.to[j], part.layer_begin - tables.to_layer, pair.to_head,
                     token % to_.block_tokens);
      };
      const Box box{pair.from_rank,
                    pair.to_rank,
                    from(from_.data),
                    to(to_.data),
                    from_.scale_begin + from(from_.scale),
                    to_.scale_begin + to(to_.scale),
                    {end - token, pair.heads, 2, part.layer_end - part.layer_begin}};
      emit(box);
      token = end;
    }
  }
}

namespace {

/// Up to four nested loops over what does not lie end to end.
struct Loops {
  std::uint64_t run;  ///< in units of the innermost: bytes or elements
  std::array<std::uint64_t, kAxes> from{}, to{};
  std::array<std::uint32_t, kAxes> times{1, 1, 1, 1};
  std::size_t used = 0;

  /// Takes an axis in, innermost first. `from_run` and `to_run` are the run's bytes on each side.
  void add(std::uint32_t extent, std::uint64_t from_step, std::uint64_t to_step,
           std::uint64_t from_run, std::uint64_t to_run) {
    if (extent == 1) return;
    if (used == 0 && from_step == from_run && to_step == to_run) {
      run *= extent;
      return;
    }
    from[used] = from_step;
    to[used] = to_step;
    times[used++] = extent;
  }

  template <typename Each>
  void each(std::uint64_t from_base, std::uint64_t to_base, const Each& each_run) const {
    for (std::uint32_t a = 0; a < times[3]; ++a)
      for (std::uint32_t b = 0; b < times[2]; ++b)
        for (std::uint32_t c = 0; c < times[1]; ++c)
          for (std::uint32_t d = 0; d < times[0]; ++d)
            each_run(from_base + a * from[3] + b * from[2] + c * from[1] + d * from[0],
                     to_base + a * to[3] + b * to[2] + c * to[1] + d * to[0]);
  }
};

}  // namespace

template <typename Emit>
void ReshardProgram::each_copy(const KvPart& part, const KvTables& tables, const Emit& emit) const {
  INFOS_CHECK(copies_only());
  walk(part, tables, [&](const Box& box) {
    Loops loops{from_.row_bytes()};
    for (const Axis& axis : data_)
      loops.add(box.extent[axis.of], axis.from, axis.to, loops.run, loops.run);
    loops.each(box.from, box.to, [&](std::uint64_t from, std::uint64_t to) {
      emit(KvCopy{box.from_rank, box.to_rank, from, to, loops.run});
    });
  });
  if (from_.dtype != KvDType::i8) return;
  walk(part, tables, [&](const Box& box) {
    Loops loops{sizeof(float)};
    for (const Axis& axis : scale_)
      loops.add(box.extent[axis.of], axis.from, axis.to, loops.run, loops.run);
    loops.each(box.from_scale, box.to_scale, [&](std::uint64_t from, std::uint64_t to) {
      emit(KvCopy{box.from_rank, box.to_rank, from, to, loops.run});
    });
  });
}

void ReshardProgram::copies(const KvPart& part, const KvTables& tables,
                            std::vector<KvCopy>& out) const {
  each_copy(part, tables, [&](const KvCopy& copy) { append(out, copy); });
}

template <typename Emit>
void ReshardProgram::convert_box(const Box& box, const Emit& emit) const {
  const bool rows = from_.dtype == KvDType::i8 || to_.dtype == KvDType::i8;
  if (!rows) {
    const std::uint64_t from_bytes = kv_element_bytes(from_.dtype);
    const std::uint64_t to_bytes = kv_element_bytes(to_.dtype);
    Loops loops{from_.head_dim};
    for (const Axis& axis : data_)
      loops.add(box.extent[axis.of], axis.from, axis.to, loops.run * from_bytes,
                loops.run * to_bytes);
    loops.each(box.from, box.to, [&](std::uint64_t from, std::uint64_t to) {
      emit(KvConversion{box.from_rank, box.to_rank, from, to, loops.run, 0, 0});
    });
    return;
  }
  std::array<std::uint32_t, kAxes> at{};
  const auto distance = [&](std::uint64_t Axis::*side) {
    std::uint64_t sum = 0;
    for (const Axis& axis : data_) sum += at[axis.of] * (axis.*side);
    return sum;
  };
  const auto& n = box.extent;
  for (at[kLayer] = 0; at[kLayer] < n[kLayer]; ++at[kLayer])
    for (at[kHalf] = 0; at[kHalf] < n[kHalf]; ++at[kHalf])
      for (at[kHead] = 0; at[kHead] < n[kHead]; ++at[kHead])
        for (at[kToken] = 0; at[kToken] < n[kToken]; ++at[kToken])
          emit(KvConversion{box.from_rank, box.to_rank, box.from + distance(&Axis::from),
                            box.to + distance(&Axis::to), from_.head_dim,
                            box.from_scale + distance(&Axis::from_scale),
                            box.to_scale + distance(&Axis::to_scale)});
}

template <typename Emit>
void ReshardProgram::each_conversion(const KvPart& part, const KvTables& tables,
                                     const Emit& emit) const {
  INFOS_CHECK(!copies_only());
  walk(part, tables, [&](const Box& box) { convert_box(box, emit); });
}

void ReshardProgram::conversions(const KvPart& part, const KvTables& tables,
                                 std::vector<KvConversion>& out) const {
  each_conversion(part, tables, [&](const KvConversion& c) { out.push_back(c); });
}

void ReshardProgram::run(const KvPart& part, const KvTables& tables,
                         std::span<const std::byte* const> from,
                         std::span<std::byte* const> to) const {
  INFOS_CHECK(from.size() == from_.ranks);
  INFOS_CHECK(to.size() == to_.ranks);
  if (copies_only()) {
    std::vector<KvCopy> list;
    copies(part, tables, list);
    for (const KvCopy& c : list)
      if (from[c.from_rank]) std::memcpy(to[c.to_rank] + c.to, from[c.from_rank] + c.from, c.bytes);
    return;
  }
  const bool from_i8 = from_.dtype == KvDType::i8, to_i8 = to_.dtype == KvDType::i8;
  const KvConvert convert = from_i8 || to_i8 ? nullptr : float_conversion(from_.dtype, to_.dtype);
  each_conversion(part, tables, [&](const KvConversion& c) {
    const std::byte* source = from[c.from_rank];
    if (!source) return;
    std::byte* sink = to[c.to_rank];
    if (from_i8)
      dequantise_row(source + c.from, source + c.from_scale, to_.dtype, sink + c.to, c.elements);
    else if (to_i8)
      quantise_row(source + c.from, from_.dtype, sink + c.to, sink + c.to_scale, c.elements);
    else
      convert(source + c.from, sink + c.to, c.elements);
  });
}

}  // namespace infos
