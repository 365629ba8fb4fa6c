// SPDX-License-Identifier: Apache-2.0
// Checkpoints that tests make in memory: tiny random models of every family and weight dtype, and
// the llama2.c file stories260K.bin read by a reader that shares nothing with the product's.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "devices/engine/checkpoint.h"
#include "topology/base/ids.h"
#include "topology/base/rng.h"

namespace infos::test {

class MemoryCheckpoint final : public Checkpoint {
 public:
  explicit MemoryCheckpoint(const ModelConfig& config) : config_(config) {}
  const ModelConfig& config() const override { return config_; }
  const TokenizerSource& tokenizer() const override { return tokenizer_; }
  const GenerationDefaults& generation() const override { return generation_; }
  const TensorView* find(std::string_view name) const override;
  const std::vector<TensorView>& tensors() const override { return views_; }
  std::string path() const override { return "(memory)"; }

  ModelConfig& config() { return config_; }
  void add(const std::string& name, DType dtype, std::vector<std::int64_t> dims,
           std::vector<std::byte> data);
  void add_f32(const std::string& name, std::vector<std::int64_t> dims, const float* values);
  void remove(const std::string& name);
  TensorView& view(const std::string& name);

 private:
  ModelConfig config_;
  TokenizerSource tokenizer_;
  GenerationDefaults generation_;
  std::vector<TensorView> views_;
  std::deque<std::vector<std::byte>> storage_;
};

/// The names of the tiny models: one for each shape of graph that the product builds.
inline constexpr const char* kTinyModels[] = {"llama2", "llama3",  "mistral",  "qwen2",
                                              "qwen3",  "mixtral", "qwen3-moe"};
/// And those whose widths tensor-parallel ranks divide, also in quantisation blocks.
inline constexpr const char* kWideModels[] = {"wide", "wide-tied", "wide-moe"};
/// A model of two layers. Widths are multiples of what the dtype's blocks need. Matrices have
/// `dtype`, norms are f32.
std::unique_ptr<MemoryCheckpoint> tiny_model(const std::string& name, DType dtype,
                                             std::uint64_t seed);

/// stories260K.bin; null when it cannot be read.
std::unique_ptr<MemoryCheckpoint> read_llama2c(const std::string& path);

/// tok512.bin: the SentencePiece vocabulary of llama2.c.
class Llama2cTokenizer {
 public:
  explicit Llama2cTokenizer(const std::string& path, std::size_t vocab);
  /// With BOS (1) in front; greedy merges by score.
  std::vector<TokenId> encode(const std::string& text) const;
  /// The text that `token` adds after `previous`.
  std::string piece(TokenId previous, TokenId token) const;

 private:
  std::vector<std::string> pieces_;
  std::vector<float> scores_;
  std::map<std::string, TokenId> ids_;
};

}  // namespace infos::test
