// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/hf_export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <filesystem>
#include <list>
#include <vector>

#include "devices/engine/checkpoint/atomic_file.h"
#include "devices/engine/checkpoint/hf_names.h"
#include "devices/engine/checkpoint/safetensors_writer.h"
#include "tests/tools/hf_tokenizer_export.h"

namespace infos::test {
namespace {

namespace fs = std::filesystem;

Status write_text(const std::string& path, const std::string& text) {
  auto file = INFOS_TRY(AtomicFile::create(path));
  INFOS_TRY(file.write(text));
  return file.commit();
}

struct Family {
  const char* architecture;
  const char* model_type;
};

Family family_of(const ModelConfig& config) {
  switch (config.family) {
    case ModelFamily::llama:
      return {"LlamaForCausalLM", "llama"};
    case ModelFamily::mistral:
      return config.experts ? Family{"MixtralForCausalLM", "mixtral"}
                            : Family{"MistralForCausalLM", "mistral"};
    case ModelFamily::qwen2:
      return {"Qwen2ForCausalLM", "qwen2"};
    case ModelFamily::qwen3:
      return config.experts ? Family{"Qwen3MoeForCausalLM", "qwen3_moe"}
                            : Family{"Qwen3ForCausalLM", "qwen3"};
  }
  return {"", ""};
}

Result<std::string> rope_scaling_json(const RopeScaling& scaling) {
  switch (scaling.kind) {
    case RopeScaling::Kind::none:
      return std::string("null");
    case RopeScaling::Kind::linear:
      return fmt::format(R"({{"rope_type":"linear","factor":{}}})", scaling.factor);
    case RopeScaling::Kind::llama3:
      return fmt::format(
          R"({{"rope_type":"llama3","factor":{},"low_freq_factor":{},"high_freq_factor":{},)"
          R"("original_max_position_embeddings":{}}})",
          scaling.factor, scaling.low_freq_factor, scaling.high_freq_factor,
          scaling.original_context);
    case RopeScaling::Kind::table:
      break;
  }
  return Error{ErrorCode::unsupported, "a table of RoPE divisors has no form in config.json"};
}

std::string expert_json(const ModelConfig& config) {
  if (config.experts == 0) return "";
  if (config.family == ModelFamily::qwen3)
    return fmt::format(
        R"("num_experts":{},"num_experts_per_tok":{},"moe_intermediate_size":{},"norm_topk_prob":{},)",
        config.experts, config.experts_per_token, config.ffn_hidden, config.renormalise_experts);
  return fmt::format(R"("num_local_experts":{},"num_experts_per_tok":{},)", config.experts,
                     config.experts_per_token);
}

Result<std::string> config_json(const ModelConfig& c) {
  const Family family = family_of(c);
  const std::string window = c.window ? fmt::format("{}", c.window) : "null";
  return fmt::format(
      R"({{"architectures":["{}"],"model_type":"{}","hidden_act":"silu","num_hidden_layers":{},"hidden_size":{},)"
      R"("intermediate_size":{},"num_attention_heads":{},"num_key_value_heads":{},"head_dim":{},"vocab_size":{},)"
      R"("max_position_embeddings":{},"rms_norm_eps":{:.17g},"rope_theta":{:.17g},"rope_scaling":{},{})"
      R"("sliding_window":{},"use_sliding_window":{},"max_window_layers":0,"tie_word_embeddings":{},"bos_token_id":{},)"
      R"("eos_token_id":[{}],"torch_dtype":"float32"}})",
      family.architecture, family.model_type, c.layers, c.hidden, c.ffn_hidden, c.heads, c.kv_heads,
      c.head_dim, c.vocab, c.max_context, c.norm_epsilon, c.rope_theta,
      INFOS_TRY(rope_scaling_json(c.rope_scaling)), expert_json(c), window, c.window != 0,
      c.tied_embeddings, c.bos >= 0 ? fmt::format("{}", c.bos) : "null", fmt::join(c.eos, ","));
}

/// Rows of each head from adjacent pairs (x0 y0 x1 y1 ...) to halves (x0 x1 ... y0 y1 ...).
std::vector<std::byte> to_halves(const TensorView& tensor, std::uint32_t head_dim) {
  const auto rows = static_cast<std::size_t>(tensor.dims[0]);
  const std::size_t row_bytes = tensor.data.size() / rows;
  std::vector<std::byte> out(tensor.data.size());
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t head = row / head_dim, in_head = row % head_dim;
    const std::size_t half = in_head / (head_dim / 2), pair = in_head % (head_dim / 2);
    const std::size_t from = head * head_dim + 2 * pair + half;
    std::memcpy(out.data() + row * row_bytes, tensor.data.data() + from * row_bytes, row_bytes);
  }
  return out;
}

/// One expert of a stacked tensor [experts, out, in], named as a tensor of its own.
TensorView expert_of(const TensorView& stacked, std::int64_t expert, const std::string& name) {
  const std::size_t bytes = stacked.data.size() / static_cast<std::size_t>(stacked.dims[0]);
  return {name,
          stacked.dtype,
          {stacked.dims[1], stacked.dims[2]},
          stacked.data.subspan(static_cast<std::size_t>(expert) * bytes, bytes)};
}

/// The weights under their Hugging Face names; `owned` keeps those that had to be changed.
Result<std::vector<TensorView>> hugging_face_tensors(const Checkpoint& checkpoint,
                                                     std::list<std::vector<std::byte>>& owned) {
  const ModelConfig& config = checkpoint.config();
  std::vector<TensorView> out;
  const auto add = [&](TensorView tensor) -> Status {
    if (block_shape(tensor.dtype).elements != 1)
      return Error{ErrorCode::unsupported, fmt::format("{}: is {}: want a plain dtype", tensor.name,
                                                       to_string(tensor.dtype))};
    const auto name = hugging_face_name(tensor.name, config.family);
    if (!name)
      return Error{ErrorCode::unsupported,
                   fmt::format("{}: has no Hugging Face name", tensor.name)};
    tensor.name = *name;
    out.push_back(std::move(tensor));
    return {};
  };
  for (const TensorView& tensor : checkpoint.tensors()) {
    TensorView view = tensor;
    const bool is_qk = tensor.name.find(".attn_q.") != std::string::npos ||
                       tensor.name.find(".attn_k.") != std::string::npos;
    if (is_qk && config.rope_adjacent_pairs) {
      owned.push_back(to_halves(tensor, config.head_dim));
      view.data = owned.back();
    }
    const auto stacked = view.name.find("_exps.weight");
    if (stacked == std::string::npos) {
      INFOS_TRY(add(std::move(view)));
      continue;
    }
    for (std::int64_t e = 0; e < view.dims[0]; ++e)
      INFOS_TRY(
          add(expert_of(view, e, fmt::format("{}.{}.weight", view.name.substr(0, stacked), e))));
  }
  return out;
}

Status write_weights(const std::vector<TensorView>& tensors, const std::string& directory,
                     Shards shards) {
  if (shards == Shards::one) return write_safetensors(directory + "/model.safetensors", tensors);
  const std::size_t middle = tensors.size() / 2;
  std::string map;
  for (std::size_t shard = 0; shard < 2; ++shard) {
    const auto part =
        std::span(tensors).subspan(shard * middle, shard == 0 ? middle : tensors.size() - middle);
    const std::string name = fmt::format("model-{:05}-of-00002.safetensors", shard + 1);
    INFOS_TRY(write_safetensors(directory + "/" + name, part));
    for (const auto& tensor : part)
      map += fmt::format(R"({}"{}":"{}")", map.empty() ? "" : ",", tensor.name, name);
  }
  return write_text(directory + "/model.safetensors.index.json",
                    fmt::format(R"({{"metadata":{{}},"weight_map":{{{}}}}})", map));
}

Status write_tokenizer(const TokenizerSource& source, const std::string& directory) {
  if (!source.gguf) return {};
  INFOS_TRY(write_text(directory + "/tokenizer.json", INFOS_TRY(tokenizer_json_of(*source.gguf))));
  std::string extra;
  if (!source.chat_template.empty())
    extra = fmt::format(R"(,"chat_template":{})", json_quote(source.chat_template));
  return write_text(
      directory + "/tokenizer_config.json",
      fmt::format(
          R"({{"tokenizer_class":"LlamaTokenizer","add_bos_token":{},"bos_token":{},"eos_token":{}{}}})",
          source.add_bos, json_quote(source.bos_token), json_quote(source.eos_token), extra));
}

}  // namespace

Status export_hugging_face(const Checkpoint& checkpoint, const std::string& directory,
                           const HfExportOptions& options) {
  std::error_code failed;
  fs::create_directories(directory, failed);
  if (failed)
    return Error{ErrorCode::io, fmt::format("{}: cannot create: {}", directory, failed.message())};
  const ModelConfig& config = checkpoint.config();
  INFOS_TRY(write_text(directory + "/config.json", INFOS_TRY(config_json(config))));
  INFOS_TRY(write_text(directory + "/generation_config.json",
                       fmt::format(R"({{"eos_token_id":[{}]}})", fmt::join(config.eos, ","))));
  INFOS_TRY(write_tokenizer(checkpoint.tokenizer(), directory));
  std::list<std::vector<std::byte>> owned;
  const auto tensors = INFOS_TRY(hugging_face_tensors(checkpoint, owned));
  return write_weights(tensors, directory, options.shards);
}

}  // namespace infos::test
