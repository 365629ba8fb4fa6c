// SPDX-License-Identifier: Apache-2.0
#include "devices/host/conformance/tiny_model.h"

#include <cmath>
#include <cstring>

#include "devices/engine/graph/rope.h"
#include "devices/engine/reference/dequantise.h"
#include "devices/engine/reference/random_weights.h"
#include "topology/base/rng.h"

namespace infos::conformance {

ModelConfig tiny_config(const std::string& name, std::uint32_t dtype) {
  const bool wide = reference::block_of(dtype).elements > 32;
  ModelConfig c;
  c.name = name;
  c.layers = 2;
  c.hidden = wide ? 256 : 64;
  c.ffn_hidden = wide ? 256 : 96;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = c.hidden / c.heads;
  c.vocab = 83;  // odd: the ends of rows are tested too
  c.max_context = kBucket.max_context;
  c.rope_adjacent_pairs = name == "llama";
  if (name == "mistral" || name == "mixtral") c.family = ModelFamily::mistral;
  if (name == "mistral") c.window = 5;
  if (name == "mixtral") c.experts = 4, c.experts_per_token = 2;
  if (name == "qwen2") c.family = ModelFamily::qwen2, c.qkv_bias = true, c.tied_embeddings = true;
  if (name == "qwen3") c.family = ModelFamily::qwen3, c.qk_norm = true, c.head_dim = c.hidden / 2;
  return c;
}

RandomWeights::RandomWeights(const PhaseGraph& graph, const ModelConfig& config,
                             std::uint32_t dtype, std::uint64_t seed) {
  Rng rng(seed);
  weights_.resize(graph.tensors().size());
  for (std::size_t t = 0; t < weights_.size(); ++t) {
    const infos_tensor& tensor = graph.tensors()[t];
    if (tensor.role == INFOS_ROLE_ACTIVATION) continue;
    std::uint64_t elements = 1;
    for (std::uint32_t d = 0; d < tensor.rank; ++d)
      elements *= static_cast<std::uint64_t>(tensor.dims[d]);
    const std::uint32_t layers = tensor.per_layer != 0 ? graph.n_layers() : 1;
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      const std::uint32_t of = tensor.rank == 1 ? static_cast<std::uint32_t>(INFOS_F32) : dtype;
      const bool embedding = std::strcmp(tensor.name, "token_embd.weight") == 0;
      const double amplitude =
          embedding ? 1.0 : std::sqrt(3.0 / static_cast<double>(tensor.dims[tensor.rank - 1]));
      bytes_.push_back(reference::random_weights(of, elements, amplitude, rng.next()));
      if (tensor.role == INFOS_ROLE_CONSTANT) {
        const std::vector<float> frequencies = rope_frequencies(config);
        std::memcpy(bytes_.back().data(), frequencies.data(), bytes_.back().size());
      } else if (tensor.rank == 1) {  // norms about 1, biases too
        for (std::size_t i = 0; i < elements; ++i) {
          std::byte* at = bytes_.back().data() + i * sizeof(float);
          reference::store_element(INFOS_F32, 1.0 + reference::load_element(INFOS_F32, at), at);
        }
      }
      weights_[t].push_back({sizeof(infos_weight), of, bytes_.back().data(), bytes_.back().size()});
    }
  }
}

infos_code RandomWeights::source(void* context, std::uint32_t tensor, std::uint32_t layer,
                                 infos_weight* out) {
  const auto& weights = static_cast<const RandomWeights*>(context)->weights_;
  if (tensor >= weights.size() || layer >= weights[tensor].size()) return INFOS_INVALID;
  *out = weights[tensor][layer];
  return INFOS_OK;
}

infos_batch Batch::view() {
  infos_batch b{};
  b.struct_size = sizeof b;
  b.n_tokens = static_cast<std::uint32_t>(tokens.size());
  b.tokens = tokens.data();
  b.positions = positions.data();
  b.n_sequences = static_cast<std::uint32_t>(row_begin.size() - 1);
  b.row_begin = row_begin.data();
  b.block_table = table.data();
  b.table_begin = table_begin.data();
  b.n_logit_rows = static_cast<std::uint32_t>(logit_rows.size());
  b.logit_rows = logit_rows.data();
  b.logits = logits.data();
  return b;
}

Batch make_batch(const std::vector<Rows>& rows, std::uint32_t vocab) {
  Batch batch;
  batch.row_begin = batch.table_begin = {0};
  for (const Rows& part : rows) {
    for (std::size_t i = 0; i < part.tokens.size(); ++i) {
      batch.logit_rows.push_back(static_cast<std::uint32_t>(batch.tokens.size()));
      batch.tokens.push_back(part.tokens[i]);
      batch.positions.push_back(static_cast<std::int32_t>(part.start + i));
    }
    batch.row_begin.push_back(static_cast<std::uint32_t>(batch.tokens.size()));
    // Against the natural order, so that a backend that ignores the table is found out.
    const auto end = part.start + static_cast<std::uint32_t>(part.tokens.size());
    for (std::uint32_t b = 0; b < (end + kBlockTokens - 1) / kBlockTokens; ++b)
      batch.table.push_back(part.sequence * kBlocksEach + (kBlocksEach - 1 - b));
    batch.table_begin.push_back(static_cast<std::uint32_t>(batch.table.size()));
  }
  batch.logits.assign(batch.logit_rows.size() * vocab, 0.0F);
  return batch;
}

std::vector<std::int32_t> random_tokens(std::uint32_t n, std::uint32_t vocab, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<std::int32_t> tokens;
  while (tokens.size() < n) tokens.push_back(static_cast<std::int32_t>(rng.below(vocab)));
  return tokens;
}

infos_kv_config kv_config(const ModelConfig& config) {
  return {sizeof(infos_kv_config), INFOS_F32,    config.layers,           config.kv_heads,
          config.head_dim,         kBlockTokens, kBlocksEach * kSequences};
}

Result<TinyModel> TinyModel::load(const Plugin& plugin, const std::string& options,
                                  const ModelConfig& config, std::uint32_t dtype,
                                  std::uint32_t threads) {
  TinyModel m;
  m.config = config;
  m.graph = INFOS_TRY(build_phase_graph(config));
  DeviceConfig device;
  device.threads = threads;
  device.options = options;
  m.device = INFOS_TRY(Device::open(plugin, device));
  m.artifact = INFOS_TRY(m.device.compile(m.graph.view(), kBucket));
  m.weights = std::make_unique<RandomWeights>(m.graph, config, dtype, 1234);
  m.program = INFOS_TRY(m.device.load(m.artifact, &RandomWeights::source, m.weights.get()));
  m.kv = INFOS_TRY(m.device.create_kv(kv_config(config)));
  return m;
}

Result<std::vector<float>> TinyModel::run(const std::vector<Rows>& rows) {
  Batch batch = make_batch(rows, config.vocab);
  INFOS_TRY(program.execute(kv, batch.view()));
  return batch.logits;
}

}  // namespace infos::conformance
