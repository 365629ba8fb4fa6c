// SPDX-License-Identifier: Apache-2.0
// What a model is, told to a person or a program: the facts behind `infos model inspect`. Reads
// headers, never weights. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "devices/engine/checkpoint.h"
#include "topology/base/result.h"
#include "topology/base/units.h"
#include "topology/model/model_config.h"

namespace infos {

struct ModelSummary {
  struct ByDtype {
    DType dtype = DType::none;
    std::uint64_t tensors = 0, elements = 0;
    Bytes bytes;
  };
  struct Tensor {
    std::string name;
    DType dtype = DType::none;
    std::vector<std::int64_t> dims;
    Bytes bytes;
  };

  std::string path;
  ModelConfig config;
  std::uint64_t parameters = 0;
  Bytes weight_bytes;
  std::vector<ByDtype> by_dtype;  ///< most bytes first
  std::vector<Tensor> tensors;    ///< in file order
  std::string tokenizer;          ///< "tokenizer.json", "gguf gpt2 (qwen2)", "none"
  std::uint64_t tokens = 0;       ///< of the tokenizer; 0: it does not say without being built
  bool has_chat_template = false;
  Bytes kv_bytes_per_token;  ///< keys and values of all layers in 16 bits
};

/// Errors: those of open_checkpoint.
Result<ModelSummary> inspect_model(const std::string& path);
ModelSummary summarise(const Checkpoint& checkpoint);

/// A few aligned lines, for a terminal.
std::string to_text(const ModelSummary& summary);
/// One JSON object with everything, tensors too.
std::string to_json(const ModelSummary& summary);

}  // namespace infos
