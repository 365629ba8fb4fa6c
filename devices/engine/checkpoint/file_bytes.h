// SPDX-License-Identifier: Apache-2.0
// The bytes of one file: mapped read-only, or owned (tests, fuzzing). Owns the mapping; any thread
// may read. Never follows what the bytes say: parsers do.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "topology/base/result.h"
#include "topology/base/units.h"

namespace infos {

class FileBytes {
 public:
  /// Maps a regular file.
  /// Errors: not_found, io, invalid_argument (a directory, a device); each names the path.
  static Result<FileBytes> map(const std::string& path);
  /// Takes the bytes as they are.
  static FileBytes own(std::vector<std::byte> bytes);

  FileBytes() = default;
  FileBytes(FileBytes&& other) noexcept;
  FileBytes& operator=(FileBytes&& other) noexcept;
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;
  ~FileBytes();

  /// Lives, at the same address, until this object and those moved from it are gone.
  std::span<const std::byte> bytes() const { return view_; }

 private:
  void release();
  std::vector<std::byte> owned_;
  std::span<const std::byte> view_;
  bool mapped_ = false;
};

/// Reads a whole small text file.
/// Errors: as FileBytes::map, and invalid_argument when it is larger than `limit`.
Result<std::string> read_text_file(const std::string& path, Bytes limit);

}  // namespace infos
