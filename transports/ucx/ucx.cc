// SPDX-License-Identifier: Apache-2.0
#include "transports/ucx/ucx.h"

#include "transports/rdma/module.h"

namespace infos {

Result<std::unique_ptr<Transport>> make_ucx_transport(const RdmaOptions& options) {
  return make_from_module("ucx", options);
}

}  // namespace infos
