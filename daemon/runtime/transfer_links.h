// SPDX-License-Identifier: Apache-2.0
// TransferLinks: the transports of one worker process, the memory that all of them know, and the
// peers that they reach. Made before the engine, whose KV pools lie in its memory; afterwards used
// by the transfer thread alone. Decides which link a peer is reached over; moves nothing itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/control/kv_messages.h"
#include "daemon/control/messages.h"
#include "topology/base/result.h"
#include "transports/transport.h"

namespace infos {

struct TransferLinkOptions {
  std::vector<TransportKind> kinds;  ///< in the order in which they are preferred
  std::string listen = "127.0.0.1";  ///< of tcp: an address, its port is chosen
  std::string tls_certificate, tls_key, tls_authority;  ///< files; empty: no TLS
};

/// Memory that peers may be let into, as each transport knows it.
struct SharedMemory {
  std::span<std::byte> bytes;
  std::vector<RegionId> regions;  ///< by transport
};

/// A peer as one of the transports reaches it.
struct TransferLink {
  std::uint32_t transport = 0;  ///< index
  PeerId peer;
  std::uint32_t endpoint = 0;  ///< index into the access that it was made from
};

class TransferLinks {
 public:
  /// Transports that cannot be made are left out, with a line in the log.
  /// Errors: invalid_argument (no kind is named), unavailable (none could be made).
  static Result<std::unique_ptr<TransferLinks>> open(const TransferLinkOptions& options);

  std::size_t size() const { return transports_.size(); }
  Transport& transport(std::uint32_t index) { return *transports_[index]; }

  /// Zeroed, page-aligned. Errors: resource_exhausted.
  Result<SharedMemory*> allocate(std::uint64_t bytes);
  /// What allocate() gave, by its first byte; null: not known.
  const SharedMemory* find(const void* memory) const;
  /// Requires: no grant and no operation uses it.
  void release(void* memory);

  /// How others reach us: one endpoint for each transport, in our order of preference.
  std::vector<KvEndpoint> endpoints() const;
  /// The link to a worker over the best endpoint that works here and is not lost; made when there
  /// is none. Errors: unavailable: none works; names them.
  Result<TransferLink> reach(const WorkerRef& worker, const KvAccess& access);
  /// Closes all links to a worker; `done` when no byte of it can land any more.
  void fence(const WorkerRef& worker, std::function<void()> done);

  /// Moves what can move. Returns: whether anything happened.
  bool progress();
  /// Descriptors to wait on; empty: there is something to do now.
  bool arm(std::vector<int>& fds);
  /// Somebody may be connected to us or we to them.
  bool in_use() const;

 private:
  TransferLinks() = default;

  std::string host_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::map<const void*, std::unique_ptr<SharedMemory>> memory_;
  std::multimap<WorkerRef, TransferLink> links_;
};

/// The identity of this machine, for transports that work within one: equal exactly where memory
/// can be shared.
std::string transfer_host();

}  // namespace infos
