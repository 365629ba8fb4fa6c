// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/step_pace.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace infos {
namespace {

constexpr double kWeight = 0.125;  // of the newest sample
constexpr double kOutlier = 4;     // a sample counts as at most this many times the estimate
constexpr std::uint32_t kMixedSteps = 64;  // mixed steps before the decode time is measured again

/// Moves an estimate towards a sample; one stall of the machine must not distort it.
double blend(double estimate, double sample) {
  if (estimate <= 0) return sample;
  return estimate + kWeight * (std::min(sample, kOutlier * estimate) - estimate);
}

std::size_t size_class(std::uint32_t rows) {
  return std::min<std::size_t>(std::bit_width(std::max(rows, 1U)) - 1, 15);
}

/// How much the share grows with the backlog: up to twice at once (with share 1 a mixed step then
/// takes three decode steps, the bound of inter-token p99 / p50); beyond four seconds of backlog
/// answers slow down rather than prompts wait for ever.
double urgency(double backlog_seconds) {
  return backlog_seconds < 4 ? std::min(1 + backlog_seconds, 2.0)
                             : std::min(backlog_seconds / 2, 16.0);
}

}  // namespace

StepPace::StepPace(double share, std::uint32_t rows_floor, std::uint32_t rows_max)
    : share_(std::isfinite(share) && share > 0 ? share : 0),
      rows_floor_(std::max(rows_floor, 1U)),
      rows_max_(std::max(rows_max, 1U)) {}

double StepPace::decode_seconds(std::uint32_t decode_rows) const {
  const std::size_t at = size_class(decode_rows);
  if (decode_seconds_[at] > 0) return decode_seconds_[at];
  // A smaller batch is the careful guess: it takes at most as long.
  for (std::size_t i = at; i-- > 0;) {
    if (decode_seconds_[i] > 0) return decode_seconds_[i];
  }
  for (std::size_t i = at + 1; i < kSizes; ++i) {
    if (decode_seconds_[i] > 0) return decode_seconds_[i];
  }
  return 0;
}

std::uint32_t StepPace::prefill_budget(std::uint32_t decode_rows, std::uint64_t backlog) const {
  if (decode_rows == 0) return rows_max_;
  const double decode = decode_seconds(decode_rows);
  if (decode <= 0 || mixed_in_a_row_ >= kMixedSteps) return 0;
  const double row = row_beside_seconds_ > 0 ? row_beside_seconds_ : row_alone_seconds_;
  if (row <= 0) return std::min(rows_floor_, rows_max_);
  // Never more than twice what was tried before: a lucky sample must not cause a long step.
  const double growth = 2.0 * std::max(largest_mixed_rows_, rows_floor_);
  const double share = share_ * urgency(static_cast<double>(backlog) * row);
  const double rows = std::min({share * decode / row, growth, static_cast<double>(rows_max_)});
  return std::min(std::max(static_cast<std::uint32_t>(rows), rows_floor_), rows_max_);
}

void StepPace::finished(std::uint32_t decode_rows, std::uint32_t prefill_rows, Duration took) {
  const double seconds = std::max(took.seconds(), 1e-9);
  if (decode_rows == 0) {
    if (prefill_rows > 0) row_alone_seconds_ = blend(row_alone_seconds_, seconds / prefill_rows);
    mixed_in_a_row_ = 0;
    return;
  }
  last_decode_rows_ = decode_rows;
  if (prefill_rows == 0) {
    double& estimate = decode_seconds_[size_class(decode_rows)];
    estimate = blend(estimate, seconds);
    mixed_in_a_row_ = 0;
    return;
  }
  ++mixed_in_a_row_;
  largest_mixed_rows_ = std::max(largest_mixed_rows_, prefill_rows);
  const double decode = decode_seconds(decode_rows);
  // A mixed step that seems to take no longer than a decode step is noise: bounded below, else the
  // budget would explode.
  const double sample = std::max((seconds - decode) / prefill_rows, 0.02 * decode / prefill_rows);
  if (decode > 0) row_beside_seconds_ = blend(row_beside_seconds_, sample);
}

double StepPace::prefill_rows_per_second() const {
  if (row_alone_seconds_ > 0) return 1 / row_alone_seconds_;
  return row_beside_seconds_ > 0 ? 1 / row_beside_seconds_ : 0;
}

}  // namespace infos
