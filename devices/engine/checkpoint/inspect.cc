// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

namespace infos {
namespace {

namespace json = boost::json;

const char* to_word(RopeScaling::Kind kind) {
  switch (kind) {
    case RopeScaling::Kind::none:
      return "none";
    case RopeScaling::Kind::linear:
      return "linear";
    case RopeScaling::Kind::llama3:
      return "llama3";
    case RopeScaling::Kind::table:
      return "table";
  }
  return "unknown";
}

ModelSummary::ByDtype& group_of(ModelSummary& summary, DType dtype) {
  for (auto& group : summary.by_dtype)
    if (group.dtype == dtype) return group;
  summary.by_dtype.push_back({.dtype = dtype});
  return summary.by_dtype.back();
}

/// 494032768 as "494.0 M".
std::string count_for_people(std::uint64_t count) {
  const double n = static_cast<double>(count);
  if (n >= 1e9) return fmt::format("{:.2f} B", n / 1e9);
  if (n >= 1e6) return fmt::format("{:.1f} M", n / 1e6);
  if (n >= 1e3) return fmt::format("{:.1f} k", n / 1e3);
  return fmt::format("{}", count);
}

std::string rope_text(const ModelConfig& config) {
  std::string out = fmt::format("theta {:g}", config.rope_theta);
  if (config.rope_scaling.kind == RopeScaling::Kind::linear ||
      config.rope_scaling.kind == RopeScaling::Kind::llama3)
    out += fmt::format(", scaling {} by {:g}", to_word(config.rope_scaling.kind),
                       config.rope_scaling.factor);
  else if (config.rope_scaling.kind == RopeScaling::Kind::table)
    out += ", scaling by table";
  return out;
}

json::object config_json(const ModelConfig& c) {
  json::object out;
  out["name"] = c.name;
  out["family"] = to_string(c.family);
  out["layers"] = c.layers;
  out["hidden"] = c.hidden;
  out["ffn_hidden"] = c.ffn_hidden;
  out["heads"] = c.heads;
  out["kv_heads"] = c.kv_heads;
  out["head_dim"] = c.head_dim;
  out["vocab"] = c.vocab;
  out["max_context"] = c.max_context;
  out["norm_epsilon"] = c.norm_epsilon;
  out["rope_theta"] = c.rope_theta;
  out["rope_scaling"] = to_word(c.rope_scaling.kind);
  out["rope_scaling_factor"] = c.rope_scaling.factor;
  out["qkv_bias"] = c.qkv_bias;
  out["qk_norm"] = c.qk_norm;
  out["tied_embeddings"] = c.tied_embeddings;
  out["window"] = c.window;
  out["experts"] = c.experts;
  out["experts_per_token"] = c.experts_per_token;
  out["bos"] = c.bos;
  out["eos"] = json::array(c.eos.begin(), c.eos.end());
  return out;
}

}  // namespace

ModelSummary summarise(const Checkpoint& checkpoint) {
  ModelSummary out;
  out.path = checkpoint.path();
  out.config = checkpoint.config();
  for (const TensorView& tensor : checkpoint.tensors()) {
    const Bytes bytes{tensor.data.size()};
    std::uint64_t elements = 1;
    for (const auto dim : tensor.dims) elements *= static_cast<std::uint64_t>(dim);
    auto& group = group_of(out, tensor.dtype);
    ++group.tensors;
    group.elements += elements;
    group.bytes = group.bytes + bytes;
    out.parameters += elements;
    out.weight_bytes = out.weight_bytes + bytes;
    out.tensors.push_back({tensor.name, tensor.dtype, tensor.dims, bytes});
  }
  std::stable_sort(out.by_dtype.begin(), out.by_dtype.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  const TokenizerSource& source = checkpoint.tokenizer();
  out.tokenizer = source.gguf ? fmt::format("gguf {} ({})", source.gguf->model, source.gguf->pre)
                  : source.tokenizer_json.empty() ? "none"
                                                  : "tokenizer.json";
  out.tokens = source.gguf ? source.gguf->tokens.size() : 0;
  out.has_chat_template = !source.chat_template.empty();
  const ModelConfig& c = out.config;
  out.kv_bytes_per_token = Bytes{std::uint64_t{2} * 2 * c.layers * c.kv_heads * c.head_dim};
  return out;
}

Result<ModelSummary> inspect_model(const std::string& path) {
  const auto checkpoint = INFOS_TRY(open_checkpoint(path));
  return summarise(*checkpoint);
}

std::string to_text(const ModelSummary& s) {
  const ModelConfig& c = s.config;
  std::string out;
  const auto line = [&](std::string_view label, const std::string& value) {
    out += fmt::format("{:<16}{}\n", label, value);
  };
  line("path", s.path);
  line("name", c.name);
  line("family", c.experts ? fmt::format("{}, {} of {} experts", to_string(c.family),
                                         c.experts_per_token, c.experts)
                           : std::string(to_string(c.family)));
  line("parameters", count_for_people(s.parameters));
  line("weights", to_human(s.weight_bytes));
  for (const auto& group : s.by_dtype)
    line("", fmt::format("{:<6}{:>5} tensors  {}", to_string(group.dtype), group.tensors,
                         to_human(group.bytes)));
  line("layers", fmt::format("{}", c.layers));
  line("width", fmt::format("{} (ffn {})", c.hidden, c.ffn_hidden));
  line("heads", fmt::format("{} of {}, kv {}", c.heads, c.head_dim, c.kv_heads));
  line("rope", rope_text(c));
  line("context", c.window ? fmt::format("{} tokens, window {}", c.max_context, c.window)
                           : fmt::format("{} tokens", c.max_context));
  line("kv per token", fmt::format("{} in 16 bits", to_human(s.kv_bytes_per_token)));
  line("vocabulary",
       fmt::format("{}{}", c.vocab, c.tied_embeddings ? ", output tied to the embedding" : ""));
  line("tokenizer", s.tokenizer);
  line("end tokens", c.eos.empty() ? "none" : fmt::format("{}", fmt::join(c.eos, ", ")));
  line("chat template", s.has_chat_template ? "yes" : "no");
  return out;
}

std::string to_json(const ModelSummary& s) {
  json::object out;
  out["path"] = s.path;
  out["config"] = config_json(s.config);
  out["parameters"] = s.parameters;
  out["weight_bytes"] = s.weight_bytes.value;
  out["kv_bytes_per_token"] = s.kv_bytes_per_token.value;
  out["tokenizer"] = s.tokenizer;
  out["tokens"] = s.tokens;
  out["has_chat_template"] = s.has_chat_template;
  json::array groups, tensors;
  for (const auto& group : s.by_dtype)
    groups.push_back(json::object{{"dtype", to_string(group.dtype)},
                                  {"tensors", group.tensors},
                                  {"elements", group.elements},
                                  {"bytes", group.bytes.value}});
  for (const auto& tensor : s.tensors)
    tensors.push_back(json::object{{"name", tensor.name},
                                   {"dtype", to_string(tensor.dtype)},
                                   {"dims", json::array(tensor.dims.begin(), tensor.dims.end())},
                                   {"bytes", tensor.bytes.value}});
  out["by_dtype"] = std::move(groups);
  out["tensors"] = std::move(tensors);
  return json::serialize(out);
}

}  // namespace infos
