// SPDX-License-Identifier: Apache-2.0
// One tensor-parallel rank of an engine: a device with its shard of the weights, its program and
// its KV pool. An engine without tensor parallelism is one rank. Never knows of the other ranks:
// they meet in the group that its device is opened with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "devices/engine/engine.h"
#include "devices/engine/engine/weights.h"
#include "devices/engine/graph/phase_graph.h"
#include "devices/host/device.h"

namespace infos {

class Rank {
 public:
  Rank() = default;
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  /// Opens the device and loads the shard. `group` is null for an engine of one rank and outlives
  /// this. Thread: the rank's; with several ranks it is bound to the rank's cores, and must not be
  /// one that goes on to do other things.
  Status open(const Checkpoint& checkpoint, const EngineOptions& options, const ModelShard& shard,
              const infos_group* group);
  /// Errors: as Device::create_kv.
  Status create_kv(infos_kv_config config, const KvAllocator& allocator);

  const Device& device() const { return device_; }
  DType main_dtype() const { return main_dtype_; }
  const KvRank& kv() const { return description_; }
  /// First token of the vocabulary whose logits this rank gives.
  std::uint32_t vocab_begin() const { return vocab_begin_; }

  /// Thread: the rank's.
  Status execute(const infos_batch& batch) { return program_.execute(kv_, batch); }
  /// Thread: any.
  void cancel() const { device_.cancel(); }

 private:
  static void* allocate(void* context, std::uint64_t bytes);
  static void release(void* context, void* memory, std::uint64_t bytes);

  ModelShard shard_;
  DType main_dtype_ = DType::none;
  std::uint32_t vocab_begin_ = 0;
  BoundWeights weights_;   // outlives the program: the backend may use its bytes in place
  KvAllocator allocator_;  // outlives the pool
  Device device_;
  Program program_;
  KvPool kv_;
  KvRank description_;
};

/// The part of the engine's threads and cores that a rank gets: an equal run of them. Errors:
/// invalid_argument when they do not divide.
Result<DeviceConfig> rank_device(const EngineOptions& options, const ModelShard& shard,
                                 std::uint32_t machine_cores);

}  // namespace infos
