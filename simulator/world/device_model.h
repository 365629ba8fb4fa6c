// SPDX-License-Identifier: Apache-2.0
// DeviceModel: one worker's device and engine. Keeps what each KV row holds, so that an answer
// computed through a wrong block table is a wrong answer; says how long a step takes. With checks,
// names the row that was wrong.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/control/worker_core.h"
#include "simulator/world/run.h"
#include "topology/base/check.h"
#include "topology/base/rng.h"

namespace infos {

class DeviceModel {
 public:
  DeviceModel(const DeviceFigures& figures, const WorkerConfig& config,
              SimulateOptions::Checks checks, std::uint32_t layers, std::uint64_t seed);

  /// Each returns what is illegal about the effect, empty if nothing.
  std::string open(const OpenSequence& effect);
  std::string close(const CloseSequence& effect);
  std::string begin(RunStep effect, double slowness);

  bool is_busy() const { return busy_; }
  Duration duration() const { return duration_; }
  /// Requires: is_busy().
  const RunStep& step() const { return step_; }
  /// Computes the step that began. Requires: is_busy(). Returns: the completion, or an error text
  /// in `broken`.
  StepDone finish();
  /// Computes one layer of a sequence of the step under way, before finish() computes all.
  void compute_layer(const StepSequence& s, std::uint32_t layer);
  /// The rows of one layer of a block. Requires: the block exists.
  std::uint64_t* layer_rows(BlockId block, std::uint32_t layer) {
    return rows_.data() + (std::size_t{block.value} * layers_ + layer) * block_tokens_;
  }
  /// Ends the step without computing it. Requires: is_busy().
  StepFailed fail();
  const std::string& broken() const { return broken_; }
  std::size_t open_sequences() const { return open_.size(); }

 private:
  struct Open {
    std::uint64_t seed = 0;
    std::vector<std::uint64_t> chains;  ///< with checks: what the KV of each known token must be
  };
  std::uint64_t& row(const StepSequence& s, std::uint32_t position, std::uint32_t layer = 0) {
    const std::size_t block = s.blocks[position / block_tokens_].value;
    const std::size_t at = (block * layers_ + layer) * block_tokens_ + position % block_tokens_;
    INFOS_CHECK(at < rows_.size());
    return rows_[at];
  }
  std::uint64_t compute(const StepSequence& s, Open& known);

  DeviceFigures figures_;
  WorkerConfig config_;
  std::uint32_t block_tokens_;
  std::uint32_t layers_;
  bool checks_;
  Rng rng_;
  std::vector<std::uint64_t> rows_;
  std::unordered_map<std::uint64_t, Open> open_;  // looked up only, never walked
  RunStep step_;
  bool busy_ = false;
  Duration duration_;
  std::string broken_;
};

}  // namespace infos
