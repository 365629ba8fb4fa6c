// SPDX-License-Identifier: Apache-2.0
// What two workers say to each other about KV: the body of a KvLetter. The destination asks, renews
// and releases; the source offers, refuses and advances its ready clock. Every letter is idempotent
// and may be lost, late, doubled or out of order. docs/kv-transfer.md is the protocol.
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "daemon/control/messages.h"
#include "topology/base/ids.h"
#include "topology/base/units.h"
#include "topology/model/kv_layout.h"

namespace infos {

using LeaseId = Id<struct LeaseTag>;  ///< one reading of one export, counted by the source process
using StampGeneration =
    Id<struct StampTag>;  ///< one tenure of a source block under leases; 0: none

constexpr std::uint32_t kKvVersion = 1;  ///< what this build speaks; it understands N - 1 too
/// Bound on a letter's body, checked before anything is allocated for it.
constexpr std::size_t kKvLetterBytesMax = 1u << 20;

/// Names a fetch for both sides.
struct TransferId {
  RequestId request;
  Attempt attempt;
  std::uint64_t serial = 0;  ///< counts the destination process's fetches, from 1
  friend auto operator<=>(const TransferId&, const TransferId&) = default;
};

/// What is compared, by name, before KV may move.
enum class KvField : std::uint8_t {
  model,
  checkpoint,
  plugin_build,
  epoch,
  layers,
  kv_heads,
  head_dim,
  dtype,
  block_size,
  ranks,
  layout,
};
constexpr std::uint32_t kKvFields = 11;
const char* to_string(KvField field);
constexpr std::uint32_t bit(KvField field) { return 1U << static_cast<std::uint32_t>(field); }
/// The fields that a destination may be able to bridge by resharding; the others never.
constexpr std::uint32_t kKvBridgeable = bit(KvField::plugin_build) | bit(KvField::dtype) |
                                        bit(KvField::block_size) | bit(KvField::ranks) |
                                        bit(KvField::layout);

struct KvIdentity {
  std::string model;         ///< the name it serves
  std::string checkpoint;    ///< identity of the weights
  std::string plugin_build;  ///< of the backend that computes the KV
  Epoch epoch;               ///< of the plan
  std::uint32_t layers = 0;
  std::uint32_t kv_heads = 0;  ///< of all ranks
  std::uint32_t head_dim = 0;
  std::string dtype;               ///< "bf16", "int8"
  std::uint32_t block_tokens = 0;  ///< tokens of a block
  std::uint32_t ranks = 0;         ///< tensor-parallel parts
  std::string layout;              ///< order of the bytes, in words that both sides compare
  friend bool operator==(const KvIdentity&, const KvIdentity&) = default;
};

struct KvMismatch {
  KvField field = KvField::model;
  std::string message;  ///< the field, both values
};
/// The first field in which the two differ and that is not in `may_differ` (bits of KvField, of
/// which only kKvBridgeable count).
std::optional<KvMismatch> mismatch(const KvIdentity& source, const KvIdentity& destination,
                                   std::uint32_t may_differ);

/// What a worker with this layout says of itself: its `layout` word is the layout's whole text.
KvIdentity identity_of(const std::string& model, Epoch epoch, const KvLayout& layout);
/// The fields that the mover bridges for a model with this policy. Whether one given pair of
/// layouts may be converted is decided by reasons_against() once both are known.
std::uint32_t bridges(KvPolicy policy);
/// Why the source's KV must not be converted into the destination's layout; empty if it may, or if
/// one of the two does not tell its layout.
std::string reasons_against(const KvIdentity& source, const KvIdentity& destination,
                            KvPolicy policy);

/// One way to reach the source's memory; opaque to the core.
struct KvEndpoint {
  std::uint32_t kind = 0;  ///< TransportKind
  std::string host;        ///< identity of the machine, for transports within one
  std::string address;     ///< Transport::address()
  friend bool operator==(const KvEndpoint&, const KvEndpoint&) = default;
};
/// The right to read one rank's memory over one endpoint.
struct KvGrant {
  std::uint32_t endpoint = 0;  ///< index into the endpoints
  std::uint32_t rank = 0;
  std::string pool_key;   ///< Transport::key() of the KV pool
  std::string stamp_key;  ///< ... and of the stamps beside it
  std::string layout;     ///< the rank's exact byte layout, encoded by those who move bytes
  friend bool operator==(const KvGrant&, const KvGrant&) = default;
};
struct KvAccess {
  std::vector<KvEndpoint> endpoints;
  std::vector<KvGrant> grants;
  friend bool operator==(const KvAccess&, const KvAccess&) = default;
};

// ---- destination -> source ----

/// Wants the KV of tokens [begin, end). Said again until it is answered.
struct KvAsk {
  TransferId transfer;
  std::uint32_t version = 0;      ///< the newest protocol it speaks ...
  std::uint32_t version_min = 0;  ///< ... and the oldest
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  KvIdentity identity;
  std::uint32_t may_differ = 0;  ///< bits of KvField that it bridges
  friend bool operator==(const KvAsk&, const KvAsk&) = default;
};
/// Still working: the lease's deadline moves. Answered by a KvAdvance.
struct KvRenew {
  TransferId transfer;
  LeaseId lease;
  std::uint32_t blocks_known = 0;  ///< leading blocks of the source's table that it knows
  friend bool operator==(const KvRenew&, const KvRenew&) = default;
};
enum class KvReleaseHow : std::uint8_t { done, aborted };
/// Reads no more. Said once, and again to whoever speaks of a transfer that is over.
struct KvRelease {
  TransferId transfer;
  LeaseId lease;  ///< 0: it never heard of one
  KvReleaseHow how = KvReleaseHow::done;
  friend bool operator==(const KvRelease&, const KvRelease&) = default;
};

// ---- source -> destination ----

/// The ask is known; the export does not exist yet or is being opened. Ask again.
struct KvHold {
  TransferId transfer;
  friend bool operator==(const KvHold&, const KvHold&) = default;
};
/// May be read, until `lease_for` after the last KvRenew arrived here.
struct KvOffer {
  TransferId transfer;
  LeaseId lease;
  std::uint32_t version = 0;  ///< the protocol to be spoken
  Duration lease_for;
  std::uint32_t tokens = 0;  ///< how many leading tokens there will be
  KvIdentity identity;
  KvAccess access;
  friend bool operator==(const KvOffer&, const KvOffer&) = default;
};
/// There is nothing to read (any more).
struct KvRefuse {
  TransferId transfer;
  LeaseId lease;        ///< the lease that ended; 0: of the ask
  std::string field;    ///< what differs: a KvField's name, "protocol", "request", "sink", ...
  std::string message;  ///< one sentence
  friend bool operator==(const KvRefuse&, const KvRefuse&) = default;
};
/// `blocks` more blocks have their first `layers` layers final and stamped.
struct KvReady {
  std::uint32_t blocks = 0;
  std::uint32_t layers = 0;
  friend bool operator==(const KvReady&, const KvReady&) = default;
};
/// The ready clock. Cumulative: the newest says all, but for the part of the block table that the
/// destination is known to have.
struct KvAdvance {
  TransferId transfer;
  LeaseId lease;
  std::uint64_t sequence = 0;  ///< grows with every change
  std::uint32_t first = 0;     ///< index of blocks[0] in the source's table
  std::vector<BlockId> blocks;
  std::vector<StampGeneration> generations;  ///< of `blocks`
  std::vector<KvReady> ready;                ///< runs, from block 0
  friend bool operator==(const KvAdvance&, const KvAdvance&) = default;
};

using KvMessage = std::variant<KvAsk, KvRenew, KvRelease, KvHold, KvOffer, KvRefuse, KvAdvance>;
const TransferId& transfer_of(const KvMessage& message);

}  // namespace infos
