// SPDX-License-Identifier: Apache-2.0
// Staging: parts of one piece of memory, taken and given back in any order. First fit over chunks
// of 4 KiB; never allocates after its first call. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "topology/base/check.h"

namespace infos {

struct StagingPart {
  std::uint64_t begin = 0, bytes = 0;  ///< no bytes: nothing
};

class Staging {
 public:
  explicit Staging(std::span<std::byte> memory)
      : memory_(memory), taken_(memory.size() / kChunkBytes) {}

  std::byte* data() const { return memory_.data(); }
  std::uint64_t bytes() const { return taken_.size() * kChunkBytes; }
  std::uint64_t used() const { return used_; }

  /// Nothing when there is no gap of that size now.
  StagingPart take(std::uint64_t bytes) {
    const std::uint64_t want = (bytes + kChunkBytes - 1) / kChunkBytes;
    std::uint64_t run = 0;
    for (std::uint64_t i = 0; want > 0 && i < taken_.size(); ++i) {
      run = taken_[i] ? 0 : run + 1;
      if (run < want) continue;
      const StagingPart part{(i + 1 - want) * kChunkBytes, want * kChunkBytes};
      mark(part, 1);
      used_ += part.bytes;
      return part;
    }
    return {};
  }

  void give_back(const StagingPart& part) {
    mark(part, 0);
    used_ -= part.bytes;
  }

 private:
  static constexpr std::uint64_t kChunkBytes = 4096;

  void mark(const StagingPart& part, std::uint8_t value) {
    for (std::uint64_t i = 0; i < part.bytes / kChunkBytes; ++i) {
      std::uint8_t& chunk = taken_[part.begin / kChunkBytes + i];
      INFOS_CHECK(chunk != value);
      chunk = value;
    }
  }

  std::span<std::byte> memory_;
  std::vector<std::uint8_t> taken_;
  std::uint64_t used_ = 0;
};

}  // namespace infos
