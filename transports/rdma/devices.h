// SPDX-License-Identifier: Apache-2.0
// What RDMA devices this machine has, read from /sys alone: no library is needed to ask.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/base/result.h"

namespace infos {

struct RdmaDevice {
  std::string name;  ///< "mlx5_0", "rxe0"
  std::uint8_t port = 1;
  bool ethernet = false;  ///< RoCE; else InfiniBand
  std::uint8_t gid_index = 0;
  std::string address;  ///< of the interface behind a RoCE v2 GID; "" on InfiniBand
  std::string rate;     ///< as the kernel prints it: "100 Gb/sec (4X EDR)"
};

/// Ports that are active, in the order of their names.
std::vector<RdmaDevice> rdma_devices(const std::string& root = "/sys/class/infiniband");

/// The named one, or the first. Errors: unsupported, naming what there is.
Result<RdmaDevice> find_rdma_device(const std::string& name,
                                    const std::string& root = "/sys/class/infiniband");

}  // namespace infos
