// SPDX-License-Identifier: Apache-2.0
// The phase graph of a model: owns the storage behind an infos_graph of the device ABI. Decides
// which operations a family needs, in which order, on which weights. Pure; any thread; never looks
// at weight bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "devices/abi/infos_device.h"
#include "topology/base/result.h"
#include "topology/model/model_config.h"

namespace infos {

/// An infos_graph with its arrays. Movable; `view()` stays valid until the next change or move.
class PhaseGraph {
 public:
  /// Adds a tensor and gives its index. Requires: dims.size() <= 4, name shorter than 64.
  std::uint32_t add_tensor(infos_role role, const std::string& name,
                           std::vector<std::int64_t> dims);
  /// As above, for a weight that each layer has its own of; `%d` in the name is the layer.
  std::uint32_t add_layer_weight(const std::string& name, std::vector<std::int64_t> dims);
  /// An op with kind, inputs, output and f32 sums; the caller sets what else the kind needs.
  infos_op& add_op(infos_op_kind kind, const std::vector<std::uint32_t>& inputs, std::uint32_t out);
  void begin_layers(std::uint32_t n_layers);
  void end_layers();

  infos_graph view() const;
  const std::vector<infos_tensor>& tensors() const { return tensors_; }
  const std::vector<infos_op>& ops() const { return ops_; }
  std::uint32_t n_layers() const { return n_layers_; }

 private:
  std::vector<infos_tensor> tensors_;
  std::vector<infos_op> ops_;
  std::uint32_t layer_begin_ = 0;
  std::uint32_t layer_end_ = 0;
  std::uint32_t n_layers_ = 0;
};

/// Name of the RoPE frequency constant, [rotary_dim / 2].
inline constexpr const char* kRopeFrequencies = "rope.inv_freq";

/// The whole model, prefill and decode alike: token ids to logits of the selected rows.
/// Errors: invalid_argument: what ModelConfig::validate says.
Result<PhaseGraph> build_phase_graph(const ModelConfig& config);

/// The weight's name at `layer`: "blk.%d.attn_q.weight" with %d replaced.
std::string weight_name(const infos_tensor& tensor, std::uint32_t layer);

}  // namespace infos
