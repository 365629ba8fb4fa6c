// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/transfer_layout.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <optional>

#include "devices/host/device.h"
#include "devices/host/plugin.h"

namespace infos {
namespace {

constexpr std::size_t kSamples = 64;
constexpr std::size_t kSampleBytes = 256;

std::optional<KvDType> kv_dtype_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return KvDType::f32;
    case DType::f16:
      return KvDType::f16;
    case DType::bf16:
      return KvDType::bf16;
    default:
      return std::nullopt;
  }
}

bool laid_out_alike(const KvRank& a, const KvRank& b) {
  return a.dtype == b.dtype && a.layers == b.layers && a.head_dim == b.head_dim &&
         a.block_tokens == b.block_tokens && a.blocks == b.blocks && a.heads == b.heads &&
         a.s_block == b.s_block && a.s_layer == b.s_layer && a.s_head == b.s_head &&
         a.s_token == b.s_token && a.v_offset == b.v_offset;
}

/// What shapes the numbers, beyond the tensors.
std::string words_of(const ModelConfig& c) {
  std::string words =
      fmt::format("{} {} {} {} {} {} {} {:a} {:a} {} {} {} {} {} {} {} {} {:a} {:a} {:a} {:a}",
                  to_string(c.family), c.layers, c.hidden, c.ffn_hidden, c.heads, c.kv_heads,
                  c.head_dim, c.norm_epsilon, c.rope_theta, c.rope_adjacent_pairs, c.qkv_bias,
                  c.qk_norm, c.tied_embeddings, c.window, c.experts, c.experts_per_token,
                  c.renormalise_experts, c.rope_scaling.factor, c.rope_scaling.low_freq_factor,
                  c.rope_scaling.high_freq_factor, c.rope_scaling.original_context);
  words += fmt::format(" {}", static_cast<int>(c.rope_scaling.kind));
  for (const float divisor : c.rope_scaling.divisors) words += fmt::format(" {:a}", divisor);
  return words;
}

std::uint64_t sample(std::span<const std::byte> data, std::uint64_t seed) {
  if (data.size() <= kSamples * kSampleBytes)
    return XXH3_64bits_withSeed(data.data(), data.size(), seed);
  for (std::size_t i = 0; i < kSamples; ++i) {
    const std::size_t at = (data.size() - kSampleBytes) / (kSamples - 1) * i;
    seed = XXH3_64bits_withSeed(data.data() + at, kSampleBytes, seed);
  }
  return XXH3_64bits_withSeed(data.data() + data.size() - kSampleBytes, kSampleBytes, seed);
}

}  // namespace

std::string checkpoint_identity(const Checkpoint& checkpoint) {
  const std::string words = words_of(checkpoint.config());
  std::uint64_t hash = XXH3_64bits(words.data(), words.size());
  std::vector<const TensorView*> tensors;
  for (const TensorView& tensor : checkpoint.tensors()) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorView* a, const TensorView* b) { return a->name < b->name; });
  for (const TensorView* tensor : tensors) {
    std::string head = fmt::format("{} {}", tensor->name, to_string(tensor->dtype));
    for (const std::int64_t dim : tensor->dims) head += fmt::format(" {}", dim);
    hash = XXH3_64bits_withSeed(head.data(), head.size(), hash);
    hash = sample(tensor->data, hash);
  }
  return fmt::format("{:016x}", hash);
}

Result<std::string> backend_identity(const EngineOptions& options) {
  const Plugin* plugin = INFOS_TRY(find_plugin(options.backend));
  const infos_device_info info = INFOS_TRY(Device::describe(*plugin, 0));
  std::string identity = fmt::format("{}+{}", plugin->api().build, info.compat);
  if (!options.device_options.empty()) identity += "+" + options.device_options;
  return identity;
}

Result<KvLayout> kv_layout_of(const Engine& engine, std::string model, std::string build) {
  const std::span<const KvRank> ranks = engine.kv_ranks();
  if (ranks.empty()) return Error{ErrorCode::unsupported, "the engine has no KV pool"};
  const KvRank& first = ranks.front();
  const std::optional<KvDType> dtype = kv_dtype_of(first.dtype);
  if (!dtype)
    return Error{ErrorCode::unsupported, fmt::format("KV of {} is not moved, want f32, f16 or bf16",
                                                     to_string(first.dtype))};
  KvLayout l;
  l.model = std::move(model);
  l.build = std::move(build);
  l.layers = first.layers;
  l.heads = engine.config().kv_heads;
  l.head_dim = first.head_dim;
  l.dtype = *dtype;
  l.block_tokens = first.block_tokens;
  l.ranks = static_cast<std::uint32_t>(ranks.size());
  l.blocks = first.blocks;
  l.data = {first.s_block, first.s_layer, first.s_head, first.s_token, first.v_offset};
  INFOS_TRY(l.validate());
  for (std::uint32_t r = 0; r < l.ranks; ++r) {
    const KvHeads heads = l.heads_of(r);
    if (!ranks[r].base)
      return Error{ErrorCode::unsupported, fmt::format("rank {}'s KV is not in host memory", r)};
    if (!laid_out_alike(first, ranks[r]) || ranks[r].head_begin != heads.begin ||
        ranks[r].heads != heads.count)
      return Error{
          ErrorCode::unsupported,
          fmt::format("rank {} of {} holds its KV in another way than rank 0", r, l.ranks)};
  }
  return l;
}

std::vector<std::byte*> kv_pools_of(const Engine& engine) {
  std::vector<std::byte*> pools;
  for (const KvRank& rank : engine.kv_ranks()) pools.push_back(rank.base);
  return pools;
}

}  // namespace infos
