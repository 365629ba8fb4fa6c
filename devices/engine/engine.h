// SPDX-License-Identifier: Apache-2.0
// The engine: a model loaded on one device, stepped over ragged batches. Owns the program, the KV
// pool and the samplers. Runs on the caller's (engine) thread; never decides what to batch: that is
// WorkerCore's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "devices/engine/checkpoint.h"
#include "topology/base/ids.h"
#include "topology/base/result.h"
#include "topology/base/units.h"
#include "topology/model/model_config.h"
#include "topology/model/sampling.h"

namespace infos {

struct EngineOptions {
  std::string backend = "cpu";       ///< plugin name, or a path to a .so
  std::uint32_t threads = 0;         ///< 0: all cores of this process's affinity
  std::vector<std::uint32_t> cores;  ///< pin to these; empty: do not pin
  std::string device_options;        ///< passed to the backend, e.g. "isa=avx2"
  Bytes kv_memory{
      0};  ///< 0: a quarter of free memory, at most what max_sequences * max_context need
  DType kv_dtype = DType::none;  ///< none: f32 for f32 weights, else f16
  std::uint32_t block_tokens = 16;
  std::uint32_t max_step_tokens = 512;
  std::uint32_t max_sequences = 64;
  std::uint32_t max_context = 0;  ///< 0: the model's own; more is allowed, with a warning
};

/// One sequence's rows in a step.
struct EngineSequence {
  RequestId request;
  std::span<const TokenId> tokens;
  std::uint32_t start = 0;          ///< position of tokens[0]
  std::span<const BlockId> blocks;  ///< block table up to the last row
  bool sample = false;              ///< draw the token after the last row
  std::uint32_t index = 0;          ///< which token of the answer the draw is: key of the generator
};

class Engine {
 public:
  /// The checkpoint must outlive the engine: a backend may use its mapped bytes in place.
  /// Errors: unsupported (op or dtype the backend lacks), resource_exhausted (names bytes wanted
  /// and there), ...
  static Result<std::unique_ptr<Engine>> open(const Checkpoint& checkpoint,
                                              const EngineOptions& options);
  virtual ~Engine() = default;

  virtual const ModelConfig& config() const = 0;
  virtual std::string device_name() const = 0;
  virtual std::uint32_t kv_blocks() const = 0;
  virtual std::uint32_t block_tokens() const = 0;
  virtual std::uint32_t max_context() const = 0;

  /// Sampler state of a request; `tokens` are its prompt and what was emitted before.
  virtual void open_sequence(RequestId request, std::span<const TokenId> tokens,
                             std::uint32_t prompt_tokens, const SamplingParams& sampling) = 0;
  virtual void close_sequence(RequestId request) = 0;

  /// Computes all rows, then draws one token for each sequence with `sample`, in order.
  virtual Result<std::vector<SampledToken>> step(std::span<const EngineSequence> sequences) = 0;
  /// As step, but gives the logits [sequences with sample, vocab] instead of drawing. For tests and
  /// evaluation.
  virtual Result<std::vector<float>> logits(std::span<const EngineSequence> sequences) = 0;
  /// Any thread: makes a running step fail soon.
  virtual void cancel() = 0;
};

}  // namespace infos
