// SPDX-License-Identifier: Apache-2.0
// What this machine can do: name, peaks, bandwidth. Measured once per process, when somebody first
// asks.
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "devices/cpu/device.h"

namespace infos::cpu {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Core clock from a chain of dependent 1-cycle adds; the best of a few short runs, since others
/// may use the core too.
double measure_hz() {
#if defined(__x86_64__)
  double best = 0;
  for (int run = 0; run < 5; ++run) {
    constexpr int kTurns = 20000;
    std::uint64_t x = 0;
    const auto start = Clock::now();
    for (int i = 0; i < kTurns; ++i) {
      __asm__ volatile(
          "add $1,%0\n add $3,%0\n add $1,%0\n add $3,%0\n add $1,%0\n add $3,%0\n add $1,%0\n add "
          "$3,%0\n"
          : "+r"(x));
    }
    const double hz = kTurns * 8.0 / seconds_since(start);
    if (hz > best) best = hz;
  }
  return best;
#else
  return 0;
#endif
}

/// Bytes per second that all cores read together from memory beyond their caches' reach.
double measure_read_bandwidth(std::uint32_t threads) {
  constexpr std::size_t kBytes = 64U << 20U;
  std::vector<Memory> memory;
  for (std::uint32_t t = 0; t < threads; ++t) {
    auto m = Memory::allocate(kBytes, "a bandwidth measurement");
    if (!m.ok()) return 0;
    std::memset(m->data(), 1, kBytes);
    memory.push_back(std::move(*m));
  }
  std::atomic<std::uint64_t> sink{0};
  const auto read_all = [&](std::uint32_t t) {
    const auto* p = reinterpret_cast<const std::uint64_t*>(memory[t].data());
    std::uint64_t s[8] = {};
    for (std::size_t i = 0; i < kBytes / 8; i += 8) {
      for (int j = 0; j < 8; ++j) s[j] += p[i + j];
    }
    sink += s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
  };
  const auto start = Clock::now();
  std::vector<std::thread> workers;
  for (std::uint32_t t = 1; t < threads; ++t) workers.emplace_back(read_all, t);
  read_all(0);
  for (std::thread& w : workers) w.join();
  return kBytes * static_cast<double>(threads) / seconds_since(start);
}

std::string model_name() {
  std::ifstream in("/proc/cpuinfo");
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

void put(char (&to)[64], const std::string& from) {
  const std::size_t n = from.size() < 63 ? from.size() : 63;
  std::memcpy(to, from.data(), n);
  to[n] = 0;
}

/// Operations (a multiply and an add are two) per cycle of one core. Source: Intel and AMD
/// optimisation manuals: two vector FMA or dot-product ports; plain C++ is counted as one 128-bit
/// port.
double f32_per_cycle(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return 64;
    case Isa::avx2:
    case Isa::avxvnni:
      return 32;
    default:
      return 8;
  }
}
double int8_per_cycle(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return 256;
    case Isa::avxvnni:
      return 128;
    case Isa::avx2:
      return 43;  // multiply, widen and add share the ports
    default:
      return 2;
  }
}

infos_device_info measure() {
  infos_device_info info{};
  info.struct_size = sizeof info;
  info.device_class = INFOS_CLASS_CPU;
  const Isa isa = best_isa();
  put(info.name, model_name() + " (" + to_string(isa) + ")");
  put(info.compat, compat_string(isa));
  info.memory_bytes = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                      static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  info.kv_capacity_bytes = info.memory_bytes;
  info.cores = usable_cores();
  const double hz = measure_hz();
  info.peak_f32_flops = hz * info.cores * f32_per_cycle(isa);
  info.peak_int8_ops = hz * info.cores * int8_per_cycle(isa);
  info.memory_bytes_per_second = measure_read_bandwidth(info.cores < 16 ? info.cores : 16);
  info.phases = 1U | 2U;
  for (int op = INFOS_OP_EMBED; op <= INFOS_OP_ALL_REDUCE; ++op)
    info.op_mask |= std::uint64_t{1} << op;
  for (const int dtype :
       {INFOS_F32, INFOS_F16, INFOS_BF16, INFOS_Q8_0, INFOS_Q4_0, INFOS_Q4_K, INFOS_Q6_K}) {
    info.dtype_mask |= std::uint64_t{1} << dtype;
  }
  info.batch_invariant = 1;
  return info;
}

}  // namespace

infos_device_info device_info() {
  static const infos_device_info info = measure();
  return info;
}

std::string compat_string(Isa isa) {
#if defined(__x86_64__)
  return std::string("cpu-x86-64-") + to_string(isa);
#else
  return std::string("cpu-") + to_string(isa);
#endif
}

}  // namespace infos::cpu
