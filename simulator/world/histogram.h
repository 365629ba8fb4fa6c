// SPDX-License-Identifier: Apache-2.0
// Counts durations in buckets of at most 1.6 % relative width: percentiles of any number of samples
// in fixed memory.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "simulator/world/run.h"
#include "topology/base/units.h"

namespace infos {

class Histogram {
 public:
  void add(Duration d) {
    const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(d.ns, 0));
    ++buckets_[bucket(ns)];
    ++count_;
    sum_ += static_cast<double>(ns);
    max_ = std::max(max_, ns);
  }
  Percentiles percentiles() const {
    Percentiles p;
    p.count = count_;
    if (count_ == 0) return p;
    p.mean_ms = sum_ / static_cast<double>(count_) * 1e-6;
    p.p50_ms = quantile(0.50), p.p90_ms = quantile(0.90), p.p99_ms = quantile(0.99);
    p.max_ms = static_cast<double>(max_) * 1e-6;
    return p;
  }

 private:
  static constexpr int kSubBits = 6;
  static std::size_t bucket(std::uint64_t ns) {
    const int width = std::bit_width(ns);
    if (width <= kSubBits + 1) return ns;
    const int shift = width - kSubBits - 1;
    return (static_cast<std::size_t>(shift) << kSubBits) + (ns >> shift);
  }
  /// Milliseconds at the middle of a bucket.
  static double middle(std::size_t at) {
    if (at < (2U << kSubBits)) return static_cast<double>(at) * 1e-6;
    const std::size_t shift = (at >> kSubBits) - 1;
    const double low = static_cast<double>(at - (shift << kSubBits));
    return (low + 0.5) * static_cast<double>(1ULL << shift) * 1e-6;
  }
  double quantile(double q) const {
    const auto rank = static_cast<std::uint64_t>(q * static_cast<double>(count_ - 1)) + 1;
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      seen += buckets_[i];
      if (seen >= rank) return std::min(middle(i), static_cast<double>(max_) * 1e-6);
    }
    return static_cast<double>(max_) * 1e-6;
  }

  std::array<std::uint64_t, (64 << kSubBits)> buckets_{};
  std::uint64_t count_ = 0;
  double sum_ = 0;
  std::uint64_t max_ = 0;
};

}  // namespace infos
