// SPDX-License-Identifier: Apache-2.0
// StepPace learns from finished steps how long decode steps and prefill rows take, and says how
// many prefill rows may ride along with a decode step so that running answers do not stall: prefill
// time <= share x decode time, with a floor so that prefill always advances. Pure arithmetic on the
// durations it is told.
#pragma once

#include <array>
#include <cstdint>

#include "topology/base/units.h"

namespace infos {

class StepPace {
 public:
  /// `share`: prefill time allowed per step as a multiple of its decode time. `rows_floor`,
  /// `rows_max`: bounds of a budget.
  StepPace(double share, std::uint32_t rows_floor, std::uint32_t rows_max);

  /// Prefill rows allowed beside `decode_rows` while `backlog` rows are to be computed in all. 0
  /// means: none this time, the decode time must be measured anew. Without decode rows: rows_max.
  std::uint32_t prefill_budget(std::uint32_t decode_rows, std::uint64_t backlog) const;
  /// A step has finished.
  void finished(std::uint32_t decode_rows, std::uint32_t prefill_rows, Duration took);

  double prefill_rows_per_second() const;
  double decode_step_seconds() const { return decode_seconds(last_decode_rows_); }

 private:
  static constexpr std::size_t kSizes = 16;  ///< batch sizes by power of two
  /// Expected time of a step with just these decode rows, 0: unknown.
  double decode_seconds(std::uint32_t decode_rows) const;

  double share_;
  std::uint32_t rows_floor_;
  std::uint32_t rows_max_;
  std::array<double, kSizes> decode_seconds_{};
  double row_alone_seconds_ =
      0;  ///< per row of steps without decode rows, their fixed cost included
  double row_beside_seconds_ =
      0;  ///< per prefill row of mixed steps, over the expected decode time
  std::uint32_t largest_mixed_rows_ = 0;
  std::uint32_t last_decode_rows_ = 1;
  std::uint32_t mixed_in_a_row_ = 0;
};

}  // namespace infos
