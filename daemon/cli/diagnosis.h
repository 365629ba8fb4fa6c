// SPDX-License-Identifier: Apache-2.0
// What doctor says of a machine: judgements over facts, each with what to do. Pure.
#pragma once

#include <string>
#include <vector>

#include "daemon/cli/machine.h"

namespace infos::cli {

enum class Health { ok, warn, fail };
const char* to_string(Health health);

struct Finding {
  std::string what;  ///< "memory"
  Health health = Health::ok;
  std::string seen;    ///< "3.1 GiB free of 7.7 GiB"
  std::string advice;  ///< what to do; empty when all is well
};

/// CPU, cores, memory, huge pages, limits, shared memory, clock.
std::vector<Finding> judge_machine(const MachineFacts& facts);

}  // namespace infos::cli
