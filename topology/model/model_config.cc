// SPDX-License-Identifier: Apache-2.0
#include "topology/model/model_config.h"

#include <fmt/format.h>

namespace infos {

const char* to_string(ModelFamily family) {
  switch (family) {
    case ModelFamily::llama:
      return "llama";
    case ModelFamily::mistral:
      return "mistral";
    case ModelFamily::qwen2:
      return "qwen2";
    case ModelFamily::qwen3:
      return "qwen3";
  }
  return "unknown";
}

namespace {
Status in_range(const char* field, double value, double low, double high) {
  if (value >= low && value <= high) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("{} is {}: want {} to {}", field, value, low, high)};
}
}  // namespace

Status ModelConfig::validate() const {
  INFOS_TRY(in_range("layers", layers, 1, 1024));
  INFOS_TRY(in_range("hidden size", hidden, 1, 1 << 17));
  INFOS_TRY(in_range("ffn hidden size", ffn_hidden, 1, 1 << 20));
  INFOS_TRY(in_range("heads", heads, 1, 1024));
  INFOS_TRY(in_range("kv heads", kv_heads, 1, heads));
  INFOS_TRY(in_range("head dim", head_dim, 2, 1024));
  INFOS_TRY(in_range("vocabulary size", vocab, 1, 1 << 22));
  INFOS_TRY(in_range("maximum context", max_context, 1, 1 << 24));
  INFOS_TRY(in_range("norm epsilon", norm_epsilon, 0, 1));
  INFOS_TRY(in_range("rope theta", rope_theta, 1, 1e12));
  INFOS_TRY(in_range("experts", experts, 0, 4096));
  if (heads % kv_heads != 0)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("heads is {}: want a multiple of kv heads, {}", heads, kv_heads)};
  if (head_dim % 2 != 0)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("head dim is {}: want an even number", head_dim)};
  INFOS_TRY(in_range("rope scaling factor", rope_scaling.factor, 1e-3, 1e6));
  if (rope_scaling.kind == RopeScaling::Kind::table) {
    if (rope_scaling.divisors.size() != head_dim / 2)
      return Error{ErrorCode::invalid_argument,
                   fmt::format("rope table has {} entries: want half of head dim, {}",
                               rope_scaling.divisors.size(), head_dim / 2)};
    for (const float divisor : rope_scaling.divisors)
      INFOS_TRY(in_range("rope table entry", divisor, 1e-6, 1e6));
  }
  if (experts > 0) INFOS_TRY(in_range("experts per token", experts_per_token, 1, experts));
  return {};
}

}  // namespace infos
