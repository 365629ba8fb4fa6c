// SPDX-License-Identifier: Apache-2.0
// Transport: moves bytes between the memories of two workers, over one kind of link. Knows regions,
// peers and operations; nothing of KV, requests or leases. Everything, callbacks too, happens on
// the owner's thread inside the calls below (a backend may have helper threads, which the owner
// never sees).
//
// The contract that tests/transports/conformance.h holds every backend to:
//  - An operation ends with exactly one verdict. `ok` means: every byte is visible at the
//    destination, not that it has left here.
//  - Any other verdict may leave any part of the destination written. Until a fence of that peer
//    has been answered, more bytes may land.
//  - After a fence of a peer is answered, no byte of that peer lands in this process, neither from
//    its puts nor from our gets, and every operation with it has had its verdict.
//  - A peer that dies, stops or cannot be reached gives `peer_lost`, never an abort of this
//    process. Liveness is also the owner's to judge: it may fence at any time.
//  - Both sides must call progress() at least every 100 ms: a backend may need the passive side to
//    serve, and a peer that is silent for 500 ms counts as stopped. Lost stays lost: fence it and
//    connect() again.
//  - `done` of an operation is called by progress(), fence() or the destructor, never inside get(),
//    put() or cancel(). It may give new operations and fence, but not destroy the transport.
//  - Operations are not ordered among themselves. No pieces, or pieces of no bytes: `ok`. Pieces
//    that overlap at the destination: either wins there, and the verdict may be `failed`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/base/ids.h"
#include "topology/base/result.h"
#include "topology/base/units.h"

namespace infos {

using RegionId = Id<struct RegionTag, std::uint32_t>;  ///< memory of this process
using GrantId = Id<struct GrantTag>;                   ///< a peer's right to touch a part of it
using PeerId = Id<struct PeerTag, std::uint32_t>;  ///< another process, as one transport sees it
using RemoteId = Id<struct RemoteTag, std::uint32_t>;  ///< a grant received from a peer
using OpId = Id<struct OpTag>;

enum class TransportKind : std::uint8_t { shm, tcp, ucx, verbs };
const char* to_string(TransportKind kind);

enum class Verdict : std::uint8_t {
  ok,
  cancelled,  ///< by cancel() or a fence
  peer_lost,  ///< dead, stopped, unreachable or closed
  refused,    ///< the other side knows no such grant, or it does not cover the piece
  failed,     ///< the link or the device; trying again may help
};
const char* to_string(Verdict verdict);

enum class PeerState : std::uint8_t {
  connecting,
  open,
  lost,    ///< operations end with `peer_lost`
  closed,  ///< fenced, or never known; operations end with `cancelled`
};
const char* to_string(PeerState state);

/// What peers may do with granted memory.
enum class Access : std::uint8_t { read, write };

/// One run of bytes: `bytes` at `local` in our region and at `remote` from the grant's begin.
struct Piece {
  std::uint64_t local = 0;
  std::uint64_t remote = 0;
  std::uint64_t bytes = 0;
};

struct TransportInfo {
  TransportKind kind = TransportKind::tcp;
  std::string device;  ///< "rxe0", "eth0", "" where there is nothing to name
  /// Pieces below this are cheaper gathered into one buffer than moved each by itself.
  std::uint64_t direct_bytes_min = 0;
  std::uint32_t ops_in_flight_max = 64;
  /// The bytes of a get or put are checked on the way (a checksum that covers memory to memory).
  bool checks_bytes = false;
  /// Bytes on the link are encrypted.
  bool encrypted = false;
};

/// Counters since the transport began, for metrics and tests of leaks.
struct TransportStats {
  std::uint64_t bytes_in = 0, bytes_out = 0;
  std::uint64_t ops_ok = 0, ops_not_ok = 0;
  std::uint32_t ops_open = 0, peers_open = 0, regions_open = 0, grants_open = 0;
};

class Transport {
 public:
  using Done = std::function<void(OpId op, Verdict verdict)>;

  /// Ends all operations (`cancelled`), fences all peers.
  virtual ~Transport() = default;
  virtual const TransportInfo& info() const = 0;
  virtual TransportStats stats() const = 0;

  // ---- memory ----

  /// Memory that is to be shared should come from here: a backend may need it (shm) or be faster
  /// with it. Page-aligned, zeroed, freed with the last owner.
  /// Errors: resource_exhausted.
  virtual Result<RegionId> allocate(std::uint64_t bytes, std::span<std::byte>& memory) = 0;
  /// Makes memory of this process usable as the local side of operations and for grants. It must
  /// stay until forget(). Errors: unsupported (shm: not from a shared arena), resource_exhausted.
  virtual Result<RegionId> adopt(std::span<std::byte> memory) = 0;
  /// Requires: no operation and no grant uses it.
  virtual void forget(RegionId region) = 0;

  // ---- peers ----

  /// What a peer needs to reach this transport; travels over the control session, holds a secret.
  virtual std::string address() const = 0;
  /// Begins to reach a peer; operations may be given at once. Each call makes a new peer.
  /// Errors: invalid_argument (no address of this kind), unavailable (known at once: not there).
  virtual Result<PeerId> connect(std::string_view address) = 0;
  /// As progress() last saw it; no operation is needed to notice a loss.
  virtual PeerState peer_state(PeerId peer) const = 0;
  /// No byte of the peer lands from the moment that `done` is called (once, from progress() or
  /// before this returns); its operations end before that, with `cancelled` or what they had
  /// coming. The peer is closed then: connect() again to go on; grants given before the fence may
  /// be void for that process.
  virtual void fence(PeerId peer, std::function<void()> done) = 0;

  // ---- grants: what peers may touch ----

  /// The key travels over the control session; it is good for `access` to [begin, begin + bytes) of
  /// the region, until revoked.
  virtual Result<GrantId> grant(RegionId region, std::uint64_t begin, std::uint64_t bytes,
                                Access access) = 0;
  virtual std::string key(GrantId grant) const = 0;
  /// From `done` on, no byte lands through a write grant. Reads through a read grant are refused
  /// from then on where the link can refuse; where it cannot (shm, RDMA), what is read must be
  /// proven by the reader.
  virtual void revoke(GrantId grant, std::function<void()> done) = 0;
  /// Errors: invalid_argument: not a key of this kind of transport.
  virtual Result<RemoteId> open_remote(PeerId peer, std::string_view key) = 0;

  /// Forgets a grant that was received; operations given before go on. A fence forgets all of the
  /// peer's.
  virtual void close_remote(RemoteId remote) { static_cast<void>(remote); }

  // ---- operations ----

  /// Brings bytes here / there. The pieces are read before the call returns. The verdict is of all
  /// of them together. More than ops_in_flight_max wait inside for their turn.
  /// Requires: pieces lie within the region, which stays until the verdict. A remote that is not
  /// known (its peer was closed) gives `cancelled`; pieces outside the grant give `refused`.
  virtual OpId get(RemoteId from, RegionId into, std::span<const Piece> pieces, Done done) = 0;
  virtual OpId put(RemoteId to, RegionId from, std::span<const Piece> pieces, Done done) = 0;
  /// A wish: the operation still ends with its one verdict, soon.
  virtual void cancel(OpId op) = 0;

  // ---- progress ----

  /// Moves what can move and calls what is done. Returns: how many callbacks it made. Never blocks.
  virtual std::size_t progress() = 0;
  /// Becomes readable when progress() has something to do; after arm() returned true. A wake-up may
  /// be missed or spurious: bound the wait (5 ms).
  virtual int wait_fd() = 0;
  /// False: there is something to do now, do not wait.
  virtual bool arm() = 0;
};

}  // namespace infos
