// SPDX-License-Identifier: Apache-2.0
// A graph with its weights, run one op after the other on whole buffers: the definition of what
// execute computes. Owns dequantised weights; one thread; never fast.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "devices/abi/infos_device.h"
#include "devices/engine/reference/graph_check.h"

namespace infos::reference {

/// The outcome of a backend function: a code and the sentence for infos_error.
struct Outcome {
  infos_code code = INFOS_OK;
  std::string message;
};

/// In which numbers everything between token ids and logits is kept.
enum class Precision { f64, f32 };

/// A paged pool in plain memory, [block][layer][K, V][head][token][dim]; the memory is the host's
/// when the config says so.
struct KvPoolMemory {
  infos_kv_config config{};
  infos_kv_layout layout{};  ///< `base` is null until take() succeeds
  std::unique_ptr<std::byte[]> bytes;

  KvPoolMemory() = default;
  KvPoolMemory(const KvPoolMemory&) = delete;
  KvPoolMemory& operator=(const KvPoolMemory&) = delete;
  ~KvPoolMemory();
  /// Gets layout.bytes of zeroed memory. Codes: exhausted, invalid.
  Outcome take();
};

class Program {
 public:
  virtual ~Program() = default;
  /// Codes: invalid (the batch or pool breaks the contract), deadline, cancelled.
  virtual Outcome execute(const KvPoolMemory& kv, const infos_batch* batch,
                          const std::atomic<bool>& cancelled) = 0;
};

/// How a program runs.
struct RunOptions {
  Precision precision = Precision::f64;
  const infos_group* group = nullptr;  ///< outlives the program; null: no rank of a group
};

/// Reads every weight from `source` and widens it. Codes: invalid, unsupported (dtype), or the
/// source's own.
Outcome load_program(const GraphCopy& graph, const infos_bucket& bucket, const RunOptions& options,
                     infos_weight_source source, void* context, std::unique_ptr<Program>* out);

}  // namespace infos::reference
