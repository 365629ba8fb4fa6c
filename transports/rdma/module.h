// SPDX-License-Identifier: Apache-2.0
// Transports whose libraries may be absent live in modules of their own, so that every program
// starts without them: lib/infos/libinfos_transport_NAME.so, loaded at the first use, never
// unloaded.
#pragma once

#include <memory>
#include <string>

#include "topology/base/result.h"
#include "transports/rdma/rdma_options.h"
#include "transports/transport.h"

namespace infos {

/// Sought in $INFOS_PLUGIN_DIR, then in ../lib/infos beside the program.
/// Errors: unsupported (no module, its library is absent, or no device), and the module's own.
Result<std::unique_ptr<Transport>> make_from_module(const std::string& name,
                                                    const RdmaOptions& options);

/// The one symbol of a module.
using MakeFromModule = void (*)(const RdmaOptions& options,
                                Result<std::unique_ptr<Transport>>& result);
inline constexpr const char* kModuleSymbol = "infos_make_transport";

}  // namespace infos
