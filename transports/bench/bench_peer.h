// SPDX-License-Identifier: Apache-2.0
// The other process of a measurement: forked, it serves one transport from memory that it has
// touched, until it is told to end. Also the waiting that owners of transports do: spin briefly,
// then sleep on the descriptor.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "topology/base/result.h"
#include "transports/transport.h"

namespace infos::bench {

using MakeTransport = std::function<Result<std::unique_ptr<Transport>>()>;

class BenchPeer {
 public:
  /// Requires: this process has one thread. Errors: the peer's own, or unavailable.
  static Result<std::unique_ptr<BenchPeer>> start(const MakeTransport& make, std::uint64_t bytes);
  ~BenchPeer();
  BenchPeer(const BenchPeer&) = delete;
  BenchPeer& operator=(const BenchPeer&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& address() const { return address_; }
  const std::string& read_key() const { return read_key_; }
  const std::string& write_key() const { return write_key_; }

 private:
  BenchPeer() = default;
  pid_t pid_ = 0;
  int to_ = -1;  ///< closing it ends the peer
  std::string address_, read_key_, write_key_;
};

/// How to wait: spinning is for what takes microseconds; else it takes a core from the peer.
enum class Spin { brief, none };
/// Drives the transport until `done`, or 60 s. Returns: whether it became true.
bool wait_until(Transport& transport, Spin spin, const std::function<bool()>& done);

double seconds_now();
/// That the process has used, all its threads.
double cpu_seconds(pid_t pid);

}  // namespace infos::bench
