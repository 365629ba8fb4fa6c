// SPDX-License-Identifier: Apache-2.0
// Times the CPU backend's matrix products at the shapes of real models: GB/s of weights and G
// operations/s, each as a fraction of what a read loop and a register-only FMA or dot-product loop
// reach in the same run on the same threads. One thread is measured in CPU time, so that other load
// on the machine matters less; several threads in wall time.
//   cpu_bench [--threads N] [--isa NAME] [--filter TEXT] [--milliseconds N]
#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "devices/abi/infos_device.h"
#include "devices/cpu/kernels.h"
#include "devices/cpu/memory.h"
#include "devices/cpu/pack.h"
#include "devices/cpu/thread_pool.h"

namespace infos::cpu {
namespace {

struct Options {
  std::uint32_t threads = 2;
  Isa isa = best_isa();
  std::string filter;
  double seconds = 0.15;
};

struct Shape {
  const char* name;
  std::uint32_t n, k;
};
constexpr Shape kShapes[] = {
    {"qwen2.5-0.5b attn_q", 896, 896},    {"qwen2.5-0.5b ffn_up", 4864, 896},
    {"qwen2.5-0.5b ffn_down", 896, 4864}, {"llama-3.2-1b attn_q", 2048, 2048},
    {"llama-3.2-1b ffn_up", 8192, 2048},  {"llama-3.2-1b ffn_down", 2048, 8192}};
constexpr struct {
  const char* name;
  std::uint32_t dtype;
} kTypes[] = {{"f32", INFOS_F32},   {"f16", INFOS_F16},   {"bf16", INFOS_BF16},
              {"q8_0", INFOS_Q8_0}, {"q4_0", INFOS_Q4_0}, {"q4_k", INFOS_Q4_K},
              {"q6_k", INFOS_Q6_K}};

clockid_t clock_used = CLOCK_MONOTONIC;

double now() {
  timespec t{};
  clock_gettime(clock_used, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

/// Shortest time of one call, over at least `seconds`.
template <typename Function>
double best_time(double seconds, Function&& function) {
  function();
  double best = 1e9, total = 0;
  for (int i = 0; i < 3 || total < seconds; ++i) {
    const double start = now();
    function();
    const double t = now() - start;
    best = std::min(best, t);
    total += t;
  }
  return best;
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512vnni"))) double spin_fma(int turns) {
  __m512 a[16];
  for (auto& x : a) x = _mm512_set1_ps(1.0F);
  const __m512 b = _mm512_set1_ps(0.5F);
  for (int i = 0; i < turns; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) a[j] = _mm512_fmadd_ps(a[j], b, b);
  }
  float sum = 0;
  for (auto& x : a) sum += _mm512_reduce_add_ps(x);
  return static_cast<double>(sum);
}
__attribute__((target("avx512f,avx512vnni"))) double spin_dot(int turns) {
  __m512i a[16];
  for (auto& x : a) x = _mm512_setzero_si512();
  const __m512i b = _mm512_set1_epi32(0x01020304);
  for (int i = 0; i < turns; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) a[j] = _mm512_dpbusd_epi32(a[j], b, b);
  }
  int sum = 0;
  for (auto& x : a) sum += _mm512_reduce_add_epi32(x);
  return sum;
}
__attribute__((target("avx512f"))) std::uint64_t read_all(const std::uint8_t* p,
                                                          std::size_t bytes) {
  __m512i s0 = _mm512_setzero_si512(), s1 = s0, s2 = s0, s3 = s0;
  for (std::size_t i = 0; i + 256 <= bytes; i += 256) {
    s0 = _mm512_xor_si512(s0, _mm512_loadu_si512(p + i));
    s1 = _mm512_xor_si512(s1, _mm512_loadu_si512(p + i + 64));
    s2 = _mm512_xor_si512(s2, _mm512_loadu_si512(p + i + 128));
    s3 = _mm512_xor_si512(s3, _mm512_loadu_si512(p + i + 192));
  }
  return static_cast<std::uint64_t>(
      _mm512_reduce_add_epi64(_mm512_or_si512(_mm512_or_si512(s0, s1), _mm512_or_si512(s2, s3))));
}
#endif

volatile double sink;

/// What the machine can do with these threads right now.
struct Peaks {
  double read = 0, fma = 0, dot = 0;  ///< bytes/s, operations/s
};
Peaks measure_peaks(ThreadPool& pool, const Memory& big) {
  Peaks p;
  constexpr int kTurns = 200000;
  const std::uint32_t n = pool.threads();
  p.fma = n * kTurns * 16.0 * 32 / best_time(0.1, [&] {
            pool.for_each(n, [](std::uint32_t, std::uint32_t) { sink = spin_fma(kTurns); });
          });
  p.dot = n * kTurns * 16.0 * 128 / best_time(0.1, [&] {
            pool.for_each(n, [](std::uint32_t, std::uint32_t) { sink = spin_dot(kTurns); });
          });
  const std::size_t part = big.bytes() / (8 * n);
  p.read = part * 8.0 * n / best_time(0.3, [&] {
             pool.for_each(8 * n, [&](std::uint32_t t, std::uint32_t) {
               sink = static_cast<double>(read_all(big.data() + t * part, part));
             });
           });
  return p;
}

/// Many copies of one matrix, so that one pass over them does not fit any cache.
void bench(const Options& o, ThreadPool& pool, const Memory& big, const Shape& shape,
           const char* type, std::uint32_t dtype) {
  const std::string name = std::string(shape.name) + " " + type;
  if (name.find(o.filter) == std::string::npos) return;
  const WeightKind kind = *weight_kind(dtype);
  if (shape.k % block_elements(kind)) return;
  PackedMatrix w = packed_shape(kind, shape.n, shape.k);
  const std::size_t each = w.panels * w.panel_bytes;
  const auto copies = static_cast<std::uint32_t>(std::max<std::size_t>(1, big.bytes() / each));
  const Kernels& kernels = kernels_for(o.isa);
  for (const std::uint32_t rows : {1U, 4U, 8U, 16U, 32U, 510U}) {
    const std::uint32_t turns = rows >= 100 ? 1 : copies;
    std::vector<float> x(std::size_t{rows} * shape.k, 0.25F), y(std::size_t{rows} * shape.n);
    std::vector<ActBlock> q(rows * (shape.k / kBlock) + 1);
    std::vector<Memory> scratch;
    for (std::uint32_t t = 0; t < pool.threads(); ++t)
      scratch.push_back(std::move(*Memory::allocate(linear_scratch_bytes(rows), "scratch")));
    const std::uint32_t units = (w.panels + 3) / 4,
                        span = std::max(1U, units / (8 * pool.threads()));
    const std::uint32_t tasks = (units + span - 1) / span;
    const double time =
        best_time(o.seconds,
                  [&] {
                    for (std::uint32_t i = 0; i < turns; ++i) {
                      PackedMatrix m = w;
                      m.data = big.data() + i * each;
                      if (is_integer(kind)) {
                        pool.for_each(rows, [&](std::uint32_t r, std::uint32_t) {
                          kernels.quantise(x.data() + r * shape.k,
                                           q.data() + r * (shape.k / kBlock), shape.k, kind);
                        });
                      }
                      pool.for_each(tasks, [&](std::uint32_t t, std::uint32_t thread) {
                        LinearArgs a;
                        a.w = &m;
                        a.x = x.data();
                        a.ldx = shape.k;
                        a.qx = q.data();
                        a.ldq = shape.k / kBlock;
                        a.y = y.data();
                        a.ldy = shape.n;
                        a.rows = rows;
                        a.panel_begin = t * span * 4;
                        a.panel_end = std::min(w.panels, (t + 1) * span * 4);
                        a.scratch = scratch[thread].data();
                        kernels.linear(a);
                      });
                    }
                  }) /
        turns;
    const Peaks here = measure_peaks(pool, big);
    const double bytes = static_cast<double>(each) / time,
                 ops = 2.0 * rows * shape.n * shape.k / time;
    std::printf(
        "%-32s rows %3u  %9.1f us  %6.2f GB/s (%3.0f %% of read)  %7.1f GOP/s (%3.0f %% of peak)\n",
        name.c_str(), rows, time * 1e6, bytes / 1e9, 100 * bytes / here.read, ops / 1e9,
        100 * ops / (is_integer(kind) ? here.dot : here.fma));
    std::fflush(stdout);
  }
}

int run(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!std::strcmp(argv[i], "--threads"))
      o.threads = static_cast<std::uint32_t>(std::atoi(argv[i + 1]));
    if (!std::strcmp(argv[i], "--filter")) o.filter = argv[i + 1];
    if (!std::strcmp(argv[i], "--milliseconds")) o.seconds = std::atof(argv[i + 1]) / 1000;
    for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avxvnni, Isa::avx512}) {
      if (!std::strcmp(argv[i], "--isa") && !std::strcmp(argv[i + 1], to_string(isa))) o.isa = isa;
    }
  }
  if (!isa_supported(o.isa) || !isa_supported(Isa::avx512))
    return std::puts("needs AVX-512 for its peak loops"), 1;
  if (o.threads == 1) clock_used = CLOCK_THREAD_CPUTIME_ID;
  ThreadPool pool(o.threads, {}, 1000);
  auto big = Memory::allocate(640U << 20U, "the benchmark");
  if (!big.ok()) return std::puts(big.error().message.c_str()), 1;
  std::memset(big->data(), 0x11, big->bytes());
  const Peaks p = measure_peaks(pool, *big);
  std::printf("%u threads, %s: read %.1f GB/s, FMA %.0f GFLOP/s, dot %.0f GOP/s\n", o.threads,
              to_string(o.isa), p.read / 1e9, p.fma / 1e9, p.dot / 1e9);
  for (const auto& type : kTypes) {
    for (const Shape& shape : kShapes) bench(o, pool, *big, shape, type.name, type.dtype);
  }
  return 0;
}

}  // namespace
}  // namespace infos::cpu

int main(int argc, char** argv) { return infos::cpu::run(argc, argv); }
