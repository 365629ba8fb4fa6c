// SPDX-License-Identifier: Apache-2.0
// An opened CPU device: its kernels, threads and memory account; and the KV pools made on it. Used
// from one thread at a time, `cancelled` excepted. Never touches weights or batches: that is
// Program's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "devices/abi/infos_device.h"
#include "devices/cpu/kernels.h"
#include "devices/cpu/memory.h"
#include "devices/cpu/thread_pool.h"
#include "topology/base/result.h"

namespace infos::cpu {

inline constexpr std::uint32_t kRanksMax = 64;

struct DeviceOptions {
  std::uint32_t threads = 0;  ///< 0: every core this process may use
  std::vector<std::uint32_t>
      cores;  ///< thread i, the caller included, is pinned to cores[i % size]; empty: no pinning
  std::uint64_t memory_bytes = 0;    ///< bound on weights + KV + scratch; 0: none
  std::optional<infos_group> group;  ///< when the device is a rank of one
  std::string options;               ///< "isa=generic|avx2|avxvnni|avx512,spin_us=N"
};

class Device {
 public:
  /// Errors: invalid_argument (option), unsupported (this machine lacks the instruction set).
  static Result<std::unique_ptr<Device>> open(const DeviceOptions& options);

  const Kernels& kernels() const { return kernels_; }
  ThreadPool& pool() { return *pool_; }
  std::uint64_t memory_used() const { return memory_used_; }
  /// Null: no rank of a group.
  const infos_group* group() const { return group_ ? &*group_ : nullptr; }

  /// Memory that counts against the bound until released. Errors: resource_exhausted with bytes
  /// wanted and there.
  Result<Memory> allocate(std::uint64_t bytes, const char* what);
  /// Counts memory that came from elsewhere against the bound until released. Errors: as allocate.
  Status reserve(std::uint64_t bytes, const char* what);
  void release(std::uint64_t bytes) { memory_used_ -= bytes; }

  /// Puts the calling thread on the first core, once per thread.
  void pin_caller();

  std::atomic<bool> cancelled{false};

 private:
  explicit Device(const Kernels& kernels) : kernels_(kernels) {}
  const Kernels& kernels_;
  std::unique_ptr<ThreadPool> pool_;
  std::vector<std::uint32_t> cores_;
  std::optional<infos_group> group_;
  std::uint64_t caller_ = 0;
  std::uint64_t memory_bytes_ = 0;
  std::uint64_t memory_used_ = 0;
};

/// A paged KV pool, in the host's memory when its config says so. One block holds all layers of its
/// tokens in one run: [block, layer, K|V, head, token, dim].
struct KvPool {
  Device* device = nullptr;
  infos_kv_config config{};
  infos_kv_layout layout{};
  KvType type = KvType::f32;
  std::uint8_t* data = nullptr;
  Memory memory;                 ///< empty when the host gave it
  std::uint64_t host_bytes = 0;  ///< of the host's memory; 0: it gave none

  static Result<std::unique_ptr<KvPool>> create(Device& device, const infos_kv_config& config);
  ~KvPool();

 private:
  Status take_memory();
};

/// Cores that this process may run on.
std::uint32_t usable_cores();
/// What describe() says: figures from the instruction set, a clock calibration (~1 ms) and a
/// read-bandwidth loop (~20 ms), measured once per process.
infos_device_info device_info();
/// "cpu-x86-64-avx512": artifacts hold no code, so any string of this backend is usable elsewhere.
std::string compat_string(Isa isa);

}  // namespace infos::cpu
