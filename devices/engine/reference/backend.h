// SPDX-License-Identifier: Apache-2.0
// The reference backend behind the device ABI: slow, obvious, and what every other backend is
// compared with.
#pragma once

#include "devices/abi/infos_device.h"

namespace infos::reference {

/// An infos_plugin_query. Device options: "precision=f64" (default) or "precision=f32".
infos_code plugin_query(uint32_t host_abi, const infos_host_api* host, infos_plugin_api* out,
                        infos_error* error);

}  // namespace infos::reference
