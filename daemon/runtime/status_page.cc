// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/status_page.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

namespace infos {
namespace {

Error io_error(const char* what) {
  return Error{ErrorCode::io, fmt::format("status page: {}: {}", what, ::strerror(errno))};
}

Result<infos_status_page*> map_page(int fd) {
  void* address =
      ::mmap(nullptr, sizeof(infos_status_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return io_error("mmap");
  return static_cast<infos_status_page*>(address);
}

}  // namespace

const char* to_string(WorkerPhase phase) {
  switch (phase) {
    case WorkerPhase::starting:
      return "starting";
    case WorkerPhase::loading:
      return "loading";
    case WorkerPhase::serving:
      return "serving";
    case WorkerPhase::draining:
      return "draining";
    case WorkerPhase::failed:
      return "failed";
  }
  return "unknown";
}

Result<StatusPage> StatusPage::create() {
  UniqueFd fd(::memfd_create("infos_status_page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return io_error("memfd_create");
  if (::ftruncate(fd.get(), sizeof(infos_status_page)) != 0) return io_error("ftruncate");
  // A worker gone mad must not be able to shorten the page under its reader (SIGBUS).
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return io_error("F_ADD_SEALS");
  infos_status_page* page = INFOS_TRY(map_page(fd.get()));
  page->magic.store(kStatusPageMagic);
  page->size.store(sizeof(infos_status_page));
  return StatusPage(std::move(fd), page);
}

Result<StatusPage> StatusPage::open(UniqueFd fd) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return io_error("fstat");
  if (info.st_size < static_cast<off_t>(sizeof(infos_status_page)))
    return Error{ErrorCode::corrupt, fmt::format("status page of {} bytes: want at least {}",
                                                 info.st_size, sizeof(infos_status_page))};
  infos_status_page* page = INFOS_TRY(map_page(fd.get()));
  StatusPage result(std::move(fd), page);
  if (page->magic.load() != kStatusPageMagic)
    return Error{ErrorCode::corrupt, fmt::format("status page with magic {:#x}: want {:#x}",
                                                 page->magic.load(), kStatusPageMagic)};
  return result;
}

StatusPage::StatusPage(StatusPage&& other) noexcept
    : fd_(std::move(other.fd_)), page_(std::exchange(other.page_, nullptr)) {}

StatusPage& StatusPage::operator=(StatusPage&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(page_, other.page_);
  return *this;
}

StatusPage::~StatusPage() {
  if (page_) ::munmap(page_, sizeof(infos_status_page));
}

WorkerPhase StatusPage::phase() const {
  const std::uint64_t word = page_->phase.load(std::memory_order_relaxed);
  return word <= static_cast<std::uint64_t>(WorkerPhase::failed) ? static_cast<WorkerPhase>(word)
                                                                 : WorkerPhase::failed;
}

void StatusPage::set_failure(std::string_view message) {
  const std::size_t length = std::min(message.size(), sizeof(page_->failure));
  ::memcpy(page_->failure, message.data(), length);
  page_->failure_bytes.store(length, std::memory_order_release);
}

std::string StatusPage::failure() const {
  const std::uint64_t length = page_->failure_bytes.load(std::memory_order_acquire);
  return std::string(page_->failure, std::min<std::uint64_t>(length, sizeof(page_->failure)));
}

}  // namespace infos
