// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <unordered_map>

#include "devices/engine/engine/kv_budget.h"
#include "devices/engine/engine/rank.h"
#include "devices/engine/engine/rank_threads.h"
#include "devices/engine/graph/phase_graph.h"
#include "devices/engine/reference/backend.h"
#include "devices/engine/reference/dequantise.h"
#include "devices/engine/sampler/sampler.h"
#include "devices/host/collective.h"
#include "devices/host/device.h"
#include "topology/base/log.h"

namespace infos {

namespace {

constexpr std::uint32_t kContextMax = 1U << 24;
constexpr std::uint32_t kNoRank = UINT32_MAX;

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
  std::string device_name() const override;
  std::uint32_t kv_blocks() const override { return kv_blocks_; }
  std::uint32_t block_tokens() const override { return block_tokens_; }
  std::uint32_t max_context() const override { return max_context_; }
  std::span<const KvRank> kv_ranks() const override { return kv_ranks_; }
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
  void cancel() override {
    for (const Rank& rank : ranks_) rank.cancel();
  }

 private:
  Status check_options(const EngineOptions& options) const;
  Status create_kv(const EngineOptions& options);
  /// Runs the batch; its logits are in logits_.
  Status run(std::span<const EngineSequence> sequences);
  Status execute(Rank& rank);
  /// job(rank) on all ranks at once, each on its thread. The first error; then no rank waits for
  /// another any more.
  template <typename Job>
  Status on_all_ranks(const Job& job);
  void rank_failed(std::uint32_t rank);
  static void on_layer(void* context, std::uint32_t layer);

  ModelConfig config_;
  std::unique_ptr<Collective> collective_;  // null: one rank; outlives the devices
  std::vector<Rank> ranks_;
  std::unique_ptr<RankThreads> threads_;
  bool opened_ = false;           // all ranks have a device that can be cancelled
  std::vector<Status> statuses_;  // of the ranks, in the job that runs now
  std::atomic<std::uint32_t> first_failed_{kNoRank};  // in the job that runs now
  std::vector<KvRank> kv_ranks_;
  std::uint32_t kv_blocks_ = 0;
  std::uint32_t block_tokens_ = 0;
  std::uint32_t max_context_ = 0;
  std::function<void(std::uint32_t)> layer_done_;
  std::atomic<std::uint32_t> layer_calls_{0};  // of all ranks, in the step that runs now
  BatchArrays batch_;
  std::vector<float> logits_;
  SamplerScratch scratch_;
  std::unordered_map<RequestId, SequenceSampler> samplers_;
};

std::string EngineOnDevice::device_name() const {
  const std::string name = ranks_.front().device().info().name;
  return ranks_.size() == 1 ? name : fmt::format("{} ranks on {}", ranks_.size(), name);
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

Status EngineOnDevice::create_kv(const EngineOptions& options) {
  const Device& device = ranks_.front().device();
  const DType dtype = options.kv_dtype != DType::none             ? options.kv_dtype
                      : ranks_.front().main_dtype() == DType::f32 ? DType::f32
                                                                  : DType::f16;
  KvBudgetRequest request;
  request.memory = options.kv_memory;
  request.free = free_memory();
  if (device.info().device_class != INFOS_CLASS_CPU) {
    const infos_health health = INFOS_TRY(device.health());
    request.free = {ranks_.size() *
                    (device.info().memory_bytes -
                     std::min(health.memory_used_bytes, device.info().memory_bytes))};
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
  kv.kv_heads = config_.kv_heads / static_cast<std::uint32_t>(ranks_.size());
  kv.head_dim = config_.head_dim;
  kv.block_tokens = options.block_tokens;
  kv.n_blocks = budget.blocks;
  for (Rank& rank : ranks_) {
    INFOS_TRY(rank.create_kv(kv, options.kv_allocator));
    kv_ranks_.push_back(rank.kv());
  }
  kv_blocks_ = budget.blocks;
  block_tokens_ = options.block_tokens;
  max_context_ = budget.max_context;
  return {};
}

void EngineOnDevice::on_layer(void* context, std::uint32_t layer) {
  auto& self = *static_cast<EngineOnDevice*>(context);
  // No rank begins a layer before all have ended the one before: the last to come speaks for all.
  const std::uint32_t calls = self.layer_calls_.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (calls % self.ranks_.size() == 0) self.layer_done_(layer);
}

void EngineOnDevice::rank_failed(std::uint32_t rank) {
  std::uint32_t none = kNoRank;
  if (!first_failed_.compare_exchange_strong(none, rank) || collective_ == nullptr) return;
  collective_->fail();
  for (const Rank& other : ranks_)
    if (opened_ && &other != &ranks_[rank]) other.cancel();
}

template <typename Job>
Status EngineOnDevice::on_all_ranks(const Job& job) {
  first_failed_.store(kNoRank);
  const auto one = [&](std::uint32_t rank) {
    statuses_[rank] = job(rank);
    if (!statuses_[rank].ok()) rank_failed(rank);
  };
  threads_->run(one);
  const std::uint32_t failed = first_failed_.load();
  if (failed == kNoRank) return {};
  if (collective_ != nullptr) collective_->reset();
  return statuses_[failed].error();
}

Status EngineOnDevice::open(const Checkpoint& checkpoint, const EngineOptions& options) {
  config_ = checkpoint.config();
  const std::uint32_t ranks = options.tensor_parallel;
  INFOS_TRY(config_.validate());
  INFOS_TRY(check_shard(config_, {0, ranks}));
  INFOS_TRY(check_options(options));
  if (ranks > 1) collective_ = std::make_unique<Collective>(ranks);
  threads_ = std::make_unique<RankThreads>(ranks);
  ranks_ = std::vector<Rank>(ranks);
  statuses_.resize(ranks);
  const auto open_ranks = [&] {
    return on_all_ranks([&](std::uint32_t rank) {
      return ranks_[rank].open(checkpoint, options, {rank, ranks},
                               collective_ != nullptr ? collective_->group(rank) : nullptr);
    });
  };
  Status opened;
  if (ranks == 1) {
    opened = open_ranks();
  } else {  // a rank binds the thread that loads it to its cores, and this one is the caller's
    std::thread loader([&] { opened = open_ranks(); });
    loader.join();
  }
  INFOS_TRY(opened);
  opened_ = true;
  return create_kv(options);
}

Status EngineOnDevice::execute(Rank& rank) {
  infos_batch batch = batch_.view(logits_.data() + rank.vocab_begin());
  batch.logits_stride = config_.vocab;
  if (layer_done_) {
    batch.layer_done = on_layer;
    batch.layer_context = this;
  }
  return rank.execute(batch);
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
  layer_calls_.store(0);
  INFOS_TRY(on_all_ranks([&](std::uint32_t rank) { return execute(ranks_[rank]); }));
  // A backend that does not say when a layer is written has written all of them now.
  for (std::uint32_t layer = 0; layer_done_ && layer_calls_ == 0 && layer < config_.layers; ++layer)
    layer_done_(layer);
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
