// SPDX-License-Identifier: Apache-2.0
// SharedFile: the memory of one shm transport that other processes can see: one sealed memfd with a
// head page, a table of grants and regions. Others open it read-only through /proc/PID/fd/N and
// know it by a nonce: that needs neither a common /dev/shm nor a socket, so it works across network
// and mount namespaces, leaves nothing behind when a process is killed, and a peer gone mad cannot
// write into us. Owner's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "topology/base/result.h"

namespace infos {

/// A file descriptor that closes itself.
class OwnFd {
 public:
  OwnFd() = default;
  explicit OwnFd(int fd) : fd_(fd) {}
  OwnFd(OwnFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnFd& operator=(OwnFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~OwnFd();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// 128 random bits: which transport of which process.
struct Nonce {
  std::uint64_t high = 0, low = 0;
  friend auto operator<=>(const Nonce&, const Nonce&) = default;
};
std::uint64_t random_64();

/// A grant as readers see it. The secret is written last and zeroed first.
struct GrantSlot {
  std::atomic<std::uint64_t> secret;
  std::atomic<std::uint64_t> offset;  ///< in the file
  std::atomic<std::uint64_t> bytes;
  std::atomic<std::uint64_t> access;
  std::uint64_t unused[4];
};
static_assert(sizeof(GrantSlot) == 64);

struct SharedHead {
  std::uint64_t magic;
  Nonce nonce;
  std::int32_t door_fd;  ///< the pipe that takes letters, in the owner's process
  std::uint32_t grant_slots;
  alignas(64) std::atomic<std::uint64_t> beat;    ///< grows while the owner makes progress
  alignas(64) std::atomic<std::uint32_t> closed;  ///< 1: the transport is gone
};

constexpr std::uint64_t kShmMagic = 0x31'6d'68'73'66'6e'69'01;
constexpr std::uint64_t kHeadBytes = 4096;
constexpr std::uint32_t kGrantSlots = 65'536;
constexpr std::uint64_t kFirstRegion = kHeadBytes + kGrantSlots * sizeof(GrantSlot);

class SharedFile {
 public:
  /// Errors: resource_exhausted, io.
  static Result<std::unique_ptr<SharedFile>> create(int door_fd);
  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  SharedHead& head() const { return *reinterpret_cast<SharedHead*>(base_); }
  GrantSlot& slot(std::uint32_t index) const {
    return reinterpret_cast<GrantSlot*>(base_ + kHeadBytes)[index];
  }
  int fd() const { return fd_.get(); }

  struct Range {
    std::uint64_t offset = 0;
    std::span<std::byte> memory;
  };
  /// Zeroed, page-aligned. Errors: resource_exhausted.
  Result<Range> allocate(std::uint64_t bytes);
  void free(const Range& range);

 private:
  explicit SharedFile(OwnFd fd) : fd_(std::move(fd)) {}
  std::uint64_t take(std::uint64_t bytes, std::uint64_t align);

  OwnFd fd_;
  std::byte* base_ = nullptr;
  std::uint64_t end_ = kFirstRegion;
  std::map<std::uint64_t, std::uint64_t> holes_;  ///< offset -> bytes, never adjacent
};

}  // namespace infos
