// SPDX-License-Identifier: Apache-2.0
// What this machine can do at most, measured now: a loop that only reads memory, and loops that
// only multiply and add. Benchmarks state their figures as fractions of these. Takes about a
// second; uses `threads` threads.
#pragma once

#include <cstdint>

namespace infos {

struct MachineLimits {
  double read_bytes_per_second = 0;  ///< best of ten passes over 1 GiB
  double f32_flops = 0;              ///< fused multiply-adds counted as two
  double int8_ops = 0;               ///< 8-bit dot products, likewise
};
MachineLimits measure_limits(std::uint32_t threads);

}  // namespace infos
