// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "devices/engine/engine/kv_budget.h"
#include "devices/engine/engine/weights.h"
#include "devices/engine/graph/phase_graph.h"
#include "devices/engine/reference/backend.h"
#include "devices/engine/reference/dequantise.h"
#include "devices/engine/sampler/sampler.h"
#include "devices/host/device.h"
#include "topology/base/log.h"

namespace infos {

namespace {

constexpr std::uint32_t kContextMax = 1U << 24;

/// A batch's arrays, kept between steps so that a warm step allocates nothing.
struct BatchArrays {
  std::vector<std::int32_t> tokens, positions;
  std::vector<std::uint32_t> row_begin, table, table_begin, logit_rows;

  void clear() {
    tokens.clear();
    positions.clear();
    row_begin.assign(1, 0);
    table.clear();
    table_begin.assign(1, 0);
    logit_rows.clear();
  }

  void add(const EngineSequence& sequence) {
    for (std::size_t i = 0; i < sequence.tokens.size(); ++i) {
      tokens.push_back(sequence.tokens[i]);
      positions.push_back(static_cast<std::int32_t>(sequence.start + i));
    }
    row_begin.push_back(static_cast<std::uint32_t>(tokens.size()));
    for (const BlockId block : sequence.blocks) table.push_back(block.value);
    table_begin.push_back(static_cast<std::uint32_t>(table.size()));
    if (sequence.sample) logit_rows.push_back(static_cast<std::uint32_t>(tokens.size() - 1));
  }

  infos_batch view(float* logits) const {
    infos_batch batch{};
    batch.struct_size = sizeof batch;
    batch.n_tokens = static_cast<std::uint32_t>(tokens.size());
    batch.tokens = tokens.data();
    batch.positions = positions.data();
    batch.n_sequences = static_cast<std::uint32_t>(row_begin.size() - 1);
    batch.row_begin = row_begin.data();
    batch.block_table = table.data();
    batch.table_begin = table_begin.data();
    batch.n_logit_rows = static_cast<std::uint32_t>(logit_rows.size());
    batch.logit_rows = logit_rows.data();
    batch.logits = logits;
    return batch;
  }
};

class EngineOnDevice final : public Engine {
 public:
  const ModelConfig& config() const override { return config_; }
  std::string device_name() const override { return device_.info().name; }
  std::uint32_t kv_blocks() const override { return kv_blocks_; }
  std::uint32_t block_tokens() const override { return block_tokens_; }
  std::uint32_t max_context() const override { return max_context_; }
  std::span<const KvRank> kv_ranks() const override { return {&kv_rank_, 1}; }
  void on_layer_done(std::function<void(std::uint32_t)> done) override {
    layer_done_ = std::move(done);
  }

  Status open(const Checkpoint& checkpoint, const EngineOptions& options);

  void open_sequence(RequestId request, std::span<const TokenId> tokens,
                     std::uint32_t prompt_tokens, const SamplingParams& sampling) override {
    samplers_.insert_or_assign(request,
                               SequenceSampler(sampling, tokens, prompt_tokens, config_.vocab));
  }
  void close_sequence(RequestId request) override { samplers_.erase(request); }

  Result<std::vector<SampledToken>> step(std::span<const EngineSequence> sequences) override;
  Result<std::vector<float>> logits(std::span<const EngineSequence> sequences) override;
  void cancel() override { device_.cancel(); }

 private:
  Status check_options(const EngineOptions& options) const;
  Status create_kv(const EngineOptions& options, DType main_dtype);
  Status describe_kv(const infos_kv_config& config);
  static void* allocate_kv(void* context, std::uint64_t bytes);
  static void release_kv(void* context, void* memory, std::uint64_t bytes);
  static void on_layer(void* context, std::uint32_t layer);
  /// Runs the batch; its logits are in logits_.
  Status run(std::span<const EngineSequence> sequences);

  ModelConfig config_;
  BoundWeights weights_;      // outlives the program: the backend may use its bytes in place
  KvAllocator kv_allocator_;  // outlives the pool
  Device device_;
  Program program_;
  KvPool kv_;
  KvRank kv_rank_;
  std::function<void(std::uint32_t)> layer_done_;
  std::uint32_t layers_done_ = 0;  // of the step that runs now
  std::uint32_t kv_blocks_ = 0;
  std::uint32_t block_tokens_ = 0;
  std::uint32_t max_context_ = 0;
  BatchArrays batch_;
  std::vector<float> logits_;
  SamplerScratch scratch_;
  std::unordered_map<RequestId, SequenceSampler> samplers_;
};

Status missing_ops(const PhaseGraph& graph, const Device& device) {
  for (const infos_op& op : graph.ops())
    if (((device.info().op_mask >> op.kind) & 1) == 0)
      return Error{ErrorCode::unsupported,
                   fmt::format("device {} has no operation {}, which the model needs",
                               device.info().name, op.kind)};
  return {};
}

Status EngineOnDevice::check_options(const EngineOptions& options) const {
  const std::uint32_t sizes[] = {options.block_tokens, options.max_step_tokens,
                                 options.max_sequences};
  for (const std::uint32_t size : sizes)
    if (size == 0 || size > (1U << 20))
      return Error{
          ErrorCode::invalid_argument,
          fmt::format(
              "block_tokens, max_step_tokens and max_sequences are {}, {} and {}: want 1 to {}",
              sizes[0], sizes[1], sizes[2], 1U << 20)};
  if (options.max_context > kContextMax)
    return Error{ErrorCode::invalid_argument, fmt::format("max_context is {}: want at most {}",
                                                          options.max_context, kContextMax)};
  if (options.max_context > config_.max_context)
    log_warn("engine", "context is longer than the model was made for",
             {{"max_context", options.max_context}, {"model_context", config_.max_context}});
  return {};
}

Status EngineOnDevice::create_kv(const EngineOptions& options, DType main_dtype) {
  const DType dtype = options.kv_dtype != DType::none ? options.kv_dtype
                      : main_dtype == DType::f32      ? DType::f32
                                                      : DType::f16;
  KvBudgetRequest request;
  request.memory = options.kv_memory;
  request.free = free_memory();
  if (device_.info().device_class != INFOS_CLASS_CPU) {
    const infos_health health = INFOS_TRY(device_.health());
    request.free = {device_.info().memory_bytes -
                    std::min(health.memory_used_bytes, device_.info().memory_bytes)};
  }
  request.element_bytes = reference::block_of(static_cast<std::uint32_t>(dtype)).bytes;
  if (request.element_bytes == 0 || request.element_bytes > 4)
    return Error{ErrorCode::invalid_argument, "kv_dtype: want f32, f16 or bf16"};
  request.block_tokens = options.block_tokens;
  request.max_sequences = options.max_sequences;
  request.max_context = options.max_context != 0 ? options.max_context : config_.max_context;
  const KvBudget budget = INFOS_TRY(kv_budget(config_, request));
  infos_kv_config kv{};
  kv.struct_size = sizeof kv;
  kv.dtype = static_cast<std::uint32_t>(dtype);
  kv.layers = config_.layers;
  kv.kv_heads = config_.kv_heads;
  kv.head_dim = config_.head_dim;
  kv.block_tokens = options.block_tokens;
  kv.n_blocks = budget.blocks;
  if (options.kv_allocator.allocate) {
    kv_allocator_ = options.kv_allocator;
    kv.allocate = allocate_kv;
    kv.release = release_kv;
    kv.allocate_context = this;
  }
  kv_ = INFOS_TRY(device_.create_kv(kv));
  INFOS_TRY(describe_kv(kv));
  kv_blocks_ = budget.blocks;
  block_tokens_ = options.block_tokens;
  max_context_ = budget.max_context;
  return {};
}

void* EngineOnDevice::allocate_kv(void* context, std::uint64_t bytes) {
  return static_cast<EngineOnDevice*>(context)->kv_allocator_.allocate(0, {bytes});
}

void EngineOnDevice::release_kv(void* context, void* memory, std::uint64_t bytes) {
  static_cast<EngineOnDevice*>(context)->kv_allocator_.release(0, memory, {bytes});
}

void EngineOnDevice::on_layer(void* context, std::uint32_t layer) {
  auto& self = *static_cast<EngineOnDevice*>(context);
  self.layers_done_ = layer + 1;
  self.layer_done_(layer);
}

Status EngineOnDevice::describe_kv(const infos_kv_config& config) {
  const infos_kv_layout layout = INFOS_TRY(kv_.layout());
  kv_rank_.dtype = static_cast<DType>(layout.dtype);
  kv_rank_.layers = config.layers;
  kv_rank_.head_dim = config.head_dim;
  kv_rank_.block_tokens = config.block_tokens;
  kv_rank_.blocks = config.n_blocks;
  kv_rank_.heads = config.kv_heads;
  kv_rank_.base = static_cast<std::byte*>(layout.base);
  kv_rank_.s_block = layout.s_block;
  kv_rank_.s_layer = layout.s_layer;
  kv_rank_.s_head = layout.s_head;
  kv_rank_.s_token = layout.s_token;
  kv_rank_.v_offset = layout.v_offset;
  kv_rank_.bytes = layout.bytes;
  return {};
}

Status EngineOnDevice::open(const Checkpoint& checkpoint, const EngineOptions& options) {
  config_ = checkpoint.config();
  const PhaseGraph graph = INFOS_TRY(build_phase_graph(config_));
  INFOS_TRY(check_options(options));
  const Plugin* plugin = INFOS_TRY(find_plugin(options.backend));
  DeviceConfig device;
  device.threads = options.threads;
  device.cores = options.cores;
  device.options = options.device_options;
  device_ = INFOS_TRY(Device::open(*plugin, device));
  INFOS_TRY(missing_ops(graph, device_));
  weights_ = INFOS_TRY(BoundWeights::bind(graph, checkpoint, device_.info().dtype_mask));
  infos_bucket bucket{};
  bucket.struct_size = sizeof bucket;
  bucket.max_tokens = std::max(options.max_step_tokens, options.max_sequences);
  bucket.max_sequences = options.max_sequences;
  bucket.max_context = options.max_context != 0 ? options.max_context : config_.max_context;
  const Artifact artifact = INFOS_TRY(device_.compile(graph.view(), bucket));
  program_ = INFOS_TRY(device_.load(artifact, &BoundWeights::source, &weights_));
  INFOS_TRY(create_kv(options, weights_.main_dtype()));
  if (plugin->api().keeps_weights == 0) weights_ = BoundWeights();
  return {};
}

Status EngineOnDevice::run(std::span<const EngineSequence> sequences) {
  batch_.clear();
  for (const EngineSequence& sequence : sequences) {
    if (sequence.tokens.empty())
      return Error{ErrorCode::invalid_argument,
                   fmt::format("sequence {} has no rows in this step", sequence.request.value)};
    if (std::uint64_t{sequence.start} + sequence.tokens.size() > max_context_)
      return Error{ErrorCode::invalid_argument,
                   fmt::format("sequence {} has positions {} to {}: the context holds {}",
                               sequence.request.value, sequence.start,
                               sequence.start + sequence.tokens.size() - 1, max_context_)};
    batch_.add(sequence);
  }
  const std::size_t wanted = batch_.logit_rows.size() * config_.vocab;
  if (logits_.size() < wanted) logits_.resize(wanted);
  infos_batch batch = batch_.view(logits_.data());
  layers_done_ = 0;
  if (layer_done_) {
    batch.layer_done = on_layer;
    batch.layer_context = this;
  }
  INFOS_TRY(program_.execute(kv_, batch));
  // A backend that does not say when a layer is written has written all of them now.
  while (layer_done_ && layers_done_ < config_.layers) on_layer(this, layers_done_);
  return {};
}

Result<std::vector<SampledToken>> EngineOnDevice::step(std::span<const EngineSequence> sequences) {
  for (const EngineSequence& sequence : sequences)
    if (sequence.sample && !samplers_.contains(sequence.request))
      return Error{ErrorCode::invalid_argument,
                   fmt::format("sequence {} is not open", sequence.request.value)};
  INFOS_TRY(run(sequences));
  std::vector<SampledToken> sampled;
  sampled.reserve(batch_.logit_rows.size());
  for (const EngineSequence& sequence : sequences) {
    if (!sequence.sample) continue;
    const std::span<const float> row(logits_.data() + sampled.size() * config_.vocab,
                                     config_.vocab);
    auto token = samplers_.at(sequence.request).sample(row, sequence.index, scratch_);
    if (!token.ok())
      return Error{token.error().code,
                   fmt::format("sequence {}: {}", sequence.request.value, token.error().message)};
    sampled.push_back(std::move(*token));
  }
  return sampled;
}

Result<std::vector<float>> EngineOnDevice::logits(std::span<const EngineSequence> sequences) {
  INFOS_TRY(run(sequences));
  const auto end =
      logits_.begin() + static_cast<std::ptrdiff_t>(batch_.logit_rows.size() * config_.vocab);
  return std::vector<float>(logits_.begin(), end);
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(const Checkpoint& checkpoint,
                                             const EngineOptions& options) {
  register_plugin("reference", &reference::plugin_query);
  auto engine = std::make_unique<EngineOnDevice>();
  INFOS_TRY(engine->open(checkpoint, options));
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace infos
