// SPDX-License-Identifier: Apache-2.0
// Workload: draws what clients ask, one arrival after the other, from a seed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/gateway_core.h"
#include "simulator/world/run.h"
#include "topology/base/rng.h"

namespace infos {

class Workload {
 public:
  Workload(const WorkloadFigures& figures, std::uint32_t max_context, std::uint64_t seed);
  /// Time from the arrival before to the next one; none: that was the last.
  std::optional<Duration> gap();
  /// The next request.
  Arrive next(Time now);

 private:
  std::uint32_t between(std::uint32_t low, std::uint32_t high) {
    return low +
           static_cast<std::uint32_t>(rng_.below(std::uint64_t{high > low ? high - low : 0} + 1));
  }
  WorkloadFigures figures_;
  std::uint32_t max_context_;
  Rng rng_;
  std::vector<std::vector<TokenId>> prefixes_;
  std::uint64_t asked_ = 0;
};

}  // namespace infos
