// SPDX-License-Identifier: Apache-2.0
// StepModel predicts how long one step of one replica takes: a ragged batch of decoding sequences
// and prompt pieces, on devices of one kind under a parallel layout. Per op the larger of
// arithmetic and memory time, or a measured table where there is one; every second has its source.
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "planner/cost/kernel_tables.h"
#include "planner/cost/model_shape.h"

namespace infos {

/// One device, as far as time depends on it. Units: operations and bytes a second.
struct DeviceSpeed {
  std::string name;
  double flops_bf16 = 0, flops_f8 = 0, flops_f4 = 0;
  double memory_bytes_per_second = 0;
  double memory_bytes = 0;
  double link_bytes_per_second = 0;      ///< to another device of the node, one direction
  const KernelTables* tables = nullptr;  ///< null: rooflines alone
};

/// The few constants of the roofline, all physical.
struct RooflineConstants {
  double memory_efficiency = 0.8;  ///< part of the peak that a stream reaches
  double math_efficiency = 0.65;   ///< part of the peak that a large product reaches
  double kernel_seconds = 2.5e-6;  ///< launching and draining one kernel inside a graph
  double link_seconds = 6e-6;      ///< a collective of no bytes
  double link_efficiency = 0.7;
  double expert_imbalance = 1.15;  ///< the busiest device of an expert group over the mean
};

struct Parallelism {
  double tp = 1;  ///< attention and dense parts
  double dp = 1;  ///< attention replicas inside the group, for expert parallelism
  double moe_tp = 1;
  double moe_ep = 1;
  double devices() const { return tp * dp; }
};

struct Precision {
  MathType dense = MathType::bf16;
  MathType experts = MathType::bf16;
  double kv_element_bytes = 2;
};

/// A piece of one prompt.
struct PromptPiece {
  double tokens = 1;
  double past = 0;  ///< of the same prompt, computed before
};

/// One step of the whole group of devices.
struct StepWork {
  double decoding = 0;  ///< sequences
  double context = 0;   ///< mean tokens of one of them
  std::vector<PromptPiece> prompts;
};

/// Seconds by kind of work.
struct StepTime {
  double dense = 0, attention = 0, experts = 0, collectives = 0, small = 0, head = 0;
  double total() const { return dense + attention + experts + collectives + small + head; }
};

double bytes_per_weight(MathType type);

class StepModel {
 public:
  StepModel(ModelShape model, DeviceSpeed device, Parallelism parallel, Precision precision,
            RooflineConstants constants = {});

  StepTime time(const StepWork& work) const;
  /// On one device.
  double weight_bytes() const { return weight_bytes_; }
  double kv_bytes_per_token() const { return kv_bytes_per_token_; }
  /// Tokens of KV that fit one attention replica, with `share` of the memory usable and `other`
  /// bytes taken by activations and the runtime.
  double kv_tokens(double share, double other) const;

 private:
  struct Linear {
    double seconds_dense = 0, seconds_experts = 0, seconds_collectives = 0, seconds_small = 0;
  };
  Linear linear(double tokens) const;
  void dense_layer(const LayerGroup& group, double tokens, Linear& sum) const;
  void expert_layer(const LayerGroup& group, double tokens, Linear& sum) const;
  double gemm(MathType type, double m, double n, double k) const;
  double batched_gemm(double batch, double m, double n, double k) const;
  double experts(const LayerGroup& group, double tokens) const;
  double collective(Collective op, double devices, double bytes) const;
  double attention(const LayerGroup& group, const StepWork& work) const;
  double generation(const AttentionShape& shape, double sequences, double context) const;
  double prompt(const AttentionShape& shape, const PromptPiece& piece) const;
  double flops(MathType type) const;
  double stream(double bytes) const;

  ModelShape model_;
  DeviceSpeed device_;
  Parallelism parallel_;
  Precision precision_;
  RooflineConstants constants_;
  double weight_bytes_ = 0;
  double kv_bytes_per_token_ = 0;
  mutable std::map<double, Linear> linear_;  ///< by tokens: the same sizes come again and again
};

}  // namespace infos
