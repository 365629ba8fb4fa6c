// SPDX-License-Identifier: Apache-2.0
// A directory of one test's own, removed with it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace infos::test {

class TempDirectory {
 public:
  TempDirectory() : path_((std::filesystem::temp_directory_path() / "infos-test-XXXXXX").string()) {
    if (!::mkdtemp(path_.data())) ADD_FAILURE() << "cannot make " << path_;
  }
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name), std::ios::binary) << text;
  }

 private:
  std::string path_;
};

}  // namespace infos::test
