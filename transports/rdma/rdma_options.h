// SPDX-License-Identifier: Apache-2.0
// RdmaOptions: what a transport over an RDMA library is made with.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace infos {

struct RdmaOptions {
  /// Numeric IP address on which the side channel (TLS) listens. "": the device's own (verbs, UCX
  /// with RDMA lanes), else 127.0.0.1.
  std::string host;
  /// RDMA device, e.g. "mlx5_0"; "": the first with an active port. For UCX over TCP the
  /// network interface of `host`; "": lo on loopback, else all.
  std::string device;
  /// UCX only. local: shared memory and CMA within this host; tcp; rdma: RC queue pairs.
  enum class Lanes : std::uint8_t { local, tcp, rdma } lanes = Lanes::local;
  /// UCX's TCP is neither encrypted nor authenticated: off loopback it must be allowed by name.
  enum class PlainText : std::uint8_t { loopback_only, allowed } plain = PlainText::loopback_only;
  /// Verbs only: queue pairs per session, 1..8.
  std::uint32_t rails = 1;
  /// Verbs only: registrations are at most this long. 0: what the device allows.
  std::uint64_t slice_bytes = 0;
  /// A peer that is silent for longer is lost.
  std::chrono::milliseconds silence{450};
};

}  // namespace infos
