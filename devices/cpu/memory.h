// SPDX-License-Identifier: Apache-2.0
// Zeroed memory of its own mapping, on huge pages when the kernel has them: packed weights, KV
// pools, arenas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "topology/base/result.h"

namespace infos::cpu {

class Memory {
 public:
  Memory() = default;
  /// Zeroed, aligned to a page at least. Errors: resource_exhausted with the bytes wanted and
  /// `what` they were for.
  static Result<Memory> allocate(std::uint64_t bytes, const char* what);
  ~Memory();
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::uint8_t* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }

 private:
  std::uint8_t* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace infos::cpu
