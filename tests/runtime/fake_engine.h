// SPDX-License-Identifier: Apache-2.0
// An engine without a model: the token after n tokens is fake_token(n), at once or after a wait.
// Checks that sequences are opened, used and closed in a legal order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "devices/engine/engine.h"

namespace infos::test {

inline TokenId fake_token(std::size_t tokens_before) {
  return static_cast<TokenId>(100 + tokens_before % 97);
}

class FakeEngine final : public Engine {
 public:
  const ModelConfig& config() const override { return config_; }
  std::string device_name() const override { return "fake"; }
  std::uint32_t kv_blocks() const override { return 256; }
  std::uint32_t block_tokens() const override { return 16; }
  std::uint32_t max_context() const override { return 2048; }
  std::span<const KvRank> kv_ranks() const override { return {}; }
  void on_layer_done(std::function<void(std::uint32_t)>) override {}

  void open_sequence(RequestId request, std::span<const TokenId>, std::uint32_t,
                     const SamplingParams&) override {
    INFOS_CHECK(open_.emplace(request, 0).second);
  }
  void close_sequence(RequestId request) override { INFOS_CHECK(open_.erase(request) == 1); }

  Result<std::vector<SampledToken>> step(std::span<const EngineSequence> sequences) override {
    ++steps;
    if (failing) return Error{ErrorCode::io, "the fake device failed"};
    if (endless) {
      wait_for_cancel();
      return Error{ErrorCode::cancelled, "the step was cancelled"};
    }
    std::vector<SampledToken> sampled;
    for (const EngineSequence& s : sequences) {
      INFOS_CHECK(open_.contains(s.request));
      if (s.sample) sampled.push_back(SampledToken{fake_token(s.start + s.tokens.size()), 0, {}});
    }
    return sampled;
  }
  Result<std::vector<float>> logits(std::span<const EngineSequence>) override {
    return Error{ErrorCode::unsupported, "the fake engine has no logits"};
  }
  void cancel() override {
    const std::lock_guard lock(mutex_);
    in_endless_step_ = false;
    changed_.notify_all();
  }

  /// Any thread: returns when a step runs that only cancel() ends.
  void wait_for_endless_step() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return in_endless_step_; });
  }

  std::size_t open_sequences() const { return open_.size(); }
  std::uint64_t steps = 0;
  std::atomic<bool> failing{false};  ///< any thread: steps fail
  std::atomic<bool> endless{false};  ///< any thread: steps take until they are cancelled

 private:
  void wait_for_cancel() {
    std::unique_lock lock(mutex_);
    in_endless_step_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !in_endless_step_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool in_endless_step_ = false;
  ModelConfig config_;
  std::map<RequestId, int> open_;
};

}  // namespace infos::test
