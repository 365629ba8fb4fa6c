// SPDX-License-Identifier: Apache-2.0
// A file that appears under its name only when it is whole: written beside it, synced, renamed.
// Owns the descriptor and the temporary file, which goes when commit() was not reached. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "topology/base/result.h"

namespace infos {

class AtomicFile {
 public:
  /// Errors: io, not_found, naming the path.
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text) { return write(std::as_bytes(std::span(text))); }
  std::uint64_t written() const { return written_; }
  /// Replaces what had the name. After it, write() is not allowed.
  Status commit();

 private:
  AtomicFile() = default;
  std::string path_, temporary_;
  int fd_ = -1;
  std::uint64_t written_ = 0;
};

}  // namespace infos
