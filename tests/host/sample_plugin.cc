// SPDX-License-Identifier: Apache-2.0
// A plugin as a vendor would ship it: a shared object with the one exported symbol, here around the
// reference backend.
#include "devices/engine/reference/backend.h"

extern "C" __attribute__((visibility("default"))) infos_code infos_plugin_query(
    uint32_t host_abi, const infos_host_api* host, infos_plugin_api* out, infos_error* error) {
  const infos_code code = infos::reference::plugin_query(host_abi, host, out, error);
  if (code == INFOS_OK) out->name = "sample";
  return code;
}
