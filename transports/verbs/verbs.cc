// SPDX-License-Identifier: Apache-2.0
#include "transports/verbs/verbs.h"

#include "transports/rdma/module.h"

namespace infos {

Result<std::unique_ptr<Transport>> make_verbs_transport(const RdmaOptions& options) {
  return make_from_module("verbs", options);
}

}  // namespace infos
