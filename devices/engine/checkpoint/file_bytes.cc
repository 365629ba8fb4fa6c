// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/file_bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace infos {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Error system_error(const std::string& path, const char* what) {
  const int code = errno;
  const auto kind = code == ENOENT || code == ENOTDIR ? ErrorCode::not_found : ErrorCode::io;
  return {kind, fmt::format("{}: {}: {}", path, what, std::strerror(code))};
}

}  // namespace

Result<FileBytes> FileBytes::map(const std::string& path) {
  // O_NONBLOCK: a FIFO must not hang the open before its kind is known.
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return system_error(path, "cannot open");
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return system_error(path, "cannot stat");
  if (!S_ISREG(info.st_mode))
    return Error{ErrorCode::invalid_argument, fmt::format("{}: is not a regular file", path)};
  FileBytes file;
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return file;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) return system_error(path, "cannot map");
  file.view_ = {static_cast<const std::byte*>(address), size};
  file.mapped_ = true;
  return file;
}

FileBytes FileBytes::own(std::vector<std::byte> bytes) {
  FileBytes file;
  file.owned_ = std::move(bytes);
  file.view_ = file.owned_;
  return file;
}

FileBytes::FileBytes(FileBytes&& other) noexcept { *this = std::move(other); }

FileBytes& FileBytes::operator=(FileBytes&& other) noexcept {
  if (this == &other) return *this;
  release();
  owned_ = std::move(other.owned_);  // a moved vector keeps its storage, so the view stays right
  view_ = std::exchange(other.view_, {});
  mapped_ = std::exchange(other.mapped_, false);
  return *this;
}

FileBytes::~FileBytes() { release(); }

void FileBytes::release() {
  if (mapped_) ::munmap(const_cast<std::byte*>(view_.data()), view_.size());
  mapped_ = false;
  view_ = {};
}

Result<std::string> read_text_file(const std::string& path, Bytes limit) {
  const FileBytes file = INFOS_TRY(FileBytes::map(path));
  const auto bytes = file.bytes();
  if (bytes.size() > limit.value)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{}: has {} bytes: want at most {}", path, bytes.size(), limit.value)};
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace infos
