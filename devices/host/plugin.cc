// SPDX-License-Identifier: Apache-2.0
#include "devices/host/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>

#include "topology/base/log.h"

namespace infos {

namespace {

/// Everything that was registered or loaded in this process. Plugins are opened rarely, so one
/// mutex does.
struct Registry {
  std::mutex mutex;
  std::map<std::string, PluginQuery> registered;
  std::map<std::string, const Plugin*> loaded;  // by registered name or canonical path
  std::vector<std::unique_ptr<const Plugin>> owned;
};
Registry& registry() {
  static Registry* instance =
      new Registry;  // never destroyed: plugins may log while the process ends
  return *instance;
}

void host_log(void*, int level, const char* message) {
  static constexpr LogLevel kLevels[] = {LogLevel::debug, LogLevel::info, LogLevel::warn,
                                         LogLevel::error};
  log_line(kLevels[std::clamp(level, 0, 3)], "plugin", message != nullptr ? message : "");
}

const infos_host_api& host_api() {
  static const infos_host_api api = {sizeof(infos_host_api), INFOS_ABI_VERSION, nullptr, host_log};
  return api;
}

ErrorCode code_of(infos_code code) {
  switch (code) {
    case INFOS_OK:
    case INFOS_INVALID:
      return ErrorCode::invalid_argument;
    case INFOS_UNSUPPORTED:
      return ErrorCode::unsupported;
    case INFOS_EXHAUSTED:
      return ErrorCode::resource_exhausted;
    case INFOS_FAILED:
      return ErrorCode::unavailable;
    case INFOS_DEADLINE:
      return ErrorCode::deadline_exceeded;
    case INFOS_CANCELLED:
      return ErrorCode::cancelled;
    case INFOS_CORRUPT:
      return ErrorCode::corrupt;
  }
  return ErrorCode::unavailable;
}

/// The first function that this host calls and the table lacks.
const char* missing_function(const infos_plugin_api& api) {
#define INFOS_NEEDS(function) \
  if (api.function == nullptr) return #function;
  INFOS_NEEDS(enumerate)
  INFOS_NEEDS(describe)
  INFOS_NEEDS(open)
  INFOS_NEEDS(close)
  INFOS_NEEDS(health)
  INFOS_NEEDS(compile_begin)
  INFOS_NEEDS(compile_poll)
  INFOS_NEEDS(compile_cancel)
  INFOS_NEEDS(compile_take)
  INFOS_NEEDS(artifact_serialize)
  INFOS_NEEDS(artifact_deserialize)
  INFOS_NEEDS(artifact_compat)
  INFOS_NEEDS(artifact_destroy)
  INFOS_NEEDS(load)
  INFOS_NEEDS(unload)
  INFOS_NEEDS(execute)
  INFOS_NEEDS(cancel)
  INFOS_NEEDS(kv_create)
  INFOS_NEEDS(kv_layout)
  INFOS_NEEDS(kv_destroy)
#undef INFOS_NEEDS
  return nullptr;
}

Result<std::unique_ptr<const Plugin>> load_file(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return Error{ErrorCode::corrupt, fmt::format("{} cannot be loaded: {}", path,
                                                 why != nullptr ? why : "no reason given")};
  }
  void* symbol = dlsym(library, "infos_plugin_query");
  if (symbol == nullptr) {
    dlclose(library);
    return Error{ErrorCode::corrupt,
                 fmt::format("{} is not an infos plugin: it exports no infos_plugin_query", path)};
  }
  return open_query(reinterpret_cast<PluginQuery>(symbol), path);
}

const Plugin* own(const std::string& key, std::unique_ptr<const Plugin> plugin) {
  registry().owned.push_back(std::move(plugin));
  return registry().loaded[key] = registry().owned.back().get();
}

bool looks_like_path(const std::string& name) {
  return name.find('/') != std::string::npos ||
         (name.size() > 3 && name.substr(name.size() - 3) == ".so");
}

}  // namespace

Error plugin_error(infos_code code, const infos_error& error, const std::string& what) {
  const std::size_t n = strnlen(error.message, sizeof error.message);
  const std::string message(error.message, n);
  return {code_of(code), message.empty() ? fmt::format("{}: failed with code {}, no reason given",
                                                       what, static_cast<int>(code))
                                         : fmt::format("{}: {}", what, message)};
}

Result<std::unique_ptr<const Plugin>> open_query(PluginQuery query, const std::string& path) {
  // Room beyond our own table, so that a newer plugin that ignores the room it is given does no
  // harm.
  union {
    infos_plugin_api api;
    std::byte room[4096];
  } filled;
  std::memset(&filled, 0, sizeof filled);
  filled.api.struct_size = sizeof(infos_plugin_api);
  infos_error error{};
  const infos_code code = query(INFOS_ABI_VERSION, &host_api(), &filled.api, &error);
  if (code != INFOS_OK) return plugin_error(code, error, path);
  auto plugin = std::make_unique<Plugin>();
  const std::size_t known = std::min<std::size_t>(filled.api.struct_size, sizeof(infos_plugin_api));
  std::memcpy(&plugin->api_, &filled.api, known);
  plugin->query_ = query;
  plugin->path_ = path;
  const infos_plugin_api& api = plugin->api_;
  if (api.abi_version < INFOS_ABI_VERSION_MIN || api.abi_version > INFOS_ABI_VERSION + 1)
    return Error{ErrorCode::unsupported,
                 fmt::format("{} speaks device ABI {}: this host works with {} to {}", path,
                             api.abi_version, INFOS_ABI_VERSION_MIN, INFOS_ABI_VERSION + 1)};
  if (api.required_features != 0)
    return Error{ErrorCode::unsupported,
                 fmt::format("{} requires host features {:#x}: this host has none of them", path,
                             api.required_features)};
  if (api.name == nullptr || api.build == nullptr)
    return Error{ErrorCode::corrupt, fmt::format("{} gives no name or no build", path)};
  if (const char* missing = missing_function(api))
    return Error{ErrorCode::corrupt,
                 fmt::format("{} ({}) has no function '{}'", path, api.name, missing)};
  return std::unique_ptr<const Plugin>(std::move(plugin));
}

void register_plugin(const std::string& name, PluginQuery query) {
  const std::lock_guard lock(registry().mutex);
  registry().registered[name] = query;
}

std::vector<std::string> plugin_search_paths(const std::string& name) {
  const std::string file = "libinfos_" + name + ".so";
  std::vector<std::string> paths;
  if (const char* dir = std::getenv("INFOS_PLUGIN_DIR"); dir != nullptr && *dir != 0)
    paths.push_back((std::filesystem::path(dir) / file).string());
  std::error_code ignored;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  if (!self.empty())
    paths.push_back(
        (self.parent_path() / ".." / "lib" / "infos" / file).lexically_normal().string());
  return paths;
}

Result<const Plugin*> find_plugin(const std::string& name_or_path) {
  const std::lock_guard lock(registry().mutex);
  auto& loaded = registry().loaded;
  if (const auto it = registry().registered.find(name_or_path); it != registry().registered.end()) {
    const auto known = loaded.find(name_or_path);
    if (known != loaded.end()) return known->second;
    return own(name_or_path, INFOS_TRY(open_query(it->second, "(built in)")));
  }
  const bool is_path = looks_like_path(name_or_path);
  const auto paths =
      is_path ? std::vector<std::string>{name_or_path} : plugin_search_paths(name_or_path);
  std::string tried;
  for (const std::string& path : paths) {
    std::error_code missing;
    const auto canonical = std::filesystem::canonical(path, missing);
    if (missing) {
      tried += (tried.empty() ? "" : ", ") + path;
      continue;
    }
    if (const auto known = loaded.find(canonical.string()); known != loaded.end())
      return known->second;
    return own(canonical.string(), INFOS_TRY(load_file(canonical.string())));
  }
  std::string names;
  for (const auto& [name, query] : registry().registered)
    names += (names.empty() ? "" : ", ") + name;
  return Error{ErrorCode::not_found, fmt::format("backend '{}' is not here: tried {}{}{}",
                                                 name_or_path, tried.empty() ? "no file" : tried,
                                                 names.empty() ? "" : "; built in: ", names)};
}

}  // namespace infos
