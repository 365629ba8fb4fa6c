// SPDX-License-Identifier: Apache-2.0
#include "simulator/world/device_model.h"

#include <utility>

#include "simulator/world/answer.h"
#include "simulator/world/kv_model.h"

namespace infos {

DeviceModel::DeviceModel(const DeviceFigures& figures, const WorkerConfig& config,
                         SimulateOptions::Checks checks, std::uint32_t layers, std::uint64_t seed)
    : figures_(figures),
      config_(config),
      block_tokens_(config.block_tokens),
      layers_(layers),
      checks_(checks == SimulateOptions::Checks::every_event),
      rng_(seed),
      rows_(std::size_t{config.kv_blocks} * config.block_tokens * layers) {}

std::string DeviceModel::open(const OpenSequence& effect) {
  const auto [at, is_new] = open_.try_emplace(effect.request.value);
  if (!is_new) return "request " + std::to_string(effect.request.value) + " was opened twice";
  at->second.seed = effect.sampling.seed;
  if (!checks_) return "";
  std::uint64_t chain = kChainStart;
  for (const TokenId token : effect.tokens)
    at->second.chains.push_back(chain = chain_next(chain, token));
  return "";
}

std::string DeviceModel::close(const CloseSequence& effect) {
  const std::string name = "request " + std::to_string(effect.request.value);
  if (open_.erase(effect.request.value) == 0) return name + " was closed without being open";
  if (!busy_ || !checks_) return "";
  for (const StepSequence& s : step_.sequences) {
    if (s.request == effect.request) return name + " was closed while its step runs";
  }
  return "";
}

std::string DeviceModel::begin(RunStep effect, double slowness) {
  if (busy_) return "two steps at once";
  if (effect.sequences.empty()) return "an empty step";
  std::uint64_t prefill = 0, decode = 0;
  for (const StepSequence& s : effect.sequences) {
    const std::size_t end = s.start + s.tokens.size();
    (s.tokens.size() == 1 ? decode : prefill) += s.tokens.size();
    if (s.tokens.empty() || end > s.blocks.size() * block_tokens_)
      return "a step whose rows are not covered by its blocks";
    if (!open_.contains(s.request.value)) return "a step with a sequence that is not open";
    if (!checks_) continue;
    for (const BlockId block : s.blocks) {
      if (block.value >= config_.kv_blocks) return "a step with a block that does not exist";
    }
  }
  if (prefill + decode > config_.max_step_tokens) return "a step with too many rows";
  if (effect.sequences.size() > config_.max_running) return "a step with too many sequences";
  step_ = std::move(effect);
  busy_ = true;
  const double ns = static_cast<double>(figures_.step.ns) +
                    static_cast<double>(figures_.prefill_row.ns) * static_cast<double>(prefill) +
                    static_cast<double>(figures_.decode_row.ns) * static_cast<double>(decode);
  duration_ = Duration{
      static_cast<std::int64_t>(ns * slowness * (1 + figures_.jitter * rng_.uniform())) + 1};
  return "";
}

std::uint64_t DeviceModel::compute(const StepSequence& s, Open& known) {
  if (checks_ && broken_.empty()) {
    for (std::uint32_t p = 0; p < s.start; ++p) {
      bool holds = p < known.chains.size();
      for (std::uint32_t l = 0; l < layers_ && holds; ++l)
        holds = row(s, p, l) == kv_row(known.chains[p], l);
      if (holds) continue;
      broken_ = "request " + std::to_string(s.request.value) + " read KV of position " +
                std::to_string(p) + " in block " +
                std::to_string(s.blocks[p / block_tokens_].value) + ", which holds something else";
      break;
    }
  }
  std::uint64_t chain = s.start == 0 ? kChainStart : row(s, s.start - 1);
  for (std::uint32_t i = 0; i < s.tokens.size(); ++i) {
    row(s, s.start + i) = chain = chain_next(chain, s.tokens[i]);
    for (std::uint32_t l = 1; l < layers_; ++l) row(s, s.start + i, l) = kv_row(chain, l);
  }
  return chain;
}

void DeviceModel::compute_layer(const StepSequence& s, std::uint32_t layer) {
  std::uint64_t chain = s.start == 0 ? kChainStart : row(s, s.start - 1);
  for (std::uint32_t i = 0; i < s.tokens.size(); ++i) {
    chain = chain_next(chain, s.tokens[i]);
    row(s, s.start + i, layer) = kv_row(chain, layer);
  }
}

StepDone DeviceModel::finish() {
  INFOS_CHECK(busy_);
  busy_ = false;
  StepDone done{step_.id, {}, duration_};
  done.sampled.reserve(step_.sequences.size());
  for (const StepSequence& s : step_.sequences) {
    Open& known = open_.at(s.request.value);
    const std::uint64_t chain = compute(s, known);
    if (!s.sample) continue;
    SampledToken& token = done.sampled.emplace_back();
    token.token = draw(chain, known.seed);
    if (checks_ && known.chains.size() == s.start + s.tokens.size())
      known.chains.push_back(chain_next(chain, token.token));
  }
  return done;
}

StepFailed DeviceModel::fail() {
  INFOS_CHECK(busy_);
  busy_ = false;
  return {step_.id, "the modelled device failed this step"};
}

}  // namespace infos
