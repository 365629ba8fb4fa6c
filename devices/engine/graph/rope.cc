// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/graph/rope.h"

#include <cmath>
#include <numbers>

#include "topology/base/check.h"

namespace infos {

namespace {
double stretched(double frequency, const RopeScaling& scaling, std::size_t pair) {
  switch (scaling.kind) {
    case RopeScaling::Kind::none:
      return frequency;
    case RopeScaling::Kind::linear:
      return frequency / scaling.factor;
    case RopeScaling::Kind::table:
      return frequency / static_cast<double>(scaling.divisors[pair]);
    case RopeScaling::Kind::llama3:
      break;
  }
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  if (wavelength < scaling.original_context / scaling.high_freq_factor) return frequency;
  if (wavelength > scaling.original_context / scaling.low_freq_factor)
    return frequency / scaling.factor;
  const double smooth = (scaling.original_context / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0 - smooth) * frequency / scaling.factor + smooth * frequency;
}
}  // namespace

std::vector<float> rope_frequencies(const ModelConfig& config) {
  const std::size_t pairs = config.head_dim / 2;
  const bool table = config.rope_scaling.kind == RopeScaling::Kind::table;
  INFOS_CHECK(!table || config.rope_scaling.divisors.size() == pairs);
  std::vector<float> out(pairs);
  for (std::size_t i = 0; i < pairs; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim);
    const double frequency = std::pow(config.rope_theta, exponent);
    out[i] = static_cast<float>(stretched(frequency, config.rope_scaling, i));
  }
  return out;
}

}  // namespace infos
