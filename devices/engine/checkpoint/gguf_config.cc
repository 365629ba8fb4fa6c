// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "devices/engine/checkpoint/printable.h"

namespace infos {
namespace {

/// Reads the keys of one architecture: "llama.block_count" and so on.
class Keys {
 public:
  Keys(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  Error error(ErrorCode code, const std::string& key, const std::string& what) const {
    return {code, fmt::format("{}: {}{}: {}", file_.label, prefix_, key, what)};
  }
  Result<std::optional<std::uint32_t>> find_count(const std::string& key) const {
    const auto seen = INFOS_TRY(file_.get_unsigned(prefix_ + key));
    if (!seen) return std::optional<std::uint32_t>();
    if (*seen > std::numeric_limits<std::uint32_t>::max())
      return error(ErrorCode::corrupt, key, fmt::format("is {}: want at most 4294967295", *seen));
    return std::optional(static_cast<std::uint32_t>(*seen));
  }
  Result<std::uint32_t> count(const std::string& key) const {
    const auto seen = INFOS_TRY(find_count(key));
    if (!seen) return error(ErrorCode::corrupt, key, "the key is missing");
    return *seen;
  }
  Result<std::optional<double>> number(const std::string& key) const {
    return file_.get_number(prefix_ + key);
  }
  Result<std::optional<std::string_view>> word(const std::string& key) const {
    return file_.get_string(prefix_ + key);
  }
  Result<std::optional<bool>> flag(const std::string& key) const {
    return file_.get_bool(prefix_ + key);
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

const GgufTensor* find_tensor(const GgufFile& file, std::string_view name) {
  for (const auto& tensor : file.tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

struct Architecture {
  const char* name;
  ModelFamily family;
  bool adjacent_pairs;  ///< q and k rows were permuted when the file was made
};
constexpr Architecture kArchitectures[] = {
    {"llama", ModelFamily::llama, true},
    {"qwen2", ModelFamily::qwen2, false},
    {"qwen3", ModelFamily::qwen3, false},
    {"qwen3moe", ModelFamily::qwen3, false},
};

Status read_attention(const Keys& keys, ModelConfig& config) {
  config.heads = INFOS_TRY(keys.count("attention.head_count"));
  config.kv_heads = INFOS_TRY(keys.find_count("attention.head_count_kv")).value_or(config.heads);
  if (config.heads == 0)
    return keys.error(ErrorCode::corrupt, "attention.head_count", "is 0: want 1 or more");
  const auto head_dim = INFOS_TRY(keys.find_count("attention.key_length"));
  config.head_dim = head_dim.value_or(config.hidden / config.heads);
  if (!head_dim && config.hidden % config.heads != 0)
    return keys.error(
        ErrorCode::corrupt, "embedding_length",
        fmt::format("is {}: want a multiple of the {} heads", config.hidden, config.heads));
  const auto value_dim =
      INFOS_TRY(keys.find_count("attention.value_length")).value_or(config.head_dim);
  if (value_dim != config.head_dim)
    return keys.error(
        ErrorCode::unsupported, "attention.value_length",
        fmt::format("is {}: want {}, as attention.key_length", value_dim, config.head_dim));
  config.window = INFOS_TRY(keys.find_count("attention.sliding_window")).value_or(0);
  const auto epsilon = INFOS_TRY(keys.number("attention.layer_norm_rms_epsilon"));
  if (!epsilon)
    return keys.error(ErrorCode::corrupt, "attention.layer_norm_rms_epsilon", "the key is missing");
  config.norm_epsilon = *epsilon;
  return {};
}

Status read_rope_table(const GgufFile& file, ModelConfig& config) {
  const auto* table = find_tensor(file, "rope_freqs.weight");
  if (!table) return {};
  const std::int64_t wanted = config.head_dim / 2;
  if (table->dtype != DType::f32 || table->dims != std::vector<std::int64_t>{wanted})
    return Error{
        ErrorCode::corrupt,
        fmt::format(
            "{}: tensor \"rope_freqs.weight\": {} of rank {}: want f32 [{}], half of head dim",
            file.label, to_string(table->dtype), table->dims.size(), wanted)};
  config.rope_scaling.kind = RopeScaling::Kind::table;
  config.rope_scaling.divisors.resize(table->data.size() / sizeof(float));
  std::memcpy(config.rope_scaling.divisors.data(), table->data.data(), table->data.size());
  return {};
}

Status read_rope(const Keys& keys, const GgufFile& file, ModelConfig& config) {
  config.rope_theta = INFOS_TRY(keys.number("rope.freq_base")).value_or(10000.0);
  const auto rotated = INFOS_TRY(keys.find_count("rope.dimension_count")).value_or(config.head_dim);
  if (rotated != config.head_dim)
    return keys.error(ErrorCode::unsupported, "rope.dimension_count",
                      fmt::format("is {}: want {}, the whole head", rotated, config.head_dim));
  const auto kind = INFOS_TRY(keys.word("rope.scaling.type")).value_or("none");
  const auto old_factor = INFOS_TRY(keys.number("rope.scale_linear"));
  if (kind == "linear" ||
      (kind == "none" && old_factor && *old_factor != 1.0 && *old_factor != 0.0)) {
    config.rope_scaling.kind = RopeScaling::Kind::linear;
    config.rope_scaling.factor =
        INFOS_TRY(keys.number("rope.scaling.factor")).value_or(old_factor.value_or(1.0));
  } else if (kind != "none") {
    return keys.error(ErrorCode::unsupported, "rope.scaling.type",
                      fmt::format("is \"{}\": want none or linear", kind));
  }
  return read_rope_table(file, config);
}

Status read_experts(const Keys& keys, ModelConfig& config) {
  config.experts = INFOS_TRY(keys.find_count("expert_count")).value_or(0);
  if (config.experts == 0) return {};
  config.experts_per_token = INFOS_TRY(keys.count("expert_used_count"));
  config.ffn_hidden =
      INFOS_TRY(keys.find_count("expert_feed_forward_length")).value_or(config.ffn_hidden);
  config.renormalise_experts = INFOS_TRY(keys.flag("expert_weights_norm")).value_or(true);
  if (config.family == ModelFamily::llama) config.family = ModelFamily::mistral;
  const auto shared = INFOS_TRY(keys.find_count("expert_shared_count")).value_or(0);
  if (shared != 0)
    return keys.error(ErrorCode::unsupported, "expert_shared_count",
                      fmt::format("is {}: want 0", shared));
  const auto gating = INFOS_TRY(keys.find_count("expert_gating_func")).value_or(1);
  if (gating != 1)
    return keys.error(ErrorCode::unsupported, "expert_gating_func",
                      fmt::format("is {}: want 1, softmax", gating));
  return {};
}

Status read_vocabulary(const Keys& keys, const GgufFile& file, ModelConfig& config) {
  const auto* table = find_tensor(file, "token_embd.weight");
  if (!table || table->dims.size() != 2)
    return Error{ErrorCode::corrupt, fmt::format("{}: tensor \"token_embd.weight\": {}", file.label,
                                                 table ? "want 2 dimensions" : "is missing")};
  config.vocab = static_cast<std::uint32_t>(std::min<std::int64_t>(table->dims[0], UINT32_MAX));
  const auto said = INFOS_TRY(keys.find_count("vocab_size"));
  if (said && *said != config.vocab)
    return keys.error(ErrorCode::corrupt, "vocab_size",
                      fmt::format("is {}, but token_embd.weight has {} rows", *said, config.vocab));
  return {};
}

}  // namespace

Result<ModelConfig> gguf_config(const GgufFile& file) {
  const auto name = INFOS_TRY(file.get_string("general.architecture"));
  if (!name)
    return Error{ErrorCode::corrupt,
                 fmt::format("{}: general.architecture: the key is missing", file.label)};
  const auto* known = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                   [&](const Architecture& a) { return *name == a.name; });
  if (known == std::end(kArchitectures))
    return Error{
        ErrorCode::unsupported,
        fmt::format("{}: general.architecture: is \"{}\": want llama, qwen2, qwen3 or qwen3moe",
                    file.label, *name)};
  const Keys keys(file, *name);
  ModelConfig config;
  config.name = printable(INFOS_TRY(file.get_string("general.name")).value_or(*name), 256);
  config.family = known->family;
  config.rope_adjacent_pairs = known->adjacent_pairs;
  config.layers = INFOS_TRY(keys.count("block_count"));
  config.hidden = INFOS_TRY(keys.count("embedding_length"));
  config.max_context = INFOS_TRY(keys.count("context_length"));
  config.ffn_hidden = INFOS_TRY(keys.find_count("feed_forward_length")).value_or(0);
  INFOS_TRY(read_attention(keys, config));
  INFOS_TRY(read_rope(keys, file, config));
  INFOS_TRY(read_experts(keys, config));
  INFOS_TRY(read_vocabulary(keys, file, config));
  config.qkv_bias = find_tensor(file, "blk.0.attn_q.bias") != nullptr;
  config.qk_norm = find_tensor(file, "blk.0.attn_q_norm.weight") != nullptr;
  config.tied_embeddings = find_tensor(file, "output.weight") == nullptr;
  return config;
}

}  // namespace infos
