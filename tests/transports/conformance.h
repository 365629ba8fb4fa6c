// SPDX-License-Identifier: Apache-2.0
// The suite that every transport passes: one factory, every clause of transports/transport.h. A
// backend's test program links infos_transport_conformance and says one line:
//   INFOS_TRANSPORT_CONFORMANCE(shm, [] { return make_shm_transport({}); });
// Where two processes matter, the program starts itself again in the role of the peer.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "topology/base/rng.h"
#include "transports/transport.h"

namespace infos::test {

using MakeTransport = std::function<Result<std::unique_ptr<Transport>>()>;

struct Backend {
  std::string name;
  MakeTransport make;
  /// Whether the link refuses reads through a revoked grant; RDMA may not.
  enum class RevokedReads { refused, either } revoked_reads = RevokedReads::refused;
};
/// For gtest's messages.
void PrintTo(const Backend& backend, std::ostream* out);

class TransportConformance : public ::testing::TestWithParam<Backend> {
 protected:
  /// A new transport of the backend under test; the test fails without one.
  std::unique_ptr<Transport> make() const;
};

#define INFOS_TRANSPORT_CONFORMANCE(backend, ...)                                            \
  INSTANTIATE_TEST_SUITE_P(Backend, TransportConformance,                                    \
                           ::testing::Values(::infos::test::Backend{#backend, __VA_ARGS__}), \
                           [](const auto& info) { return info.param.name; })

// ---- what the tests are made of ----

struct Memory {
  RegionId region;
  std::span<std::byte> bytes;
};
Memory make_memory(Transport& transport, std::uint64_t bytes);
/// Bytes that depend on seed and place.
void fill(std::span<std::byte> bytes, std::uint64_t seed);
bool same(std::span<const std::byte> a, std::span<const std::byte> b);
bool all_are(std::span<const std::byte> bytes, std::byte value);

/// Counts verdicts; give `done()` to operations.
class Verdicts {
 public:
  Transport::Done done() {
    ++given_;
    return [this](OpId, Verdict verdict) { ++counts_[static_cast<std::size_t>(verdict)]; };
  }
  std::size_t given() const { return given_; }
  std::size_t ended() const;
  std::size_t of(Verdict verdict) const { return counts_[static_cast<std::size_t>(verdict)]; }
  bool all_ended() const { return ended() == given_; }
  std::string text() const;

 private:
  std::size_t given_ = 0;
  std::size_t counts_[8] = {};
};

/// Drives transports on this thread, sleeping on their wait_fd between.
class Pump {
 public:
  explicit Pump(std::vector<Transport*> transports) : transports_(std::move(transports)) {}
  /// Returns: whether it became true; gives up after a limit that no healthy run comes near.
  bool until(const std::function<bool()>& done) const;
  /// As long as a loss may take to be noticed, and more.
  void a_while() const;

 private:
  void turn() const;
  std::vector<Transport*> transports_;
};

/// Two transports in this process; `a` knows `b` and holds its memory's grants.
struct Pair {
  std::unique_ptr<Transport> a, b;
  PeerId b_of_a;
  Memory of_a, of_b;
  GrantId read_grant, write_grant;  ///< of b, over all of of_b
  RemoteId readable, writable;      ///< the same, as `a` sees them
  Pump pump() const { return Pump({a.get(), b.get()}); }
};
Pair make_pair(std::unique_ptr<Transport> a, std::unique_ptr<Transport> b, std::uint64_t bytes);

/// Another process with one transport, 16 MiB filled with fill(7), and grants over all of them.
class PeerProcess {
 public:
  static constexpr std::uint64_t kBytes = 16u << 20;
  PeerProcess();
  ~PeerProcess();
  const std::string& address() const { return address_; }
  const std::string& read_key() const { return read_key_; }
  const std::string& write_key() const { return write_key_; }
  int pid() const { return pid_; }
  /// The peer connects back to `transport` and begins `times` puts of kBytes through `key`.
  void write_into(const std::string& address, const std::string& key, int times);
  /// Whether all its puts have their verdicts; never blocks.
  bool has_written();
  void signal(int number) const;
  void reap();

 private:
  void say(const std::string& line) const;
  bool read_line(std::string* line, int timeout_ms);
  int pid_ = 0, to_ = -1, from_ = -1;
  std::string address_, read_key_, write_key_, unread_;
};
/// The other role; returns when the parent is done with it.
void serve_as_peer(std::unique_ptr<Transport> transport);
/// Whether this process was started by PeerProcess.
bool is_peer_process();
/// Descriptors that this process has open.
std::size_t open_descriptors();

}  // namespace infos::test
