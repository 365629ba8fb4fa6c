// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/curve.h"

#include <algorithm>
#include <cmath>

#include "topology/base/check.h"

namespace infos {

void LogCurve::add(double size, double seconds) {
  INFOS_CHECK(size > 0 && seconds > 0);
  const auto at = std::ranges::lower_bound(points_, size, {}, &std::pair<double, double>::first);
  if (at != points_.end() && at->first == size)
    at->second = std::min(at->second, seconds);
  else
    points_.insert(at, {size, seconds});
}

double LogCurve::at(double size) const {
  INFOS_CHECK(!points_.empty() && size > 0);
  const auto above = std::ranges::lower_bound(points_, size, {}, &std::pair<double, double>::first);
  if (above == points_.begin()) return above->second;
  if (above == points_.end()) return points_.back().second * size / points_.back().first;
  if (above->first == size) return above->second;
  const auto below = above - 1;
  const double weight = std::log(size / below->first) / std::log(above->first / below->first);
  return below->second * std::pow(above->second / below->second, weight);
}

LogBracket log_bracket(const std::vector<double>& sizes, double value) {
  INFOS_CHECK(!sizes.empty() && value > 0);
  const auto above = std::ranges::lower_bound(sizes, value);
  const auto index = static_cast<std::size_t>(above - sizes.begin());
  if (above == sizes.begin()) return {0, 0, 0};
  if (above == sizes.end()) return {sizes.size() - 1, sizes.size() - 1, 0};
  if (*above == value) return {index, index, 0};
  const double low = sizes[index - 1];
  return {index - 1, index, std::log(value / low) / std::log(*above / low)};
}

}  // namespace infos
