// SPDX-License-Identifier: Apache-2.0
// The transport over RDMA verbs, found at run time: programs start without its library.
#pragma once

#include <memory>

#include "transports/rdma/rdma_options.h"
#include "transports/transport.h"

namespace infos {

/// Errors: unsupported (no libibverbs here, no device with an active port), io.
Result<std::unique_ptr<Transport>> make_verbs_transport(const RdmaOptions& options);

}  // namespace infos
