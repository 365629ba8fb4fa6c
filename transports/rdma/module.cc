// SPDX-License-Identifier: Apache-2.0
#include "transports/rdma/module.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

namespace infos {

namespace {

std::string module_path(const std::string& name) {
  const std::string file = fmt::format("libinfos_transport_{}.so", name);
  std::error_code error;
  std::vector<std::filesystem::path> places;
  if (const char* given = std::getenv("INFOS_PLUGIN_DIR")) places.emplace_back(given);
  places.push_back(std::filesystem::read_symlink("/proc/self/exe", error).parent_path() /
                   "../lib/infos");
  for (const auto& place : places)
    if (std::filesystem::exists(place / file, error)) return place / file;
  return places.back() / file;
}

/// Libraries that install handlers for crashes while they load (UCX does) lose them here.
class KeepSignals {
 public:
  KeepSignals() {
    for (std::size_t i = 0; i < std::size(kSignals); ++i)
      ::sigaction(kSignals[i], nullptr, &kept_[i]);
  }
  ~KeepSignals() {
    for (std::size_t i = 0; i < std::size(kSignals); ++i)
      ::sigaction(kSignals[i], &kept_[i], nullptr);
  }

 private:
  static constexpr int kSignals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
  struct sigaction kept_[std::size(kSignals)] = {};
};

}  // namespace

Result<std::unique_ptr<Transport>> make_from_module(const std::string& name,
                                                    const RdmaOptions& options) {
  const std::string path = module_path(name);
  const KeepSignals keep;
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (module == nullptr)
    return Error{ErrorCode::unsupported, fmt::format("{} transport: {}", name, ::dlerror())};
  const auto make = reinterpret_cast<MakeFromModule>(::dlsym(module, kModuleSymbol));
  if (make == nullptr)
    return Error{ErrorCode::unsupported,
                 fmt::format("{} transport: {} has no {}", name, path, kModuleSymbol)};
  Result<std::unique_ptr<Transport>> result(
      Error{ErrorCode::unsupported, name + " transport: made nothing"});
  make(options, result);
  return result;
}

}  // namespace infos
