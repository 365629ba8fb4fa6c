// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/engine/rank.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

namespace infos {

namespace {

Status missing_ops(const PhaseGraph& graph, const Device& device) {
  for (const infos_op& op : graph.ops())
    if (((device.info().op_mask >> op.kind) & 1) == 0)
      return Error{ErrorCode::unsupported,
                   fmt::format("device {} has no operation {}, which the model needs",
                               device.info().name, op.kind)};
  return {};
}

/// Memory goes to the NUMA node of the thread that first touches it: a rank loads where it will
/// compute. Best effort.
void stay_on(const std::vector<std::uint32_t>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const std::uint32_t core : cores)
    if (core < CPU_SETSIZE) CPU_SET(core, &set);
  if (!cores.empty()) sched_setaffinity(0, sizeof set, &set);
}

}  // namespace

Result<DeviceConfig> rank_device(const EngineOptions& options, const ModelShard& shard,
                                 std::uint32_t machine_cores) {
  DeviceConfig device;
  device.threads = options.threads;
  device.cores = options.cores;
  device.options = options.device_options;
  if (shard.ranks == 1) return device;
  const auto n = static_cast<std::uint32_t>(options.cores.size());
  if (n % shard.ranks != 0 || options.threads % shard.ranks != 0)
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("{} threads and {} cores for tensor_parallel {}: each number must be a "
                    "multiple of it, or 0 to let the engine choose",
                    options.threads, n, shard.ranks)};
  const std::uint32_t each = n / shard.ranks;
  device.cores.assign(options.cores.begin() + each * shard.rank,
                      options.cores.begin() + each * (shard.rank + 1));
  const std::uint32_t all = n != 0 ? n : machine_cores;
  device.threads = options.threads != 0 ? options.threads / shard.ranks
                                        : std::max<std::uint32_t>(1, all / shard.ranks);
  return device;
}

Status Rank::open(const Checkpoint& checkpoint, const EngineOptions& options,
                  const ModelShard& shard, const infos_group* group) {
  const ModelConfig& config = checkpoint.config();
  shard_ = shard;
  vocab_begin_ = infos::vocab_begin(config.vocab, shard.rank, shard.ranks);
  const PhaseGraph graph = INFOS_TRY(build_phase_graph(config, shard));
  const Plugin* plugin = INFOS_TRY(find_plugin(options.backend));
  const infos_device_info first = INFOS_TRY(Device::describe(*plugin, 0));
  DeviceConfig device = INFOS_TRY(rank_device(options, shard, first.cores));
  device.group = group;
  if (shard.ranks > 1) stay_on(device.cores);
  // A device for each rank where there are as many; the CPU is one that all ranks open.
  if (INFOS_TRY(Device::count(*plugin)) >= shard.ranks) device.index = shard.rank;
  device_ = INFOS_TRY(Device::open(*plugin, device));
  INFOS_TRY(missing_ops(graph, device_));
  weights_ = INFOS_TRY(BoundWeights::bind(graph, checkpoint, device_.info().dtype_mask));
  main_dtype_ = weights_.main_dtype();
  infos_bucket bucket{};
  bucket.struct_size = sizeof bucket;
  bucket.max_tokens = std::max(options.max_step_tokens, options.max_sequences);
  bucket.max_sequences = options.max_sequences;
  bucket.max_context = options.max_context != 0 ? options.max_context : config.max_context;
  const Artifact artifact = INFOS_TRY(device_.compile(graph.view(), bucket));
  program_ = INFOS_TRY(device_.load(artifact, &BoundWeights::source, &weights_));
  if (plugin->api().keeps_weights == 0) weights_ = BoundWeights();
  return {};
}

void* Rank::allocate(void* context, std::uint64_t bytes) {
  const auto& self = *static_cast<Rank*>(context);
  return self.allocator_.allocate(self.shard_.rank, {bytes});
}

void Rank::release(void* context, void* memory, std::uint64_t bytes) {
  const auto& self = *static_cast<Rank*>(context);
  self.allocator_.release(self.shard_.rank, memory, {bytes});
}

Status Rank::create_kv(infos_kv_config config, const KvAllocator& allocator) {
  if (allocator.allocate) {
    allocator_ = allocator;
    config.allocate = allocate;
    config.release = release;
    config.allocate_context = this;
  }
  kv_ = INFOS_TRY(device_.create_kv(config));
  const infos_kv_layout layout = INFOS_TRY(kv_.layout());
  description_.dtype = static_cast<DType>(layout.dtype);
  description_.layers = config.layers;
  description_.head_dim = config.head_dim;
  description_.block_tokens = config.block_tokens;
  description_.blocks = config.n_blocks;
  description_.head_begin = config.kv_heads * shard_.rank;
  description_.heads = config.kv_heads;
  description_.base = static_cast<std::byte*>(layout.base);
  description_.s_block = layout.s_block;
  description_.s_layer = layout.s_layer;
  description_.s_head = layout.s_head;
  description_.s_token = layout.s_token;
  description_.v_offset = layout.v_offset;
  description_.bytes = layout.bytes;
  return {};
}

}  // namespace infos
