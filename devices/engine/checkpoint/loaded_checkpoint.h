// SPDX-License-Identifier: Apache-2.0
// The Checkpoint that both readers fill: plain values, the files that the weights point into, and
// an index by name. Immutable once built; any thread may read. Never parses.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "devices/engine/checkpoint.h"
#include "devices/engine/checkpoint/file_bytes.h"

namespace infos {

class LoadedCheckpoint final : public Checkpoint {
 public:
  struct Parts {
    ModelConfig config;
    TokenizerSource tokenizer;
    GenerationDefaults generation;
    std::vector<TensorView> tensors;
    std::vector<FileBytes> files;  ///< what the tensors point into
    std::string path;
  };

  explicit LoadedCheckpoint(Parts parts) : parts_(std::move(parts)) {
    for (const auto& tensor : parts_.tensors) index_.emplace(tensor.name, &tensor);
  }

  const ModelConfig& config() const override { return parts_.config; }
  const TokenizerSource& tokenizer() const override { return parts_.tokenizer; }
  const GenerationDefaults& generation() const override { return parts_.generation; }
  const TensorView* find(std::string_view name) const override {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : found->second;
  }
  const std::vector<TensorView>& tensors() const override { return parts_.tensors; }
  std::string path() const override { return parts_.path; }

 private:
  Parts parts_;
  std::unordered_map<std::string_view, const TensorView*> index_;
};

}  // namespace infos
