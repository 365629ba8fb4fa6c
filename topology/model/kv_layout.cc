// SPDX-License-Identifier: Apache-2.0
#include "topology/model/kv_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "topology/base/check.h"

namespace infos {
namespace {

constexpr std::uint64_t kPoolBytesMax = std::uint64_t{1} << 46;

struct NumberBound {
  const char* name;
  std::uint64_t value, most;
};

std::uint64_t offset(const KvStrides& s, std::uint64_t block, std::uint64_t layer,
                     std::uint64_t head, std::uint64_t token) {
  return block * s.block + layer * s.layer + head * s.head + token * s.token;
}

/// Past the last byte of a plane, or nothing when that is beyond all bounds.
std::optional<std::uint64_t> plane_end(const KvLayout& l, const KvStrides& s, std::uint64_t begin,
                                       std::uint64_t bytes) {
  const std::uint64_t steps[][2] = {{s.block, l.blocks - 1},
                                    {s.layer, l.layers - 1},
                                    {s.head, l.heads_of(0).count - 1},
                                    {s.token, l.block_tokens - 1},
                                    {s.v, 1}};
  std::uint64_t end = begin;
  for (const auto& [stride, times] : steps) {
    std::uint64_t far = 0;
    if (__builtin_mul_overflow(stride, times, &far) || __builtin_add_overflow(end, far, &end) ||
        end > kPoolBytesMax)
      return std::nullopt;
  }
  return end + bytes;
}

const char* order_word(const KvLayout& l) {
  return l.data.token > l.data.head ? "token-major" : "head-major";
}

/// Interleaved: each row of V lies right behind its row of K.
const char* placing_word(const KvLayout& l) {
  return l.data.v == l.row_bytes() && std::max(l.data.head, l.data.token) > l.data.v
             ? "K and V interleaved"
             : "K and V apart";
}

std::string differs(const char* field, std::uint64_t a, std::uint64_t b) {
  return fmt::format("{} {} against {}", field, a, b);
}

/// The first difference that no reshard can bridge.
std::optional<std::string> compare_models(const KvLayout& a, const KvLayout& b) {
  if (a.model != b.model) return fmt::format("model '{}' against '{}'", a.model, b.model);
  if (a.layers != b.layers) return differs("layers", a.layers, b.layers);
  if (a.heads != b.heads) return differs("heads", a.heads, b.heads);
  if (a.head_dim != b.head_dim) return differs("head_dim", a.head_dim, b.head_dim);
  return std::nullopt;
}

std::optional<std::string> compare_strides(const char* plane, const KvStrides& a,
                                           const KvStrides& b) {
  const std::pair<const char*, std::uint64_t KvStrides::*> fields[] = {
      {"block", &KvStrides::block}, {"layer", &KvStrides::layer}, {"head", &KvStrides::head},
      {"token", &KvStrides::token}, {"v", &KvStrides::v},
  };
  for (const auto& [name, field] : fields)
    if (a.*field != b.*field)
      return differs(fmt::format("{} stride of {}", plane, name).c_str(), a.*field, b.*field);
  return std::nullopt;
}

}  // namespace

const char* to_string(KvDType dtype) {
  switch (dtype) {
    case KvDType::f32:
      return "f32";
    case KvDType::f16:
      return "f16";
    case KvDType::bf16:
      return "bf16";
    case KvDType::i8:
      return "i8";
  }
  return "unknown";
}

const char* to_string(KvPolicy policy) {
  switch (policy) {
    case KvPolicy::exact:
      return "exact";
    case KvPolicy::bounded:
      return "bounded";
    case KvPolicy::permissive:
      return "permissive";
  }
  return "unknown";
}

std::uint32_t kv_element_bytes(KvDType dtype) {
  switch (dtype) {
    case KvDType::f32:
      return 4;
    case KvDType::f16:
    case KvDType::bf16:
      return 2;
    case KvDType::i8:
      return 1;
  }
  return 0;
}

KvHeads KvLayout::heads_of(std::uint32_t rank) const {
  if (ranks > heads) return {rank / (ranks / heads), 1};
  const std::uint32_t each = heads / ranks;
  return {rank * each, each};
}

std::uint64_t KvLayout::pool_bytes() const {
  const std::uint64_t data_end = plane_end(*this, data, 0, row_bytes()).value_or(0);
  if (dtype != KvDType::i8) return data_end;
  return std::max(data_end, plane_end(*this, scale, scale_begin, sizeof(float)).value_or(data_end));
}

std::uint64_t KvLayout::bytes_per_token() const {
  const std::uint64_t row = row_bytes() + (dtype == KvDType::i8 ? sizeof(float) : 0);
  return row * 2 * layers * heads_of(0).count * ranks;
}

std::uint64_t KvLayout::row_offset(std::uint32_t rank, std::uint32_t block, std::uint32_t layer,
                                   std::uint32_t head, std::uint32_t token, KvHalf half) const {
  return offset(data, block, layer, head - heads_of(rank).begin, token) +
         (half == KvHalf::v ? data.v : 0);
}

std::uint64_t KvLayout::scale_offset(std::uint32_t rank, std::uint32_t block, std::uint32_t layer,
                                     std::uint32_t head, std::uint32_t token, KvHalf half) const {
  return scale_begin + offset(scale, block, layer, head - heads_of(rank).begin, token) +
         (half == KvHalf::v ? scale.v : 0);
}

Status KvLayout::validate() const {
  const NumberBound bounds[] = {
      {"layers", layers, 4096},     {"heads", heads, 4096},
      {"head_dim", head_dim, 1024}, {"block_tokens", block_tokens, 65536},
      {"ranks", ranks, 1024},       {"blocks", blocks, 1U << 30},
  };
  for (const NumberBound& bound : bounds)
    if (bound.value == 0 || bound.value > bound.most)
      return Error{ErrorCode::invalid_argument, fmt::format("KV layout: {} is {}, allowed 1 to {}",
                                                            bound.name, bound.value, bound.most)};
  if (kv_element_bytes(dtype) == 0)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("KV layout: dtype is {}, allowed f32, f16, bf16, i8",
                             static_cast<unsigned>(dtype))};
  if (ranks <= heads ? heads % ranks != 0 : ranks % heads != 0)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("KV layout: {} heads over {} ranks, allowed: one divides the other",
                             heads, ranks)};
  const bool scaled = dtype == KvDType::i8;
  if (!plane_end(*this, data, 0, row_bytes()) ||
      (scaled &&
       (scale_begin > kPoolBytesMax || !plane_end(*this, scale, scale_begin, sizeof(float)))))
    return Error{ErrorCode::invalid_argument,
                 "KV layout: its strides reach beyond 64 TiB, the most that is allowed"};
  if (!scaled && (scale_begin != 0 || scale != KvStrides{}))
    return Error{ErrorCode::invalid_argument,
                 fmt::format("KV layout: {} has scales, allowed with i8 alone", to_string(dtype))};
  return {};
}

KvLayout make_kv_layout(const KvShape& shape) {
  KvLayout l;
  l.model = shape.model;
  l.build = shape.build;
  l.layers = shape.layers;
  l.heads = shape.heads;
  l.head_dim = shape.head_dim;
  l.dtype = shape.dtype;
  l.block_tokens = shape.block_tokens;
  l.ranks = shape.ranks;
  l.blocks = shape.blocks;
  const std::uint64_t heads = l.heads_of(0).count;
  const auto fill = [&](KvStrides& s, std::uint64_t row) {
    const std::uint64_t step = shape.placing == KvPlacing::interleaved ? 2 * row : row;
    const bool by_head = shape.order == KvOrder::head_major;
    s.token = by_head ? step : step * heads;
    s.head = by_head ? step * shape.block_tokens : step;
    s.v = shape.placing == KvPlacing::interleaved ? row : row * heads * shape.block_tokens;
    return 2 * row * heads * shape.block_tokens;
  };
  std::uint64_t layer_bytes = fill(l.data, l.row_bytes());
  if (l.dtype == KvDType::i8) {
    l.scale_begin = layer_bytes;
    layer_bytes += fill(l.scale, sizeof(float));
    l.scale.layer = layer_bytes;
    l.scale.block = layer_bytes * l.layers;
  }
  l.data.layer = layer_bytes;
  l.data.block = layer_bytes * l.layers;
  return l;
}

std::string describe(const KvLayout& l) {
  return fmt::format("{} block {} {} TP {}", to_string(l.dtype), l.block_tokens, order_words(l),
                     l.ranks);
}

std::string order_words(const KvLayout& l) {
  return fmt::format("{} {}", order_word(l), placing_word(l));
}

std::optional<std::string> compare(const KvLayout& a, const KvLayout& b) {
  if (auto model = compare_models(a, b)) return model;
  if (a.build != b.build) return fmt::format("build '{}' against '{}'", a.build, b.build);
  if (a.dtype != b.dtype)
    return fmt::format("dtype {} against {}", to_string(a.dtype), to_string(b.dtype));
  if (a.block_tokens != b.block_tokens)
    return differs("block_tokens", a.block_tokens, b.block_tokens);
  if (a.ranks != b.ranks) return differs("ranks", a.ranks, b.ranks);
  const std::string order_a = order_word(a), order_b = order_word(b);
  if (order_a != order_b) return fmt::format("order {} against {}", order_a, order_b);
  const std::string placing_a = placing_word(a), placing_b = placing_word(b);
  if (placing_a != placing_b) return fmt::format("placing {} against {}", placing_a, placing_b);
  if (auto strides = compare_strides("data", a.data, b.data)) return strides;
  if (auto strides = compare_strides("scale", a.scale, b.scale)) return strides;
  if (a.scale_begin != b.scale_begin) return differs("scale_begin", a.scale_begin, b.scale_begin);
  return std::nullopt;
}

KvFidelity conversion_fidelity(KvDType from, KvDType to) {
  if (from == to) return KvFidelity::exact;
  const bool widens = to == KvDType::f32 && (from == KvDType::f16 || from == KvDType::bf16);
  return widens ? KvFidelity::exact : KvFidelity::lossy;
}

Result<KvFidelity> can_reshard(const KvLayout& from, const KvLayout& to, KvPolicy policy) {
  const auto both = [&] { return fmt::format("({}) as ({})", describe(from), describe(to)); };
  if (const auto model = compare_models(from, to))
    return Error{ErrorCode::invalid_argument,
                 fmt::format("KV of another model cannot be used {}: {}", both(), *model)};
  const KvFidelity fidelity = conversion_fidelity(from.dtype, to.dtype);
  if (policy == KvPolicy::exact && from.build != to.build)
    return Error{ErrorCode::unsupported,
                 fmt::format("numerics exact takes KV of its own plugin build alone {}: build "
                             "'{}' against '{}'",
                             both(), from.build, to.build)};
  const bool allowed = fidelity == KvFidelity::exact || policy == KvPolicy::permissive ||
                       (policy == KvPolicy::bounded && to.dtype != KvDType::i8);
  if (!allowed)
    return Error{ErrorCode::unsupported,
                 fmt::format("numerics {} does not allow KV {}: {} to {} rounds", to_string(policy),
                             both(), to_string(from.dtype), to_string(to.dtype))};
  return fidelity;
}

}  // namespace infos
