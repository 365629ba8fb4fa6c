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

/// Which rank of how many, when ranks compute one model together (tensor parallelism).
struct ModelShard {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
};

/// Which part of the model's whole weight a graph's weight is: [begin, begin + the graph tensor's
/// dims[axis]) of `whole` along `axis`.
struct WeightSlice {
  static constexpr std::uint32_t kNoAxis = UINT32_MAX;
  std::uint32_t axis = kNoAxis;  ///< none: the graph's weight is the whole
  std::int64_t begin = 0;
  std::int64_t whole = 0;
};

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
  void set_slice(std::uint32_t tensor, const WeightSlice& slice) { slices_[tensor] = slice; }
  void begin_layers(std::uint32_t n_layers);
  void end_layers();

  infos_graph view() const;
  const std::vector<infos_tensor>& tensors() const { return tensors_; }
  const std::vector<infos_op>& ops() const { return ops_; }
  const WeightSlice& slice(std::uint32_t tensor) const { return slices_[tensor]; }
  std::uint32_t n_layers() const { return n_layers_; }

 private:
  std::vector<infos_tensor> tensors_;
  std::vector<WeightSlice> slices_;  // of each tensor
  std::vector<infos_op> ops_;
  std::uint32_t layer_begin_ = 0;
  std::uint32_t layer_end_ = 0;
  std::uint32_t n_layers_ = 0;
};

/// Name of the RoPE frequency constant, [rotary_dim / 2].
inline constexpr const char* kRopeFrequencies = "rope.inv_freq";

/// The whole model, prefill and decode alike: token ids to logits of the selected rows.
/// With several ranks, the part of one of them: its heads, its columns of the FFN, its rows of the
/// vocabulary matrix (the logits are its part of the vocabulary), sums over ranks after attention
/// and FFN; the embedding table and the norms are whole on each.
/// Errors: invalid_argument: what ModelConfig::validate and check_shard say.
Result<PhaseGraph> build_phase_graph(const ModelConfig& config, const ModelShard& shard = {});

/// Errors: invalid_argument when the ranks do not divide heads, KV heads and FFN: which, and the
/// numbers that do.
Status check_shard(const ModelConfig& config, const ModelShard& shard);
/// First row of the vocabulary matrix that a rank has; the next rank's first is its end.
std::uint32_t vocab_begin(std::uint32_t vocab, std::uint32_t rank, std::uint32_t ranks);

/// The weight's name at `layer`: "blk.%d.attn_q.weight" with %d replaced.
std::string weight_name(const infos_tensor& tensor, std::uint32_t layer);

}  // namespace infos
