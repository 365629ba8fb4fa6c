// SPDX-License-Identifier: Apache-2.0
// GGUF bytes for tests: raw pieces that a writer would never produce, and a whole tiny model in
// memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "devices/engine/checkpoint/gguf_export.h"
#include "devices/engine/checkpoint/gguf_file.h"
#include "devices/engine/checkpoint/gguf_writer.h"
#include "devices/engine/checkpoint/tensor_specs.h"

namespace infos::test {

/// Appends numbers, strings and raw bytes, little endian.
class Bytewise {
 public:
  template <typename T>
  Bytewise& number(T value) {
    const auto* raw = reinterpret_cast<const std::byte*>(&value);
    out_.insert(out_.end(), raw, raw + sizeof value);
    return *this;
  }
  Bytewise& raw(std::string_view text) {
    for (const char c : text) out_.push_back(static_cast<std::byte>(c));
    return *this;
  }
  Bytewise& text(std::string_view text) { return number<std::uint64_t>(text.size()).raw(text); }
  Bytewise& type(GgufType type) { return number(static_cast<std::uint32_t>(type)); }
  Bytewise& head(std::uint64_t tensors, std::uint64_t keys) {
    return raw("GGUF").number<std::uint32_t>(3).number(tensors).number(keys);
  }
  Bytewise& tensor(std::string_view name, std::vector<std::uint64_t> dims, std::uint32_t type,
                   std::uint64_t offset) {
    text(name).number(static_cast<std::uint32_t>(dims.size()));
    for (const auto dim : dims) number(dim);
    return number(type).number(offset);
  }
  Bytewise& pad(std::size_t alignment) {
    out_.resize((out_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  Bytewise& zeros(std::size_t count) {
    out_.resize(out_.size() + count);
    return *this;
  }
  const std::vector<std::byte>& bytes() const { return out_; }

 private:
  std::vector<std::byte> out_;
};

/// A Llama of one layer and width 8 with four tokens, as small as a model can be.
inline ModelConfig smallest_config() {
  ModelConfig config;
  config.name = "smallest";
  config.layers = 1;
  config.hidden = 8;
  config.ffn_hidden = 8;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 4;
  config.vocab = 4;
  config.max_context = 16;
  config.rope_adjacent_pairs = true;
  config.tied_embeddings = true;
  return config;
}

inline TokenizerSource smallest_tokenizer() {
  TokenizerSource source;
  source.gguf.emplace();
  source.gguf->model = "gpt2";
  source.gguf->pre = "default";
  source.gguf->tokens = {"a", "b", "ab", "</s>"};
  source.gguf->types = {1, 1, 1, 3};
  source.gguf->merges = {"a b"};
  source.gguf->eos = 3;
  return source;
}

/// The whole file of `config`, weights all zero.
inline std::vector<std::byte> gguf_bytes(const ModelConfig& config,
                                         const TokenizerSource& tokenizer) {
  GgufHeader header = *gguf_header(config, tokenizer, DType::f32);
  const auto visited =
      visit_tensors(config, ExpertForm::stacked, [&](const TensorSpec& spec) -> Status {
        header.add_tensor(spec.name, DType::f32, spec.dims);
        return {};
      });
  visited.value();
  auto bytes = header.bytes();
  for (const auto size : header.tensor_bytes()) bytes.resize(bytes.size() + (size + 31) / 32 * 32);
  return bytes;
}

inline std::vector<std::byte> smallest_gguf() {
  return gguf_bytes(smallest_config(), smallest_tokenizer());
}

}  // namespace infos::test
