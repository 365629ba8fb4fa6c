// SPDX-License-Identifier: Apache-2.0
// The transport over UCX, found at run time: programs start without its library.
#pragma once

#include <memory>

#include "transports/rdma/rdma_options.h"
#include "transports/transport.h"

namespace infos {

/// Errors: unsupported (no UCX here, no device of that name), invalid_argument (plain text off
/// loopback without leave), io.
Result<std::unique_ptr<Transport>> make_ucx_transport(const RdmaOptions& options);

}  // namespace infos
