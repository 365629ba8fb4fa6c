// SPDX-License-Identifier: Apache-2.0
// The clock of every shell: CLOCK_MONOTONIC, one zero for all processes of a host. Any thread.
// Cores never read it.
#pragma once

#include <time.h>

#include "topology/base/units.h"

namespace infos {

inline Time monotonic_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return Time{static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec};
}

}  // namespace infos
