// SPDX-License-Identifier: Apache-2.0
// An engine for tests of WorkerCore: token n + 1 of a sequence is a pure function of its tokens so
// far, read through the KV that the core's block tables point at, so that a wrong block changes the
// answer.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/block_hash.h"
#include "daemon/control/worker_core.h"

namespace infos::test {

inline std::uint64_t mix(std::uint64_t chain, TokenId token) {
  std::uint64_t h = (chain ^ static_cast<std::uint32_t>(token)) * 0x9e3779b97f4a7c15ULL;
  return h ^ (h >> 29);
}

/// The answer of the model, computed from nothing but the prompt.
inline std::vector<TokenId> reference_answer(const std::vector<TokenId>& prompt, std::size_t count,
                                             TokenId vocab = 1000) {
  std::uint64_t chain = 1;
  for (const TokenId t : prompt) chain = mix(chain, t);
  std::vector<TokenId> answer;
  while (answer.size() < count) {
    answer.push_back(static_cast<TokenId>((chain >> 8) % static_cast<std::uint64_t>(vocab)));
    chain = mix(chain, answer.back());
  }
  return answer;
}

class WorkerHarness {
 public:
  explicit WorkerHarness(const WorkerConfig& config)
      : config_(config),
        core_(config),
        kv_(std::size_t{config.kv_blocks} * config.block_tokens, 0) {}

  /// Tells the core; performs what it wants except the step itself.
  void tell(const WorkerEvent& event) {
    WorkerEffects out;
    core_.step(now_, event, out);
    for (WorkerEffect& effect : out) std::visit([&](auto& e) { take(e); }, effect);
    const WorkerAudit audit = core_.audit();
    EXPECT_EQ(audit.broken, "");
  }
  bool running() const { return step_.has_value(); }
  const RunStep& step() const { return *step_; }
  /// Computes the step under way and reports it.
  void finish(Duration took = milliseconds(10)) {
    StepDone done{step_->id, {}, took};
    for (const StepSequence& s : step_->sequences) {
      const std::uint64_t chain = compute(s);
      if (s.sample) done.sampled.push_back({static_cast<TokenId>((chain >> 8) % 1000)});
    }
    step_.reset();
    now_ = now_ + took;
    tell(done);
  }
  /// Reports the step under way as done with these tokens, whatever was asked for.
  void finish_with(std::vector<SampledToken> sampled) {
    const EffectId id = step_->id;
    step_.reset();
    tell(StepDone{id, std::move(sampled), milliseconds(10)});
  }
  void fail(const std::string& message) {
    const EffectId id = step_->id;
    step_.reset();
    tell(StepFailed{id, message});
  }
  /// Until nothing runs. Returns: steps run.
  std::size_t run(std::size_t limit = 100000) {
    std::size_t steps = 0;
    while (running() && steps < limit) finish(), ++steps;
    EXPECT_LT(steps, limit) << "it does not come to an end";
    return steps;
  }

  WorkerCore& core() { return core_; }
  std::vector<TokenId> answer(RequestId request) const {
    const auto found = answers_.find(request);
    return found == answers_.end() ? std::vector<TokenId>{} : found->second;
  }
  const std::vector<SequenceEnd>& ended() const { return ended_; }
  std::optional<SequenceEnd> end_of(RequestId request) const {
    std::optional<SequenceEnd> last;
    for (const SequenceEnd& e : ended_) {
      if (e.request == request) last = e;
    }
    return last;
  }
  std::size_t drained() const { return drained_; }
  const std::vector<FetchKv>& fetches() const { return fetches_; }
  const std::vector<EffectId>& abandoned() const { return abandoned_; }
  const std::vector<ExportKv>& exports() const { return exports_; }
  const std::vector<AdvanceExport>& advances() const { return advances_; }
  const std::vector<EffectId>& ended_exports() const { return ended_exports_; }
  const std::vector<FetchStat>& fetch_stats() const { return fetch_stats_; }
  const std::set<BlockHash>& held() const { return held_; }
  /// Lets time pass.
  void advance(Duration wait) {
    now_ = now_ + wait;
    tell(Tick{});
  }
  /// Plays the transfer of a fetch's first `tokens` tokens from `source`, whose table is `blocks`.
  void copy_from(const WorkerHarness& source, const std::vector<BlockId>& blocks,
                 const FetchKv& fetch, std::uint32_t tokens) {
    for (std::uint32_t i = fetch.begin; i < fetch.begin + tokens; ++i) {
      const std::uint32_t from = source.config_.block_tokens, to = config_.block_tokens;
      kv_[std::size_t{fetch.blocks.at(i / to).value} * to + i % to] =
          source.kv_[std::size_t{blocks.at(i / from).value} * from + i % from];
    }
  }
  std::size_t open() const { return open_.size(); }

 private:
  std::uint64_t& slot(const StepSequence& s, std::uint32_t position) {
    return kv_[std::size_t{s.blocks.at(position / config_.block_tokens).value} *
                   config_.block_tokens +
               position % config_.block_tokens];
  }
  std::uint64_t compute(const StepSequence& s) {
    std::uint64_t chain = s.start == 0 ? 1 : slot(s, s.start - 1);
    for (std::uint32_t i = 0; i < s.tokens.size(); ++i)
      slot(s, s.start + i) = chain = mix(chain, s.tokens[i]);
    return chain;
  }
  void take(OpenSequence& e) { EXPECT_TRUE(open_.insert(e.request).second) << "opened twice"; }
  void take(CloseSequence& e) {
    EXPECT_EQ(open_.erase(e.request), 1U) << "closed without being open";
    if (!step_) return;
    for (const StepSequence& s : step_->sequences)
      EXPECT_NE(s.request, e.request) << "closed while its step runs";
  }
  void take(RunStep& e) {
    ASSERT_FALSE(step_.has_value()) << "two steps at once";
    ASSERT_FALSE(e.sequences.empty());
    std::size_t rows = 0;
    for (const StepSequence& s : e.sequences) {
      rows += s.tokens.size();
      ASSERT_TRUE(open_.contains(s.request));
      ASSERT_FALSE(s.tokens.empty());
      ASSERT_GE(s.blocks.size() * config_.block_tokens, s.start + s.tokens.size());
    }
    EXPECT_LE(rows, config_.max_step_tokens);
    EXPECT_LE(e.sequences.size(), config_.max_running);
    step_ = std::move(e);
  }
  void take(Report& e) {
    for (const TokenOut& t : e.report.tokens) {
      std::vector<TokenId>& answer = answers_[t.request];
      if (answer.size() < t.index) answer.resize(t.index, -1);
      ASSERT_EQ(t.index, answer.size()) << "token out of order";
      answer.push_back(t.sampled.token);
    }
    fetch_stats_.insert(fetch_stats_.end(), e.report.fetches.begin(), e.report.fetches.end());
    held_.insert(e.report.held.begin(), e.report.held.end());
    for (const BlockHash hash : e.report.dropped) held_.erase(hash);
    ended_.insert(ended_.end(), e.report.ended.begin(), e.report.ended.end());
  }
  void take(Drained&) { ++drained_; }
  void take(FetchKv& e) { fetches_.push_back(e); }
  void take(AbandonFetch& e) { abandoned_.push_back(e.id); }
  void take(ExportKv& e) { exports_.push_back(e); }
  void take(AdvanceExport& e) { advances_.push_back(e); }
  void take(EndExport& e) { ended_exports_.push_back(e.id); }

  WorkerConfig config_;
  WorkerCore core_;
  std::vector<std::uint64_t> kv_;
  Time now_;
  std::optional<RunStep> step_;
  std::set<RequestId> open_;
  std::map<RequestId, std::vector<TokenId>> answers_;
  std::vector<SequenceEnd> ended_;
  std::size_t drained_ = 0;
  std::vector<FetchKv> fetches_;
  std::vector<EffectId> abandoned_, ended_exports_;
  std::vector<ExportKv> exports_;
  std::vector<AdvanceExport> advances_;
  std::vector<FetchStat> fetch_stats_;
  std::set<BlockHash> held_;
};

inline Submit submit(std::uint64_t request, std::vector<TokenId> prompt, std::uint32_t max_new) {
  Submit s;
  s.request = RequestId{request};
  s.attempt = Attempt{1};
  s.prompt_tokens = static_cast<std::uint32_t>(prompt.size());
  s.tokens = std::move(prompt);
  s.max_new_tokens = max_new;
  return s;
}

inline std::vector<TokenId> prompt(std::size_t length, TokenId first = 1) {
  std::vector<TokenId> tokens(length);
  for (std::size_t i = 0; i < length; ++i) tokens[i] = first + static_cast<TokenId>(i * 7 % 500);
  return tokens;
}

}  // namespace infos::test
