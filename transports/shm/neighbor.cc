// SPDX-License-Identifier: Apache-2.0
#include "transports/shm/neighbor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

namespace infos {
namespace {

constexpr char kKind[] = "shm 1 ";
constexpr std::uint64_t kMappedBytesMin = 64u << 20;

OwnFd open_of(int pid, int fd, int flags) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
  return OwnFd(open(path, flags | O_CLOEXEC));
}

template <typename T>
bool take_number(std::string_view& text, T& value, int base) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return true;
}

}  // namespace

std::string to_text(const ShmPlace& place) {
  char text[128];
  std::snprintf(text, sizeof text, "%s%d %d %016llx %016llx", kKind, place.pid, place.file_fd,
                static_cast<unsigned long long>(place.nonce.high),
                static_cast<unsigned long long>(place.nonce.low));
  return text;
}

Result<ShmPlace> parse_place(std::string_view text) {
  ShmPlace place;
  std::string_view rest = text;
  const bool ok = rest.starts_with(kKind) && (rest.remove_prefix(sizeof kKind - 1), true) &&
                  take_number(rest, place.pid, 10) && take_number(rest, place.file_fd, 10) &&
                  take_number(rest, place.nonce.high, 16) &&
                  take_number(rest, place.nonce.low, 16) && rest.empty() && place.pid > 0 &&
                  place.file_fd >= 0;
  if (!ok || to_text(place) != text)
    return Error{ErrorCode::invalid_argument, "not the address of an shm transport"};
  return place;
}

Result<std::shared_ptr<Neighbor>> Neighbor::open(const ShmPlace& place) {
  const auto unavailable = [&](const char* what) {
    return Error{ErrorCode::unavailable,
                 "shm peer in process " + std::to_string(place.pid) + ": " + what};
  };
  std::shared_ptr<Neighbor> neighbor(new Neighbor(place));
  neighbor->pid_fd_ = OwnFd(static_cast<int>(syscall(SYS_pidfd_open, place.pid, 0)));
  if (!neighbor->pid_fd_) return unavailable("no such process here");
  neighbor->file_ = open_of(place.pid, place.file_fd, O_RDONLY);
  if (!neighbor->file_) return unavailable(std::strerror(errno));
  const int seals = fcntl(neighbor->file_.get(), F_GET_SEALS);
  struct stat info {};
  const bool is_ours =
      seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(neighbor->file_.get(), &info) == 0 &&
      static_cast<std::uint64_t>(info.st_size) >= kFirstRegion && neighbor->map_file() &&
      neighbor->head().magic == kShmMagic && neighbor->head().nonce == place.nonce &&
      neighbor->head().grant_slots == kGrantSlots;
  if (!is_ours) return unavailable("it is not the transport that the address names");
  // For reading too, though we never do: a pipe without a reader would raise SIGPIPE.
  neighbor->door_ = open_of(place.pid, neighbor->head().door_fd, O_RDWR | O_NONBLOCK);
  if (!neighbor->door_ || neighbor->head().closed.load(std::memory_order_acquire) != 0)
    return unavailable("its transport is closed");
  return neighbor;
}

Neighbor::~Neighbor() {
  for (const Mapping& mapping : mappings_)
    munmap(const_cast<std::byte*>(mapping.base), mapping.bytes);
}

bool Neighbor::map_file() {
  struct stat info {};
  if (fstat(file_.get(), &info) != 0 || info.st_size <= 0) return false;
  file_bytes_ = static_cast<std::uint64_t>(info.st_size);
  if (!mappings_.empty() && mappings_.back().bytes >= file_bytes_) return true;
  // Beyond the end of the file too, so that a file that grows is mapped a few times only.
  const std::uint64_t bytes = std::bit_ceil(std::max(file_bytes_, kMappedBytesMin));
  void* base = mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file_.get(), 0);
  if (base == MAP_FAILED) return false;
  mappings_.push_back({static_cast<const std::byte*>(base), bytes});
  return true;
}

const std::byte* Neighbor::at(std::uint64_t offset, std::uint64_t bytes) {
  const auto within = [&] { return offset <= file_bytes_ && bytes <= file_bytes_ - offset; };
  if (!within() && !(map_file() && within())) return nullptr;
  return mappings_.back().base + offset;
}

const GrantSlot& Neighbor::slot(std::uint32_t index) const {
  return reinterpret_cast<const GrantSlot*>(mappings_.front().base + kHeadBytes)[index];
}

void Neighbor::watch(Time now, Watcher watcher, Duration silence_max) {
  if (lost_ && gone_) return;
  pollfd process{pid_fd_.get(), POLLIN, 0};
  if (head().closed.load(std::memory_order_acquire) != 0 || poll(&process, 1, 0) > 0)
    lost_ = gone_ = true;
  const std::uint64_t beat = head().beat.load(std::memory_order_relaxed);
  if (beat != beat_seen_ || beat_at_.ns == 0 || watcher == Watcher::was_away) {
    beat_seen_ = beat;
    beat_at_ = now;
  } else if (now - beat_at_ > silence_max) {
    lost_ = true;
  }
}

void Neighbor::send(const Letter& letter) {
  outbox_.push_back(letter);
  flush();
}

bool Neighbor::flush() {
  if (lost_) outbox_.clear();
  while (!outbox_.empty()) {
    const ssize_t written = write(door_.get(), &outbox_.front(), sizeof(Letter));
    if (written < 0 && errno == EAGAIN) return false;
    INFOS_CHECK(written == sizeof(Letter));
    outbox_.pop_front();
  }
  return true;
}

}  // namespace infos
