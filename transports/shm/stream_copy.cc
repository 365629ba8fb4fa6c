// SPDX-License-Identifier: Apache-2.0
#include "transports/shm/stream_copy.h"

#include <atomic>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace infos {
namespace {

/// Below this the head and tail cost more than the caches do.
constexpr std::size_t kStreamBytesMin = 512;

#if defined(__x86_64__)

__attribute__((target("avx512f"))) void stream_lines_512(std::byte* to, const std::byte* from,
                                                         std::size_t bytes) {
  for (; bytes >= 256; bytes -= 256, to += 256, from += 256) {
    const __m512i a = _mm512_loadu_si512(from), b = _mm512_loadu_si512(from + 64);
    const __m512i c = _mm512_loadu_si512(from + 128), d = _mm512_loadu_si512(from + 192);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), a);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + 64), b);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + 128), c);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + 192), d);
  }
  for (; bytes >= 64; bytes -= 64, to += 64, from += 64)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
}

__attribute__((target("avx2"))) void stream_lines_256(std::byte* to, const std::byte* from,
                                                      std::size_t bytes) {
  for (; bytes >= 64; bytes -= 64, to += 64, from += 64) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + 32), b);
  }
}

using StreamLines = void (*)(std::byte*, const std::byte*, std::size_t);

/// Copies whole 64-byte lines to an aligned place; null: this CPU has no wide streaming stores.
StreamLines stream_lines() {
  static const StreamLines chosen = [] {
    if (__builtin_cpu_supports("avx512f")) return StreamLines{stream_lines_512};
    if (__builtin_cpu_supports("avx2")) return StreamLines{stream_lines_256};
    return StreamLines{nullptr};
  }();
  return chosen;
}

#endif

}  // namespace

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) {
#if defined(__x86_64__)
  const StreamLines lines = stream_lines();
  if (bytes >= kStreamBytesMin && lines != nullptr) {
    const std::size_t head = (64 - reinterpret_cast<std::uintptr_t>(to) % 64) % 64;
    if (head > 0) std::memcpy(to, from, head);
    const std::size_t body = (bytes - head) / 64 * 64;
    lines(to + head, from + head, body);
    std::memcpy(to + head + body, from + head + body, bytes - head - body);
    return;
  }
#endif
  std::memcpy(to, from, bytes);
}

void stream_fence() {
#if defined(__x86_64__)
  _mm_sfence();
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace infos
