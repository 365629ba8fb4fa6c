// SPDX-License-Identifier: Apache-2.0
#include "transports/bench/limits.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "transports/bench/bench_peer.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace infos::bench {
namespace {

constexpr std::uint64_t kFrameBytes = 256 * 1024, kHeadBytes = 32;

#if defined(__x86_64__)
__attribute__((target("avx512f"))) void stream_512(std::byte* to, const std::byte* from,
                                                   std::size_t bytes) {
  for (std::size_t i = 0; i + 128 <= bytes; i += 128) {
    const __m512i a = _mm512_loadu_si512(from + i), b = _mm512_loadu_si512(from + i + 64);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), a);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i + 64), b);
  }
  _mm_sfence();
}
__attribute__((target("avx2"))) void stream_256(std::byte* to, const std::byte* from,
                                                std::size_t bytes) {
  for (std::size_t i = 0; i + 64 <= bytes; i += 64) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i + 32), b);
  }
  _mm_sfence();
}
#endif

void stream(std::byte* to, const std::byte* from, std::size_t bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return stream_512(to, from, bytes);
  if (__builtin_cpu_supports("avx2")) return stream_256(to, from, bytes);
#endif
  std::memcpy(to, from, bytes);
}

/// Where the pieces of frames lie: one after the other, or all over the memory.
enum class Order { walk, jump };

/// The iovecs of one frame: its head, then pieces from the `next` one on.
void gather(std::span<std::byte> memory, std::uint64_t piece, Order order, std::uint64_t& next,
            std::byte* head, std::vector<iovec>& out) {
  const std::uint64_t pieces = memory.size() / piece;
  out.assign(1, {head, kHeadBytes});
  for (std::uint64_t bytes = 0; bytes < kFrameBytes; bytes += piece, ++next) {
    const std::uint64_t at = order == Order::walk ? next % pieces : next * 7919 % pieces;
    out.push_back({memory.data() + at * piece, piece});
  }
}

/// Moves all of the iovecs. Returns: false: the connection is gone.
template <typename Move>
bool move_all(std::vector<iovec>& runs, const Move& move) {
  std::size_t at = 0;
  while (at < runs.size()) {
    const ssize_t moved = move(runs.data() + at, runs.size() - at);
    if (moved <= 0) return false;
    auto left = static_cast<std::size_t>(moved);
    while (left > 0) {
      const std::size_t take = std::min(left, runs[at].iov_len);
      runs[at] = {static_cast<char*>(runs[at].iov_base) + take, runs[at].iov_len - take};
      left -= take;
      if (runs[at].iov_len == 0) ++at;
    }
  }
  return true;
}

void tune(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0)
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

[[noreturn]] void send_frames(int fd, const RawTcpOptions& options) {
  const TouchedMemory touched(options.memory_bytes, TouchedMemory::Kind::anonymous);
  const std::span<std::byte> memory = touched.bytes();
  std::array<std::byte, kHeadBytes> head{};
  std::byte go{};
  const Order order = options.piece_bytes < kFrameBytes ? Order::jump : Order::walk;
  std::vector<iovec> runs;
  while (read(fd, &go, 1) == 1) {
    std::uint64_t at = 0;
    for (std::uint64_t sent = 0; sent < options.transfer_bytes; sent += kFrameBytes) {
      gather(memory, options.piece_bytes, order, at, head.data(), runs);
      const bool ok = move_all(runs, [&](iovec* first, std::size_t count) {
        msghdr message{};
        message.msg_iov = first;
        message.msg_iovlen = std::min<std::size_t>(count, 1000);
        return sendmsg(fd, &message, MSG_NOSIGNAL);
      });
      if (!ok) _exit(1);
    }
  }
  _exit(0);
}

}  // namespace

TouchedMemory::TouchedMemory(std::uint64_t bytes, Kind kind) {
  const int flags = MAP_ANONYMOUS | (kind == Kind::shared ? MAP_SHARED : MAP_PRIVATE);
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  INFOS_CHECK(mapped != MAP_FAILED);
  madvise(mapped, bytes, MADV_HUGEPAGE);  // as the transports do
  bytes_ = {static_cast<std::byte*>(mapped), bytes};
  std::memset(mapped, 0x5A, bytes);
}

TouchedMemory::~TouchedMemory() { munmap(bytes_.data(), bytes_.size()); }

RawRate copy_rate(std::span<std::byte> to, std::span<const std::byte> from, CopyKind kind,
                  std::uint32_t threads) {
  const std::size_t share = from.size() / threads / 4096 * 4096;
  const auto copy = [&](std::uint32_t i) {
    std::byte* const there = to.data() + i * share;
    const std::byte* const here = from.data() + i * share;
    if (kind == CopyKind::streaming)
      stream(there, here, share);
    else
      std::memcpy(there, here, share);
  };
  const double begin = seconds_now(), cpu_begin = cpu_seconds(getpid());
  std::vector<std::thread> helpers;
  for (std::uint32_t i = 1; i < threads; ++i) helpers.emplace_back(copy, i);
  copy(0);
  for (std::thread& helper : helpers) helper.join();
  const auto bytes = static_cast<double>(share * threads);
  return {bytes / (seconds_now() - begin), (cpu_seconds(getpid()) - cpu_begin) * 1e9 / bytes};
}

Result<RawRate> raw_tcp_rate(const RawTcpOptions& options, std::span<std::byte> into) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  tune(listener);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return Error{ErrorCode::io, "raw tcp loop: cannot listen on 127.0.0.1"};
  const pid_t parent = getpid(), child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    tune(fd);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) _exit(1);
    send_frames(fd, options);
  }
  const int fd = accept(listener, nullptr, nullptr);
  close(listener);
  tune(fd);
  std::array<std::byte, kHeadBytes> head{};
  std::vector<iovec> runs;
  bool ok = fd >= 0 && child > 0;
  RawRate best;
  for (int round = 0; ok && round < 2; ++round) {  // the first one warms up
    std::uint64_t at = 0;
    const std::byte go{};
    const auto cpu = [&] { return cpu_seconds(getpid()) + cpu_seconds(child); };
    const double begin = seconds_now(), cpu_begin = cpu();
    ok = write(fd, &go, 1) == 1;
    for (std::uint64_t got = 0; ok && got < options.transfer_bytes; got += kFrameBytes) {
      gather(into, options.piece_bytes, Order::walk, at, head.data(), runs);
      ok = move_all(runs, [&](iovec* first, std::size_t count) {
        return readv(fd, first, static_cast<int>(std::min<std::size_t>(count, 1000)));
      });
    }
    const auto bytes = static_cast<double>(options.transfer_bytes);
    best.bytes_per_second = std::max(best.bytes_per_second, bytes / (seconds_now() - begin));
    best.cpu_ns_per_byte = (cpu() - cpu_begin) * 1e9 / bytes;
  }
  close(fd);
  if (child > 0) waitpid(child, nullptr, 0);
  if (!ok) return Error{ErrorCode::io, "raw tcp loop: the sender went away"};
  return best;
}

}  // namespace infos::bench
