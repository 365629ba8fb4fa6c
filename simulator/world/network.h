// SPDX-License-Identifier: Apache-2.0
// Network: bytes under way between nodes. All flows share what they cross (each node's way out and
// in, or its memory within a node) max-min fair. Says when the next flow has all its bytes; knows
// nothing of what they mean.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "topology/base/units.h"

namespace infos {

class Network {
 public:
  Network(std::uint32_t nodes, Bandwidth link, Bandwidth memory);

  void start(Time now, std::uint64_t flow, std::uint32_t from, std::uint32_t to,
             std::uint64_t bytes);
  void stop(Time now, std::uint64_t flow);
  bool has(std::uint64_t flow) const { return flows_.contains(flow); }
  /// When the first flow ends, kNever if none is under way.
  Time next() const { return next_; }
  /// A flow that has ended by now, which is forgotten; 0: none.
  std::uint64_t take_ended(Time now);
  /// Bytes per second, for tests. Requires: has(flow).
  double rate(std::uint64_t flow) const { return flows_.at(flow).rate; }

 private:
  struct Flow {
    std::uint32_t resources[2] = {};  ///< that it crosses; the second may be the first again
    double left = 0;                  ///< bytes
    double rate = 0;                  ///< bytes per second
  };
  void advance(Time now);
  void share();

  std::vector<double> capacity_;  ///< [3 x nodes]: out, in, memory
  std::map<std::uint64_t, Flow> flows_;
  Time now_;
  Time next_ = kNever;
};

}  // namespace infos
