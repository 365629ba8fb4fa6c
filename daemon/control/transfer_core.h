// SPDX-License-Identifier: Apache-2.0
// TransferCore decides how KV moves between this worker and others: leases, the ready clock, which
// pieces move when, what counts as proven, and when a block may be used again. Both roles: source
// of what others fetch, destination of what we fetch. One per worker process, on its transfer
// thread. Pure: no clock, thread, file or socket; its shell carries letters and moves bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "daemon/control/kv_messages.h"
#include "daemon/control/worker_core.h"
#include "topology/base/units.h"

namespace infos {

struct TransferConfig {
  WorkerRef self;
  KvIdentity identity;                ///< ours, as source and as destination
  std::uint32_t may_differ = 0;       ///< bits of KvField that our mover bridges
  KvPolicy policy = KvPolicy::exact;  ///< what our model's numerics allow it to convert
  std::uint32_t version = kKvVersion;
  std::uint32_t version_min = kKvVersion;
  std::uint64_t token_layer_bytes = 1;  ///< K and V of one token in one layer, all ranks
  std::uint64_t move_bytes_max = 8u << 20;
  std::uint32_t moves_per_fetch_max = 4;
  std::uint32_t moves_max = 16;                 ///< under way in this process
  std::uint32_t asks_max = 1024;                ///< of others, whose export is not there yet
  Duration resend = milliseconds(200);          ///< asks and renewals
  Duration lease_for = seconds(2);              ///< from the last word of the destination
  Duration silence_limit = milliseconds(1500);  ///< without a letter of the source
  Duration ask_wait = seconds(30);              ///< for the export that an early ask means
  Duration export_wait = seconds(30);           ///< for the ask that an export waits for
  Duration advance_pace = milliseconds(1);      ///< least time between two advances of a lease
  Duration fetch_limit = seconds(60);           ///< of a fetch as a whole
  Duration move_limit = seconds(3);  ///< of one move on an idle fast link; then it is cancelled ...
  std::uint64_t slowest_link = 10'000'000;    ///< bytes/s: what is under way gets time for that too
  Duration cancel_grace = milliseconds(100);  ///< ... and after this fenced
  Duration fence_limit = seconds(5);          ///< of a fence; then FenceOverdue
  friend bool operator==(const TransferConfig&, const TransferConfig&) = default;
};

// ---- events: FetchKv, AbandonFetch, ExportKv, AdvanceExport, EndExport, PeerGone, Tick and: ----

/// Of an export: layers [0, layers) of the tokens [0, tokens) are final, in `blocks` (from token
/// 0). Said by the engine's shell while a step runs; AdvanceExport says it of all layers.
struct LayersReady {
  EffectId id;
  std::uint32_t tokens = 0;
  std::uint32_t layers = 0;
  std::vector<BlockId> blocks;
  friend bool operator==(const LayersReady&, const LayersReady&) = default;
};
/// A letter for us. `from` is true, whatever the letter says.
struct KvReceived {
  WorkerRef from;
  KvMessage message;
  friend bool operator==(const KvReceived&, const KvReceived&) = default;
};
/// Answers OpenLease.
struct LeaseOpened {
  LeaseId lease;
  KvAccess access;
  std::string why;  ///< not empty: it cannot be opened
  friend bool operator==(const LeaseOpened&, const LeaseOpened&) = default;
};
/// Answers StampKv: the stamps are written and visible to readers.
struct Stamped {
  EffectId id;
  friend bool operator==(const Stamped&, const Stamped&) = default;
};
/// What the mover saw of one source block: the stamps of all layers and ranks of the move together.
struct SeenStamp {
  StampGeneration generation;  ///< that all of them name; 0: they differ
  std::uint32_t tokens = 0;    ///< the least that one of them names
  bool intact = false;         ///< every checksum matches the bytes that have landed
  friend bool operator==(const SeenStamp&, const SeenStamp&) = default;
};
enum class MoveVerdict : std::uint8_t {
  landed,     ///< all bytes and stamps are here; `seen` says what they prove
  cancelled,  ///< by CancelMove or a fence
  peer_lost,  ///< dead, stopped or unreachable
  refused,    ///< the source's side knows no such right
  failed,     ///< the link or the device; trying again may help
};
const char* to_string(MoveVerdict verdict);
/// Answers MoveKv, once; always before the Fenced of a FencePeer that was wished after the MoveKv.
struct MoveDone {
  EffectId id;
  MoveVerdict verdict = MoveVerdict::landed;
  std::vector<SeenStamp> seen;  ///< when landed: one per source block of the move
  /// The writer's quiesce acknowledgement: no byte of this move can land in our blocks any more.
  /// `landed` implies it. Otherwise its blocks wait for a fence.
  bool quiet = false;
  friend bool operator==(const MoveDone&, const MoveDone&) = default;
};
/// Answers FencePeer: from now on no byte of a move that was wished before it lands here.
struct Fenced {
  EffectId id;
  friend bool operator==(const Fenced&, const Fenced&) = default;
};
/// The plan has a new number.
struct EpochIs {
  Epoch epoch;
  friend bool operator==(const EpochIs&, const EpochIs&) = default;
};
using TransferEvent =
    std::variant<FetchKv, AbandonFetch, ExportKv, AdvanceExport, EndExport, LayersReady, KvReceived,
                 PeerGone, LeaseOpened, Stamped, MoveDone, Fenced, EpochIs, Tick>;

// ---- effects: FetchDone, ExportDone and: ----

struct SendKv {
  WorkerRef to;
  KvMessage message;
  friend bool operator==(const SendKv&, const SendKv&) = default;
};
/// How the source of a fetch is reached. Before the fetch's first MoveKv; links that break are made
/// again when the next MoveKv needs one. What does not work shows as verdicts of moves.
struct AttachSource {
  EffectId fetch;
  WorkerRef source;
  KvIdentity identity;  ///< the source's
  KvAccess access;
  friend bool operator==(const AttachSource&, const AttachSource&) = default;
};
/// The fetch needs its links no more. None of its moves is under way.
struct DetachSource {
  EffectId fetch;
  friend bool operator==(const DetachSource&, const DetachSource&) = default;
};
/// A block of the source, and the stamp that must be found with its bytes.
struct SourceBlock {
  BlockId block;
  StampGeneration generation;
  std::uint32_t tokens = 0;  ///< that the stamp covers, of this block
  friend bool operator==(const SourceBlock&, const SourceBlock&) = default;
};
/// Bring layers [layer_begin, layer_end) of the tokens [begin, end) here, with their stamps, into
/// our layout. Answered by exactly one MoveDone.
struct MoveKv {
  EffectId id;
  EffectId fetch;
  std::uint32_t begin = 0, end = 0;
  std::uint32_t layer_begin = 0, layer_end = 0;
  std::uint32_t source_begin = 0;    ///< the token at which sources[0] begins, <= begin
  std::vector<SourceBlock> sources;  ///< one after the other
  std::uint32_t into_begin = 0;      ///< the token at which into[0] begins, <= begin
  std::vector<BlockId> into;         ///< our blocks, one after the other
  friend bool operator==(const MoveKv&, const MoveKv&) = default;
};
/// A wish: the move still ends with its one MoveDone, soon.
struct CancelMove {
  EffectId id;
  friend bool operator==(const CancelMove&, const CancelMove&) = default;
};
/// Make sure that no byte from the peer lands here any more. Answered by exactly one Fenced.
struct FencePeer {
  EffectId id;
  WorkerRef peer;
  friend bool operator==(const FencePeer&, const FencePeer&) = default;
};
/// A fence is not answered. Nothing but the end of this process can prove the blocks safe: the
/// shell ends it.
struct FenceOverdue {
  WorkerRef peer;
  friend bool operator==(const FenceOverdue&, const FenceOverdue&) = default;
};
/// Let `reader` read our KV pool and stamps. Answered by exactly one LeaseOpened.
struct OpenLease {
  LeaseId lease;
  WorkerRef reader;
  friend bool operator==(const OpenLease&, const OpenLease&) = default;
};
/// Write the stamps {generation, tokens, checksum of the bytes} of layers [layer_begin, layer_end)
/// of these blocks. Their bytes are final. Answered by one Stamped, unless CloseLease comes first.
struct StampKv {
  EffectId id;
  LeaseId lease;
  std::uint32_t layer_begin = 0, layer_end = 0;
  std::vector<SourceBlock> blocks;
  friend bool operator==(const StampKv&, const StampKv&) = default;
};
/// The lease is over: its StampKvs that wait are dropped, the stamps of `unstamp` are made invalid
/// before this returns, what was granted to its reader is taken back.
struct CloseLease {
  LeaseId lease;
  std::vector<BlockId> unstamp;
  friend bool operator==(const CloseLease&, const CloseLease&) = default;
};
using TransferEffect =
    std::variant<SendKv, AttachSource, DetachSource, MoveKv, CancelMove, FencePeer, FenceOverdue,
                 OpenLease, StampKv, CloseLease, FetchDone, ExportDone>;
using TransferEffects = std::vector<TransferEffect>;

/// Where a block of ours stands that a fetch may write.
enum class KvBlockState : std::uint8_t { reserved, filling, verifying, ready, quarantined };
const char* to_string(KvBlockState state);

/// What a TransferCore holds, for metrics and for invariants in tests and the simulator.
struct TransferAudit {
  struct Block {
    BlockId block;
    EffectId fetch;
    KvBlockState state = KvBlockState::reserved;
  };
  std::vector<Block> blocks;  ///< of fetches, by block
  std::uint32_t fetches = 0;
  std::uint32_t exports = 0;  ///< ExportKv without ExportDone
  std::uint32_t leases = 0;
  std::uint32_t asks = 0;            ///< that wait for their export
  std::uint32_t moves = 0;           ///< under way
  std::uint32_t fences = 0;          ///< not answered yet
  std::uint32_t stamped_blocks = 0;  ///< under at least one lease
  std::string broken;                ///< what the core itself found wrong, empty if nothing
};

class TransferCore {
 public:
  explicit TransferCore(const TransferConfig& config);
  ~TransferCore();
  TransferCore(TransferCore&&) noexcept;
  TransferCore& operator=(TransferCore&&) noexcept;

  /// Accepts every event in every state; appends its wishes to `out` in the order in which they
  /// must be done.
  void step(Time now, const TransferEvent& event, TransferEffects& out);
  /// When a Tick is wanted, kNever if never.
  Time next_deadline() const;
  TransferAudit audit() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace infos
