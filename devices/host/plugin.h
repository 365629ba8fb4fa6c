// SPDX-License-Identifier: Apache-2.0
// Plugins: finds backends by name or file, opens them through devices/abi/infos_device.h and
// negotiates versions. A plugin that was loaded stays loaded until the process ends: vendor
// libraries rarely survive dlclose. Any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "devices/abi/infos_device.h"
#include "topology/base/result.h"

namespace infos {

using PluginQuery = infos_code (*)(std::uint32_t host_abi, const infos_host_api* host,
                                   infos_plugin_api* out, infos_error* error);

/// A backend's table, with every function that this host needs present. Lives as long as the
/// process.
class Plugin {
 public:
  const infos_plugin_api& api() const { return api_; }
  PluginQuery query() const { return query_; }
  std::string name() const { return api_.name; }
  std::string build() const { return api_.build; }
  /// The file, or "(built in)".
  const std::string& path() const { return path_; }

 private:
  friend Result<std::unique_ptr<const Plugin>> open_query(PluginQuery query,
                                                          const std::string& path);
  infos_plugin_api api_{};
  PluginQuery query_ = nullptr;
  std::string path_;
};

/// Makes a query function known as `name`, to be found before any file. Call before threads start.
void register_plugin(const std::string& name, PluginQuery query);

/// `name_or_path`: a registered name; or a path (it has a '/' or ends in ".so"); or a name, for
/// which libinfos_NAME.so is sought in $INFOS_PLUGIN_DIR, then in ../lib/infos beside the
/// executable. The same plugin twice gives the same object. Errors: not_found (names the places
/// that were tried), unsupported (versions or features do not meet), corrupt (not a plugin, or a
/// table with holes).
Result<const Plugin*> find_plugin(const std::string& name_or_path);

/// Where find_plugin looks for a file of this name, in order.
std::vector<std::string> plugin_search_paths(const std::string& name);

/// Calls a query function and checks what it gives. What find_plugin does with each candidate.
Result<std::unique_ptr<const Plugin>> open_query(PluginQuery query, const std::string& path);

/// An infos_code and its infos_error as an Error; `what` names the call.
Error plugin_error(infos_code code, const infos_error& error, const std::string& what);

}  // namespace infos
