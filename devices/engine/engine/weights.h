// SPDX-License-Identifier: Apache-2.0
// Matches a checkpoint's tensors with a phase graph's weights: checks every shape and dtype at
// bind, then serves the ABI's weight source. Owns what has to be made for it: f32 norms, stacked
// experts, RoPE frequencies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "devices/abi/infos_device.h"
#include "devices/engine/checkpoint.h"
#include "devices/engine/graph/phase_graph.h"
#include "topology/base/result.h"

namespace infos {

/// The weights of one graph, by (tensor, layer); of a rank's graph, its slices, cut at the borders
/// of quantisation blocks. The checkpoint must outlive it.
class BoundWeights {
 public:
  /// `dtype_mask`: bit i is set when the device takes weight dtype i.
  /// Errors: not_found (a weight is missing), invalid_argument (shape), unsupported (dtype, a slice
  /// that would cut a block): each names the tensor, what it is and what is wanted.
  static Result<BoundWeights> bind(const PhaseGraph& graph, const Checkpoint& checkpoint,
                                   std::uint64_t dtype_mask);

  /// An infos_weight_source; `context` is a BoundWeights.
  static infos_code source(void* context, std::uint32_t tensor, std::uint32_t layer,
                           infos_weight* out);

  /// Bytes of all weights as the device gets them.
  std::uint64_t bytes() const { return bytes_; }
  /// The dtype that most matrix bytes have.
  DType main_dtype() const { return main_dtype_; }

 private:
  friend class WeightBinder;
  std::vector<std::vector<infos_weight>> weights_;  // [tensor][layer]
  std::vector<std::vector<std::byte>> made_;
  std::uint64_t bytes_ = 0;
  DType main_dtype_ = DType::none;
};

}  // namespace infos
