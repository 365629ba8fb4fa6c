// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/places.h"

#include <cstdlib>
#include <filesystem>

namespace infos::cli {

namespace fs = std::filesystem;

std::string executable_folder() {
  std::error_code failed;
  const fs::path self = fs::read_symlink("/proc/self/exe", failed);
  return failed ? "." : self.parent_path().string();
}

std::string infosd_path() { return executable_folder() + "/infosd"; }

std::vector<std::string> demo_model_places() {
  if (const char* given = std::getenv("INFOS_DEMO_MODEL"); given && *given) return {given};
  const fs::path folder = executable_folder();
  return {(folder.parent_path() / "share/infos/infos-demo.gguf").string(),
          (folder / "../../../configs/demo/infos-demo.gguf").lexically_normal().string()};
}

std::string find_demo_model() {
  std::error_code ignored;
  for (const std::string& place : demo_model_places())
    if (fs::exists(place, ignored)) return place;
  return "";
}

}  // namespace infos::cli
