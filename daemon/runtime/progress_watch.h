// SPDX-License-Identifier: Apache-2.0
// Tells a busy worker from a hung one by what its status page and the kernel say of it. Pure.
#pragma once

#include <cstdint>

#include "topology/base/units.h"

namespace infos {

/// What can be seen of a worker process without asking it.
struct ProgressSample {
  std::uint64_t beat = 0;
  std::uint64_t steps = 0;
  std::uint64_t loaded_bytes = 0;
  Time step_started{0};  ///< 0: no step is running
  Duration cpu_time{0};  ///< of all its threads
};

class ProgressWatch {
 public:
  /// A step may run this long as long as it uses the processor; a thread pool that spins for ever
  /// looks busy too.
  explicit ProgressWatch(Duration step_limit) : step_limit_(step_limit) {}

  /// True when the worker moved since the last sample: its loop turned, it loaded, or the step that
  /// it runs used the processor and is not older than the limit.
  bool moved(Time now, const ProgressSample& sample) {
    const bool turned = sample.beat != last_.beat || sample.steps != last_.steps;
    const bool loaded = sample.loaded_bytes != last_.loaded_bytes;
    const bool steps_now = sample.step_started.ns != 0 && now - sample.step_started < step_limit_;
    const bool computed = steps_now && sample.cpu_time > last_.cpu_time;
    last_ = sample;
    return turned || loaded || computed;
  }

 private:
  Duration step_limit_;
  ProgressSample last_;
};

}  // namespace infos
