// SPDX-License-Identifier: Apache-2.0
// LogCurve: a measured time over one size, read between its points in log-log space. Pure values.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace infos {

/// Between points the logarithm of the time is linear in the logarithm of the size. Below the first
/// point the time is that point's (a floor: launching costs the same); beyond the last it grows in
/// proportion to the size (the work does).
class LogCurve {
 public:
  /// Replaces a point of the same size by the smaller time: of two measurements the one that was
  /// disturbed less. Requires: size > 0, seconds > 0.
  void add(double size, double seconds);
  /// Requires: not empty, size > 0.
  double at(double size) const;
  bool empty() const { return points_.empty(); }
  std::size_t points() const { return points_.size(); }
  double first_size() const { return points_.front().first; }
  double last_size() const { return points_.back().first; }

 private:
  std::vector<std::pair<double, double>> points_;  ///< by size
};

/// The two neighbours of `value` among ascending sizes, and the weight of the second in log space.
struct LogBracket {
  std::size_t low = 0, high = 0;
  double weight = 0;
};
/// Outside of the sizes both are the nearest. Requires: not empty, value > 0.
LogBracket log_bracket(const std::vector<double>& sizes, double value);

}  // namespace infos
