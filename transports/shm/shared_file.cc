// SPDX-License-Identifier: Apache-2.0
#include "transports/shm/shared_file.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "topology/base/check.h"

namespace infos {
namespace {

constexpr std::uint64_t kPage = 4096, kHuge = 2u << 20;
constexpr std::uint64_t kFileBytesMax = std::uint64_t{1} << 44;

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

Error exhausted(const char* what, std::uint64_t bytes) {
  return {ErrorCode::resource_exhausted, "shared memory: cannot " + std::string(what) + " " +
                                             std::to_string(bytes) +
                                             " bytes: " + std::strerror(errno)};
}

}  // namespace

OwnFd::~OwnFd() {
  if (fd_ >= 0) close(fd_);
}

std::uint64_t random_64() {
  std::uint64_t value = 0;
  while (value == 0) INFOS_CHECK(getrandom(&value, sizeof value, 0) == sizeof value);
  return value;
}

Result<std::unique_ptr<SharedFile>> SharedFile::create(int door_fd) {
  OwnFd fd(memfd_create("infos", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return Error{ErrorCode::io, std::string("memfd_create: ") + std::strerror(errno)};
  // It never shrinks: whoever maps it need not fear a bus error.
  INFOS_CHECK(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  if (ftruncate(fd.get(), kFirstRegion) != 0) return exhausted("make", kFirstRegion);
  std::unique_ptr<SharedFile> file(new SharedFile(std::move(fd)));
  void* base = mmap(nullptr, kFirstRegion, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd_.get(), 0);
  if (base == MAP_FAILED) return exhausted("map", kFirstRegion);
  file->base_ = static_cast<std::byte*>(base);
  SharedHead& head = file->head();
  head.nonce = {random_64(), random_64()};
  head.door_fd = door_fd;
  head.grant_slots = kGrantSlots;
  head.magic = kShmMagic;
  return file;
}

SharedFile::~SharedFile() {
  if (base_ == nullptr) return;
  head().closed.store(1, std::memory_order_release);
  munmap(base_, kFirstRegion);
}

std::uint64_t SharedFile::take(std::uint64_t bytes, std::uint64_t align) {
  for (auto at = holes_.begin(); at != holes_.end(); ++at) {
    const auto [offset, size] = *at;
    const std::uint64_t begin = round_up(offset, align);
    if (begin + bytes > offset + size) continue;
    holes_.erase(at);
    if (begin > offset) holes_[offset] = begin - offset;
    if (begin + bytes < offset + size) holes_[begin + bytes] = offset + size - begin - bytes;
    return begin;
  }
  const std::uint64_t begin = round_up(end_, align);
  if (begin > end_) holes_[end_] = begin - end_;
  return begin;
}

Result<SharedFile::Range> SharedFile::allocate(std::uint64_t bytes) {
  if (bytes == 0 || bytes > kFileBytesMax) {
    errno = EINVAL;
    return exhausted("allocate", bytes);
  }
  const std::uint64_t size = round_up(bytes, kPage), align = bytes >= kHuge ? kHuge : kPage;
  const std::uint64_t offset = take(size, align);
  Range range{offset, {}};
  const std::uint64_t end = std::max(end_, offset + size);
  if (end > end_ && ftruncate(fd_.get(), static_cast<off_t>(end)) != 0) {
    end_ = std::max(end_, offset);  // a hole before it was noted
    return exhausted("allocate", bytes);
  }
  end_ = end;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(),
                      static_cast<off_t>(offset));
  if (memory == MAP_FAILED) {
    const Error error = exhausted("map", bytes);
    holes_[offset] = size;
    return error;
  }
  if (bytes >= kHuge) madvise(memory, size, MADV_HUGEPAGE);
  range.memory = {static_cast<std::byte*>(memory), bytes};
  return range;
}

void SharedFile::free(const Range& range) {
  const std::uint64_t size = round_up(range.memory.size(), kPage);
  munmap(range.memory.data(), size);
  // Gives the pages back and makes them zero for who comes next.
  INFOS_CHECK(fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        static_cast<off_t>(range.offset), static_cast<off_t>(size)) == 0);
  std::uint64_t begin = range.offset, end = begin + size;
  auto next = holes_.lower_bound(begin);
  if (next != holes_.end() && next->first == end) {
    end += next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      holes_.erase(before);
    }
  }
  holes_[begin] = end - begin;
}

}  // namespace infos
