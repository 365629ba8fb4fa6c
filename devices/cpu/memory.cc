// SPDX-License-Identifier: Apache-2.0
#include "devices/cpu/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

namespace infos::cpu {

Result<Memory> Memory::allocate(std::uint64_t bytes, const char* what) {
  Memory memory;
  if (bytes == 0) return memory;
  constexpr std::uint64_t kHuge = 2U << 20U;
  // A whole number of huge pages gets aligned to one by the kernel.
  const std::uint64_t size = bytes < kHuge ? bytes : (bytes + kHuge - 1) / kHuge * kHuge;
  void* p = size < bytes
                ? MAP_FAILED
                : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    return Error{ErrorCode::resource_exhausted,
                 fmt::format("no {} bytes of memory for {}", bytes, what)};
  }
  if (size >= kHuge) madvise(p, size, MADV_HUGEPAGE);
  memory.data_ = static_cast<std::uint8_t*>(p);
  memory.bytes_ = size;
  return memory;
}

Memory::~Memory() {
  if (data_) munmap(data_, bytes_);
}

}  // namespace infos::cpu
