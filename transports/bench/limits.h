// SPDX-License-Identifier: Apache-2.0
// What the machine can do at best, measured by loops that do nothing else: copies within memory and
// gathered frames through a bare TCP socket. The yardsticks of `infos bench kv`.
#pragma once

#include <cstdint>
#include <span>

#include "topology/base/result.h"

namespace infos::bench {

/// Page-aligned memory that has been touched.
class TouchedMemory {
 public:
  /// Shared: as two processes map it, in pages of 4 KiB unless the system says otherwise.
  enum class Kind { anonymous, shared };
  TouchedMemory(std::uint64_t bytes, Kind kind);
  ~TouchedMemory();
  TouchedMemory(const TouchedMemory&) = delete;
  TouchedMemory& operator=(const TouchedMemory&) = delete;
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

struct RawRate {
  double bytes_per_second = 0;
  double cpu_ns_per_byte = 0;  ///< of both processes
};

enum class CopyKind { memcpy_libc, streaming };

/// Walks all of `from` into `to` once, each thread its own share.
/// Requires: both are page-aligned.
RawRate copy_rate(std::span<std::byte> to, std::span<const std::byte> from, CopyKind kind,
                  std::uint32_t threads);

struct RawTcpOptions {
  std::uint64_t memory_bytes = 0;    ///< that the sender walks through; the receiver likewise
  std::uint64_t transfer_bytes = 0;  ///< in all
  std::uint64_t piece_bytes = 0;     ///< of each iovec; small ones come from all over
};
/// Another process sends frames of a head and 256 KiB gathered from pieces; this one reads them to
/// their places. Requires: one thread. Errors: io.
Result<RawRate> raw_tcp_rate(const RawTcpOptions& options, std::span<std::byte> into);

}  // namespace infos::bench
