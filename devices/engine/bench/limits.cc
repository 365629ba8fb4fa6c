// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/bench/limits.h"

#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "topology/base/check.h"

namespace infos {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kReadBytes = std::size_t{1} << 30;  // several times a last-level cache
constexpr int kRounds = 10;  // a limit is what the machine can do at its best moment

/// Runs `work(thread)` on all threads at once; the best of all rounds. Units: s.
double best_seconds(std::uint32_t threads, const std::function<void(std::uint32_t)>& work) {
  double best = 1e300;
  for (int round = 0; round < kRounds; ++round) {
    Clock::time_point begin;
    std::barrier start(static_cast<std::ptrdiff_t>(threads),
                       [&]() noexcept { begin = Clock::now(); });
    std::vector<std::thread> pool;
    for (std::uint32_t i = 0; i < threads; ++i)
      pool.emplace_back([&, i] {
        start.arrive_and_wait();
        work(i);
      });
    for (std::thread& thread : pool) thread.join();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

/// Keeps a result alive without storing it anywhere.
template <typename T>
void keep(T& value) {
  asm volatile("" : "+m"(value)::"memory");
}

using Words = std::uint64_t __attribute__((vector_size(64)));
constexpr std::size_t kAhead = 4096;  // bytes: hardware prefetch stops at every 4 KiB page

void read_plain(const std::byte* from, std::size_t bytes) {
  const auto* words = reinterpret_cast<const Words*>(from);
  Words a{}, b{}, c{}, d{};
  for (std::size_t i = 0; i + 4 <= bytes / sizeof(Words); i += 4) {
    a ^= words[i];
    b ^= words[i + 1];
    c ^= words[i + 2];
    d ^= words[i + 3];
  }
  a ^= b ^ c ^ d;
  keep(a);
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) void read_avx512(const std::byte* from, std::size_t bytes) {
  constexpr int kStreams = 8;
  __m512i sums[kStreams];
  for (auto& s : sums) s = _mm512_setzero_si512();
  for (std::size_t i = 0; i + 64 * kStreams <= bytes; i += 64 * kStreams) {
#pragma GCC unroll 8
    for (int s = 0; s < kStreams; ++s) {
      _mm_prefetch(reinterpret_cast<const char*>(from + i + 64 * s + kAhead), _MM_HINT_T0);
      sums[s] = _mm512_xor_si512(sums[s], _mm512_load_si512(from + i + 64 * s));
    }
  }
  for (auto& s : sums) keep(s);
}
#endif

void read_all(const std::byte* from, std::size_t bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return read_avx512(from, bytes);
#endif
  read_plain(from, bytes);
}

/// Memory in huge pages where the kernel gives them: page walks are not what is measured.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes) : bytes_(bytes) {
    void* at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    INFOS_CHECK(at != MAP_FAILED);
    data_ = static_cast<std::byte*>(at);
    ::madvise(data_, bytes_, MADV_HUGEPAGE);
  }
  ~Buffer() { ::munmap(data_, bytes_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

// Twelve accumulators hide the latency of a fused multiply-add on every core of today.
constexpr int kChains = 12;
constexpr std::int64_t kTurns = 2'000'000;

#if defined(__x86_64__)
__attribute__((target("avx512f"))) void fma_avx512() {
  __m512 sums[kChains];
  for (auto& s : sums) s = _mm512_setzero_ps();
  const __m512 x = _mm512_set1_ps(0.5F), y = _mm512_set1_ps(0.25F);
  for (std::int64_t i = 0; i < kTurns; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sums[c] = _mm512_fmadd_ps(sums[c], x, y);
  }
  for (auto& s : sums) keep(s);
}
__attribute__((target("avx2,fma"))) void fma_avx2() {
  __m256 sums[kChains];
  for (auto& s : sums) s = _mm256_setzero_ps();
  const __m256 x = _mm256_set1_ps(0.5F), y = _mm256_set1_ps(0.25F);
  for (std::int64_t i = 0; i < kTurns; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sums[c] = _mm256_fmadd_ps(sums[c], x, y);
  }
  for (auto& s : sums) keep(s);
}
__attribute__((target("avx512f,avx512vnni"))) void dot_avx512() {
  __m512i sums[kChains];
  for (auto& s : sums) s = _mm512_setzero_si512();
  __m512i x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(-5);
  keep(x);
  for (std::int64_t i = 0; i < kTurns; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sums[c] = _mm512_dpbusd_epi32(sums[c], x, y);
  }
  for (auto& s : sums) keep(s);
}
__attribute__((target("avx2,avxvnni"))) void dot_avxvnni() {
  __m256i sums[kChains];
  for (auto& s : sums) s = _mm256_setzero_si256();
  __m256i x = _mm256_set1_epi8(3), y = _mm256_set1_epi8(-5);
  keep(x);
  for (std::int64_t i = 0; i < kTurns; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sums[c] = _mm256_dpbusd_avx_epi32(sums[c], x, y);
  }
  for (auto& s : sums) keep(s);
}
__attribute__((target("avx2"))) void dot_avx2() {
  __m256i sums[kChains];
  for (auto& s : sums) s = _mm256_setzero_si256();
  __m256i x = _mm256_set1_epi8(3), y = _mm256_set1_epi8(-5);
  const __m256i ones = _mm256_set1_epi16(1);
  for (std::int64_t i = 0; i < kTurns; ++i) {
    keep(x);
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c)
      sums[c] = _mm256_add_epi32(sums[c], _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), ones));
  }
  for (auto& s : sums) keep(s);
}
#endif

void fma_plain() {
  using Floats = float __attribute__((vector_size(16)));
  Floats sums[kChains] = {};
  for (std::int64_t i = 0; i < kTurns; ++i)
    for (auto& s : sums) s = s * 0.5F + 0.25F;
  for (auto& s : sums) keep(s);
}

/// A loop and how many multiplications and additions one chain's step does.
struct Loop {
  void (*run)();
  double ops;
};
Loop f32_loop() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {fma_avx512, 32};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {fma_avx2, 16};
#endif
  return {fma_plain, 8};
}
Loop int8_loop() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512vnni")) return {dot_avx512, 128};
  if (__builtin_cpu_supports("avxvnni")) return {dot_avxvnni, 64};
  if (__builtin_cpu_supports("avx2")) return {dot_avx2, 64};
#endif
  return {fma_plain, 8};
}

double ops_per_second(std::uint32_t threads, const Loop& loop) {
  const double seconds = best_seconds(threads, [&](std::uint32_t) { loop.run(); });
  return loop.ops * kChains * static_cast<double>(kTurns) * threads / seconds;
}

}  // namespace

MachineLimits measure_limits(std::uint32_t threads) {
  MachineLimits limits;
  const std::size_t slice = kReadBytes / threads / kAhead * kAhead;
  const Buffer buffer(slice * threads);
  best_seconds(threads, [&](std::uint32_t i) {
    std::fill_n(reinterpret_cast<std::uint64_t*>(buffer.data() + slice * i), slice / 8, i + 1);
  });
  const double seconds =
      best_seconds(threads, [&](std::uint32_t i) { read_all(buffer.data() + slice * i, slice); });
  limits.read_bytes_per_second = static_cast<double>(slice) * threads / seconds;
  limits.f32_flops = ops_per_second(threads, f32_loop());
  limits.int8_ops = ops_per_second(threads, int8_loop());
  return limits;
}

}  // namespace infos
