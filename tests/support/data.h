// SPDX-License-Identifier: Apache-2.0
// Where the shared test data lies. A test whose data is missing skips, visibly; under CI=true it
// fails instead.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace infos::test {

/// Absolute path of a file under INFOS_TEST_DATA (default: ../shared/data beside the repository).
inline std::string data_path(const std::string& relative) {
  const char* root = std::getenv("INFOS_TEST_DATA");
  const std::filesystem::path base = root ? root : INFOS_SOURCE_DIR "/../shared/data";
  return (base / relative).string();
}

inline bool in_ci() {
  const char* ci = std::getenv("CI");
  return ci && std::string(ci) == "true";
}

}  // namespace infos::test

/// At the top of a test that reads shared data.
#define INFOS_NEEDS_DATA(relative)                                                         \
  if (!std::filesystem::exists(::infos::test::data_path(relative))) {                      \
    if (::infos::test::in_ci()) FAIL() << "missing test data " << relative << " under CI"; \
    GTEST_SKIP() << "test data " << relative << " is not here (set INFOS_TEST_DATA)";      \
  }
