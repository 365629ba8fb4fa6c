// SPDX-License-Identifier: Apache-2.0
// Random numbers that are the same on every machine: a seeded sequential generator (xoshiro256**)
// for decisions and simulation, and a counter-based one (Philox) where a draw must depend on its
// key alone. Never std::*_distribution.
#pragma once

#include <array>
#include <cstdint>

namespace infos {

/// xoshiro256** seeded through splitmix64. Source: Blackman and Vigna, https://prng.di.unimi.it
/// (public domain).
class Rng {
 public:
  explicit Rng(std::uint64_t seed);
  /// A uniform 64-bit number.
  std::uint64_t next();
  /// Uniform in [0, bound). Requires: bound > 0.
  std::uint64_t below(std::uint64_t bound);
  /// Uniform in [0, 1), 53 bits.
  double uniform();
  /// True with probability p.
  bool chance(double p) { return uniform() < p; }
  /// Exponential with the given mean.
  double exponential(double mean);
  /// A generator that is independent of this one's later draws.
  Rng fork() { return Rng(next()); }

 private:
  std::array<std::uint64_t, 4> state_;
};

/// Philox4x32-10: a pure function of (key, counter). Source: Salmon et al., SC 2011.
std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_low,
                                    std::uint64_t counter_high);

/// Uniform in [0, 1) that depends on (seed, position, stream) alone: the draw of one sampling step.
double counter_uniform(std::uint64_t seed, std::uint64_t position, std::uint64_t stream);

}  // namespace infos
