// SPDX-License-Identifier: Apache-2.0
// The engine: a model loaded on a device, or in parts on several tensor-parallel ranks of one
// process, stepped over ragged batches. Owns the programs, the KV pools and the samplers. Runs on
// the caller's (engine) thread; never decides what to batch: that is WorkerCore's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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

/// Where KV pools get their memory when somebody else is to read them. Both functions are called on
/// the thread that opens and ends the engine, one call for each rank.
struct KvAllocator {
  /// Zeroed memory, aligned to a page; null when there is none. Best not touched yet: the rank's
  /// threads do it first, where they run.
  std::function<void*(std::uint32_t rank, Bytes bytes)> allocate;
  std::function<void(std::uint32_t rank, void* memory, Bytes bytes)> release;
};

struct EngineOptions {
  std::string backend = "cpu";       ///< plugin name, or a path to a .so
  std::uint32_t threads = 0;         ///< 0: all cores of this process's affinity
  std::vector<std::uint32_t> cores;  ///< pin to these; empty: do not pin
  /// Ranks that compute together, each with an equal run of threads and cores, its part of the
  /// weights and its KV heads. Must divide the model's heads, KV heads and FFN width.
  std::uint32_t tensor_parallel = 1;
  std::string device_options;  ///< passed to the backend, e.g. "isa=avx2"
  Bytes kv_memory{
      0};  ///< 0: a quarter of free memory, at most what max_sequences * max_context need
  DType kv_dtype = DType::none;  ///< none: f32 for f32 weights, else f16
  std::uint32_t block_tokens = 16;
  std::uint32_t max_step_tokens = 512;
  std::uint32_t max_sequences = 64;
  std::uint32_t max_context = 0;  ///< 0: the model's own; more is allowed, with a warning
  KvAllocator kv_allocator;       ///< empty: the backend's own memory
};

/// One rank's KV pool: where element (block, layer, head, token, dim) of K lies: base + block *
/// s_block + layer * s_layer + (head - head_begin) * s_head + token * s_token + dim * element
/// bytes; V lies v_offset further. All strides are bytes.
struct KvRank {
  DType dtype = DType::none;
  std::uint32_t layers = 0, head_dim = 0, block_tokens = 0, blocks = 0;
  std::uint32_t head_begin = 0, heads = 0;  ///< KV heads of the model that this rank holds
  std::byte* base = nullptr;                ///< null: not addressable by the host
  std::uint64_t s_block = 0, s_layer = 0, s_head = 0, s_token = 0, v_offset = 0, bytes = 0;
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
  /// The KV pools, one for each tensor-parallel rank; fixed while the engine lives.
  virtual std::span<const KvRank> kv_ranks() const = 0;

  /// `done` is called within each step, layer by layer, when the KV of all its rows of that layer
  /// is in the pools of all ranks, or for all layers at the step's end when the backend does not
  /// say; after a failed step some layers may be missing. Thread: any, one call at a time; must
  /// return soon. Null: nobody listens. Requires: no step runs.
  virtual void on_layer_done(std::function<void(std::uint32_t layer)> done) = 0;

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
