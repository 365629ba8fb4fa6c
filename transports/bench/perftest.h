// SPDX-License-Identifier: Apache-2.0
// Runs ucx_perftest, when it is installed, for a figure to compare with. Starts two processes of it
// on loopback.
#pragma once

#include <cstdint>
#include <string>

#include "topology/base/result.h"

namespace infos::bench {

struct PerftestOptions {
  std::string transports;  ///< UCX_TLS, "posix,self" or "tcp,self"
  std::string test;        ///< "ucp_put_bw"
  std::uint64_t bytes = 0;
  std::uint64_t iterations = 0;
};
/// Returns: bytes/s. Errors: not_found (no ucx_perftest), io (it failed or said nothing).
Result<double> perftest_rate(const PerftestOptions& options);

}  // namespace infos::bench
