// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace infos {
namespace {
Error system_error(const std::string& path, const char* what) {
  const int code = errno;
  return {code == ENOENT || code == ENOTDIR ? ErrorCode::not_found : ErrorCode::io,
          fmt::format("{}: {}: {}", path, what, std::strerror(code))};
}
}  // namespace

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  AtomicFile file;
  file.path_ = path;
  // A name that nobody else has: another process's differ by its id, a leftover of a dead one is
  // passed over.
  static std::atomic<std::uint64_t> counter{0};
  constexpr int kTries = 100;
  for (int i = 0; i < kTries && file.fd_ < 0; ++i) {
    file.temporary_ = fmt::format("{}.tmp.{}.{}", path, ::getpid(), counter++);
    file.fd_ = ::open(file.temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file.fd_ < 0 && errno != EEXIST) break;
  }
  if (file.fd_ < 0) {
    file.temporary_.clear();  // not ours to remove
    return system_error(path, "cannot create a temporary file beside it");
  }
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::exchange(other.fd_, -1)),
      written_(other.written_) {}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  INFOS_CHECK(fd_ >= 0);
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(temporary_, "cannot write");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    written_ += static_cast<std::uint64_t>(n);
  }
  return {};
}

Status AtomicFile::commit() {
  INFOS_CHECK(fd_ >= 0);
  if (::fsync(fd_) != 0) return system_error(temporary_, "cannot sync");
  if (::close(std::exchange(fd_, -1)) != 0) return system_error(temporary_, "cannot close");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    return system_error(path_, "cannot rename into place");
  temporary_.clear();
  // The name itself is safe only when the directory is synced too.
  const auto parent = std::filesystem::path(path_).parent_path();
  const int directory =
      ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return system_error(parent.string(), "cannot open");
  const int synced = ::fsync(directory);
  ::close(directory);
  if (synced != 0) return system_error(parent.string(), "cannot sync");
  return {};
}

}  // namespace infos
