// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/string.hpp>

#include "devices/engine/checkpoint/json_read.h"
#include "devices/engine/checkpoint/printable.h"

namespace infos {
namespace {

struct Architecture {
  const char* name;
  const char* model_type;
  ModelFamily family;
  bool experts;
};
constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", "llama", ModelFamily::llama, false},
    {"MistralForCausalLM", "mistral", ModelFamily::mistral, false},
    {"MixtralForCausalLM", "mixtral", ModelFamily::mistral, true},
    {"Qwen2ForCausalLM", "qwen2", ModelFamily::qwen2, false},
    {"Qwen3ForCausalLM", "qwen3", ModelFamily::qwen3, false},
    {"Qwen3MoeForCausalLM", "qwen3_moe", ModelFamily::qwen3, true},
};

Result<const Architecture*> read_architecture(const JsonFields& fields) {
  std::string seen;
  const char* key = "architectures";
  if (const auto* list = fields.find(key)) {
    if (!list->is_array() || list->get_array().size() != 1 || !list->get_array()[0].is_string())
      return fields.error(ErrorCode::corrupt, key, "want a list of one string");
    const auto& name = list->get_array()[0].get_string();
    seen.assign(name.data(), name.size());
  } else {
    key = "model_type";
    seen = INFOS_TRY(fields.text(key)).value_or("");
  }
  for (const auto& known : kArchitectures)
    if (seen == known.name || (seen == known.model_type && std::string_view(key) == "model_type"))
      return &known;
  return fields.error(
      ErrorCode::unsupported, key,
      fmt::format("is \"{}\": want LlamaForCausalLM, MistralForCausalLM, MixtralForCausalLM, "
                  "Qwen2ForCausalLM, Qwen3ForCausalLM or Qwen3MoeForCausalLM",
                  seen));
}

/// Settings that would change the arithmetic in ways the phase graphs do not have.
Status refuse_unknown_arithmetic(const JsonFields& fields) {
  const auto activation = INFOS_TRY(fields.text("hidden_act")).value_or("silu");
  if (activation != "silu")
    return fields.error(ErrorCode::unsupported, "hidden_act",
                        fmt::format("is \"{}\": want silu", activation));
  for (const char* key : {"attention_bias", "mlp_bias"})
    if (INFOS_TRY(fields.flag(key)).value_or(false))
      return fields.error(ErrorCode::unsupported, key, "is true: want false");
  const double rotary = INFOS_TRY(fields.number("partial_rotary_factor")).value_or(1.0);
  if (rotary != 1.0)
    return fields.error(ErrorCode::unsupported, "partial_rotary_factor",
                        fmt::format("is {}: want 1", rotary));
  if (const auto quantised = INFOS_TRY(fields.object("quantization_config")))
    return fields.error(ErrorCode::unsupported, "quantization_config",
                        fmt::format("method \"{}\": want weights in F32, F16 or BF16",
                                    INFOS_TRY(quantised->text("quant_method")).value_or("")));
  return {};
}

Status read_sizes(const JsonFields& fields, ModelConfig& config) {
  config.layers = INFOS_TRY(fields.need_count("num_hidden_layers"));
  config.hidden = INFOS_TRY(fields.need_count("hidden_size"));
  config.ffn_hidden = INFOS_TRY(fields.need_count("intermediate_size"));
  config.heads = INFOS_TRY(fields.need_count("num_attention_heads"));
  if (config.heads == 0)
    return fields.error(ErrorCode::corrupt, "num_attention_heads", "is 0: want 1 or more");
  const auto kv_heads = INFOS_TRY(fields.count("num_key_value_heads"));
  if (!kv_heads && config.family != ModelFamily::llama)
    return fields.error(ErrorCode::corrupt, "num_key_value_heads", "the key is missing");
  config.kv_heads = kv_heads.value_or(config.heads);
  const auto head_dim = INFOS_TRY(fields.count("head_dim"));
  if (!head_dim && config.hidden % config.heads != 0)
    return fields.error(
        ErrorCode::corrupt, "hidden_size",
        fmt::format("is {}: want a multiple of the {} heads", config.hidden, config.heads));
  config.head_dim = head_dim.value_or(config.hidden / config.heads);
  config.vocab = INFOS_TRY(fields.need_count("vocab_size"));
  config.max_context = INFOS_TRY(fields.need_count("max_position_embeddings"));
  const auto epsilon = INFOS_TRY(fields.number("rms_norm_eps"));
  if (!epsilon) return fields.error(ErrorCode::corrupt, "rms_norm_eps", "the key is missing");
  config.norm_epsilon = *epsilon;
  config.tied_embeddings = INFOS_TRY(fields.flag("tie_word_embeddings")).value_or(false);
  return {};
}

Status read_rope(const JsonFields& fields, ModelConfig& config) {
  // Newer files keep theta and scaling together under rope_parameters.
  const auto together = INFOS_TRY(fields.object("rope_parameters"));
  config.rope_theta = INFOS_TRY(fields.number("rope_theta")).value_or(10000.0);
  if (together)
    config.rope_theta = INFOS_TRY(together->number("rope_theta")).value_or(config.rope_theta);
  const auto scaling = together ? together : INFOS_TRY(fields.object("rope_scaling"));
  if (!scaling) return {};
  const auto new_word = INFOS_TRY(scaling->text("rope_type"));
  const std::string kind =
      new_word ? *new_word : INFOS_TRY(scaling->text("type")).value_or("default");
  if (kind == "default") return {};
  if (kind != "linear" && kind != "llama3")
    return scaling->error(ErrorCode::unsupported, new_word ? "rope_type" : "type",
                          fmt::format("is \"{}\": want default, linear or llama3", kind));
  RopeScaling& out = config.rope_scaling;
  out.kind = kind == "linear" ? RopeScaling::Kind::linear : RopeScaling::Kind::llama3;
  const auto need = [&](const char* key, double& value) -> Status {
    const auto seen = INFOS_TRY(scaling->number(key));
    if (!seen || *seen <= 0)
      return scaling->error(ErrorCode::corrupt, key, "want a number above 0");
    value = *seen;
    return {};
  };
  INFOS_TRY(need("factor", out.factor));
  if (out.kind == RopeScaling::Kind::linear) return {};
  INFOS_TRY(need("low_freq_factor", out.low_freq_factor));
  INFOS_TRY(need("high_freq_factor", out.high_freq_factor));
  INFOS_TRY(need("original_max_position_embeddings", out.original_context));
  if (out.high_freq_factor <= out.low_freq_factor)
    return scaling->error(ErrorCode::corrupt, "high_freq_factor",
                          fmt::format("is {}: want more than low_freq_factor, {}",
                                      out.high_freq_factor, out.low_freq_factor));
  return {};
}

/// Sets `sliding` and `full` to how many layers are of which kind, when the file lists them.
Result<std::optional<std::uint32_t>> sliding_layers(const JsonFields& fields,
                                                    std::uint32_t layers) {
  const auto* types = fields.find("layer_types");
  if (!types) return std::optional<std::uint32_t>();
  if (!types->is_array() || types->get_array().size() != layers)
    return fields.error(ErrorCode::corrupt, "layer_types",
                        fmt::format("want a list of {} strings", layers));
  std::uint32_t sliding = 0;
  for (const auto& type : types->get_array()) {
    const bool is_sliding = type.is_string() && type.get_string() == "sliding_attention";
    const bool is_full = type.is_string() && type.get_string() == "full_attention";
    if (!is_sliding && !is_full)
      return fields.error(ErrorCode::unsupported, "layer_types",
                          "want full_attention or sliding_attention");
    sliding += is_sliding ? 1 : 0;
  }
  return std::optional(sliding);
}

Status read_window(const JsonFields& fields, ModelConfig& config) {
  const auto window = INFOS_TRY(fields.count("sliding_window")).value_or(0);
  const bool is_qwen = config.family == ModelFamily::qwen2 || config.family == ModelFamily::qwen3;
  const bool used = INFOS_TRY(fields.flag("use_sliding_window")).value_or(!is_qwen);
  if (!used || window == 0) return {};
  auto sliding = INFOS_TRY(sliding_layers(fields, config.layers));
  const char* key = sliding ? "layer_types" : "max_window_layers";
  if (!sliding && is_qwen) {
    // The first max_window_layers layers attend to everything.
    const auto full = INFOS_TRY(fields.count(key)).value_or(0);
    sliding = full >= config.layers ? 0 : config.layers - full;
  }
  const std::uint32_t with_window = sliding.value_or(config.layers);
  if (with_window != 0 && with_window != config.layers)
    return fields.error(ErrorCode::unsupported, key,
                        fmt::format("gives a sliding window to {} of {} layers: want all or none",
                                    with_window, config.layers));
  config.window = with_window == 0 ? 0 : window;
  return {};
}

Status read_experts(const JsonFields& fields, ModelConfig& config) {
  const bool qwen = config.family == ModelFamily::qwen3;
  config.experts = INFOS_TRY(fields.need_count(qwen ? "num_experts" : "num_local_experts"));
  config.experts_per_token = INFOS_TRY(fields.need_count("num_experts_per_tok"));
  if (config.experts == 0)
    return fields.error(ErrorCode::corrupt, qwen ? "num_experts" : "num_local_experts",
                        "is 0: want 1 or more");
  if (!qwen) return {};
  config.ffn_hidden = INFOS_TRY(fields.need_count("moe_intermediate_size"));
  config.renormalise_experts = INFOS_TRY(fields.flag("norm_topk_prob")).value_or(false);
  const auto step = INFOS_TRY(fields.count("decoder_sparse_step")).value_or(1);
  if (step != 1)
    return fields.error(ErrorCode::unsupported, "decoder_sparse_step",
                        fmt::format("is {}: want 1", step));
  const auto dense = INFOS_TRY(fields.ids("mlp_only_layers"));
  if (!dense.empty())
    return fields.error(ErrorCode::unsupported, "mlp_only_layers", "is not empty: want []");
  return {};
}

Result<std::optional<std::string>> special_token(const JsonFields& fields, const char* key) {
  const auto* value = fields.find(key);
  if (!value || value->is_string()) return fields.text(key);
  const auto object = INFOS_TRY(fields.object(key));
  return object->text("content");
}

Result<std::string> chat_template(const JsonFields& fields) {
  const char* key = "chat_template";
  const auto* value = fields.find(key);
  if (!value || !value->is_array()) return INFOS_TRY(fields.text(key)).value_or("");
  std::optional<std::string> chosen;
  for (const auto& item : value->get_array()) {
    const auto entry = INFOS_TRY(JsonFields::of(item, fields.place_of(key)));
    const auto name = INFOS_TRY(entry.text("name")).value_or("");
    if (!chosen || name == "default") chosen = INFOS_TRY(entry.text("template")).value_or("");
  }
  return chosen.value_or("");
}

}  // namespace

Result<ModelConfig> hf_config(std::string_view text, const std::string& label) {
  const auto document =
      INFOS_TRY(parse_json(text, label, {.bytes = 1 << 20, .depth = 16, .values = 1 << 16}));
  const JsonFields fields = INFOS_TRY(JsonFields::of(document, label));
  const Architecture* known = INFOS_TRY(read_architecture(fields));
  ModelConfig config;
  config.family = known->family;
  config.name = printable(INFOS_TRY(fields.text("_name_or_path")).value_or(known->model_type), 256);
  INFOS_TRY(refuse_unknown_arithmetic(fields));
  INFOS_TRY(read_sizes(fields, config));
  INFOS_TRY(read_rope(fields, config));
  INFOS_TRY(read_window(fields, config));
  if (known->experts) INFOS_TRY(read_experts(fields, config));
  config.qkv_bias = config.family == ModelFamily::qwen2;
  config.qk_norm = config.family == ModelFamily::qwen3;
  const auto bos = INFOS_TRY(fields.ids("bos_token_id"));
  if (!bos.empty()) config.bos = bos[0];
  config.eos = INFOS_TRY(fields.ids("eos_token_id"));
  return config;
}

Result<HfGeneration> hf_generation(std::string_view text, const std::string& label) {
  const auto document =
      INFOS_TRY(parse_json(text, label, {.bytes = 1 << 20, .depth = 16, .values = 1 << 16}));
  const JsonFields fields = INFOS_TRY(JsonFields::of(document, label));
  HfGeneration out;
  out.eos = INFOS_TRY(fields.ids("eos_token_id"));
  const auto real = [&](const char* key) -> Result<std::optional<float>> {
    const auto seen = INFOS_TRY(fields.number(key));
    return seen ? std::optional(static_cast<float>(*seen)) : std::nullopt;
  };
  out.defaults.temperature = INFOS_TRY(real("temperature"));
  out.defaults.top_p = INFOS_TRY(real("top_p"));
  out.defaults.min_p = INFOS_TRY(real("min_p"));
  out.defaults.repetition_penalty = INFOS_TRY(real("repetition_penalty"));
  const auto top_k = INFOS_TRY(fields.count("top_k"));
  if (top_k)
    out.defaults.top_k = static_cast<std::int32_t>(std::min<std::uint32_t>(*top_k, INT32_MAX));
  return out;
}

Result<TokenizerSource> hf_tokenizer_config(std::string_view text, const std::string& label) {
  const auto document =
      INFOS_TRY(parse_json(text, label, {.bytes = 16 << 20, .depth = 32, .values = 1 << 20}));
  const JsonFields fields = INFOS_TRY(JsonFields::of(document, label));
  TokenizerSource out;
  out.chat_template = INFOS_TRY(chat_template(fields));
  out.bos_token = INFOS_TRY(special_token(fields, "bos_token")).value_or("");
  out.eos_token = INFOS_TRY(special_token(fields, "eos_token")).value_or("");
  out.add_bos = INFOS_TRY(fields.flag("add_bos_token")).value_or(false);
  return out;
}

}  // namespace infos
