// SPDX-License-Identifier: Apache-2.0
// The inside of TransferCore, shared by its parts: transfer_core.cc (dispatch, deadlines, audit),
// transfer_source.cc (exports and leases), transfer_fetch.cc (fetches and letters of the
// destination), transfer_moves.cc (moves and fences).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/kv_ledger.h"
#include "daemon/control/mutant.h"
#include "daemon/control/transfer_core.h"

namespace infos {

constexpr std::uint32_t kTriesMax = 2;   ///< of one piece
constexpr std::uint32_t kFencesMax = 3;  ///< that one fetch lives through
constexpr std::size_t kEndedMax = 1024;  ///< exports that are remembered as ended

// ---- destination ----

/// One source block as the destination knows it.
struct Column {
  BlockId block;
  StampGeneration generation;
  std::uint32_t ready = 0;   ///< leading layers that may be read
  std::uint32_t issued = 0;  ///< leading layers that moves were made for
  std::uint32_t proven = 0;  ///< how many layers are here and proven
};
/// A rectangle of source blocks by layers.
struct Rect {
  std::uint32_t column_begin = 0, column_end = 0;
  std::uint32_t layer_begin = 0, layer_end = 0;
  std::uint32_t tries = 0;  ///< that failed
};
enum class FetchPhase : std::uint8_t { asking, fetching, stopping };
struct Fetch {
  FetchKv wish;
  TransferId transfer;
  FetchPhase phase = FetchPhase::asking;
  std::uint32_t end = 0;           ///< of what will be fetched: wish.end or what is offered
  LeaseId lease;                   ///< 0 until offered
  std::uint32_t source_block = 0;  ///< tokens
  std::uint32_t offered_tokens = 0;
  std::uint64_t sequence = 0;    ///< of the newest advance
  std::uint32_t known = 0;       ///< leading columns whose block is known
  std::vector<Column> columns;   ///< from the source's block 0
  std::uint32_t first_open = 0;  ///< no column before it has layers that were not issued
  std::vector<Rect> again;       ///< to be moved once more
  std::uint32_t moves = 0;       ///< that may still write
  std::uint32_t fences = 0;      ///< it was subject to
  Time began, heard, resend_at;
  std::string why;                  ///< it ends short
  std::uint64_t bytes = 0;          ///< landed
  Time last_landed, idle_since;     ///< no move under way since then
  Duration waited;                  ///< without a move under way, before `idle_since`
  std::vector<Duration> landed_at;  ///< per layer, the newest

  std::uint32_t first_column() const { return wish.begin / source_block; }
};
enum class MovePhase : std::uint8_t {
  moving,
  cancelling,  ///< CancelMove was said
  suspect,     ///< ended without proof, or its peer is being fenced
};
struct MoveState {
  EffectId fetch;
  WorkerRef peer;
  Rect rect;
  MovePhase phase = MovePhase::moving;
  bool answered = false;  ///< its MoveDone came
  bool late = false;      ///< it had run out of time
  std::uint64_t bytes = 0;
  Time deadline;  ///< of `moving` and `cancelling`
};
struct Fence {
  EffectId id;
  Time deadline;
  bool overdue = false;
};

// ---- source ----

using RequestKey = std::pair<RequestId, Attempt>;

struct Export {
  ExportKv wish;
  std::vector<BlockId> blocks;
  std::vector<std::uint32_t> final_layers;  ///< per block: leading layers whose bytes are final
  LeaseId lease;                            ///< 0: nobody reads
  Time deadline;                            ///< while nobody does
};
struct Lease {
  EffectId of;  ///< the export
  TransferId transfer;
  WorkerRef reader;
  std::uint32_t version = 0;
  bool open = false;  ///< LeaseOpened came
  KvAccess access;
  Time deadline;
  std::uint32_t joined = 0;  ///< leading blocks of the export that are in the stamp book for it
  std::uint32_t wished = 0;  ///< leading blocks of which the stamps of all layers are wished
  std::uint32_t whole = 0;   ///< leading blocks of which all stamps are visible
  std::uint32_t acked = 0;   ///< leading blocks that the reader knows
  std::uint64_t sequence = 0;
  std::vector<KvReady> said;  ///< ready runs of the last advance
  bool answer_due = false;    ///< a renewal wants an answer
  bool look = false;          ///< there may be something new to say
  Time paced_until;           ///< no advance before
};
struct PendingStamp {
  LeaseId lease;
  std::vector<BlockId> blocks;
  std::uint32_t layers = 0;  ///< leading layers stamped when it is done
};
struct PendingAsk {
  KvAsk ask;
  Time until;
};

struct TransferCore::State {
  /// No two processes of a worker slot give the same stamp generation or lease id.
  explicit State(const TransferConfig& wanted)
      : config(wanted),
        last_lease(std::uint64_t{wanted.self.generation.value} << 32),
        stamps(last_lease) {}

  // transfer_fetch.cc
  void on(Time now, const FetchKv& event, TransferEffects& out);
  void on(Time now, const AbandonFetch& event, TransferEffects& out);
  void hear(Time now, WorkerRef from, const KvHold& m, TransferEffects& out);
  void hear(Time now, WorkerRef from, const KvOffer& m, TransferEffects& out);
  void hear(Time now, WorkerRef from, const KvRefuse& m, TransferEffects& out);
  void hear(Time now, WorkerRef from, const KvAdvance& m, TransferEffects& out);
  Fetch* fetch_of(WorkerRef from, const TransferId& transfer);
  std::string unusable(const KvOffer& m, const Fetch& fetch) const;
  void say_ask(Time now, Fetch& fetch, TransferEffects& out);
  void say_renew(Time now, Fetch& fetch, TransferEffects& out);
  void stop(Time now, Fetch& fetch, std::string why, TransferEffects& out);
  void finish_if_over(EffectId id, TransferEffects& out);
  std::uint32_t proven_tokens(const Fetch& fetch) const;
  void fetches_due(Time now, TransferEffects& out);

  // transfer_moves.cc
  void on(Time now, const MoveDone& event, TransferEffects& out);
  void on(Time now, const Fenced& event, TransferEffects& out);
  void pump(Time now, TransferEffects& out);
  bool issue_one(Time now, Fetch& fetch, TransferEffects& out);
  std::optional<Rect> next_rect(Fetch& fetch);
  void issue(Time now, Fetch& fetch, const Rect& rect, TransferEffects& out);
  void verify(Time now, Fetch& fetch, const MoveState& move, const MoveDone& event,
              TransferEffects& out);
  void landed(Time now, Fetch& fetch, const Rect& rect) const;
  void not_landed(Time now, Fetch& fetch, const MoveState& move, MoveVerdict verdict,
                  TransferEffects& out);
  void try_again(Time now, Fetch& fetch, Rect rect, const char* why, TransferEffects& out);
  void start_fence(Time now, WorkerRef peer, TransferEffects& out);
  void end_move(EffectId id, std::uint64_t landed_layers);
  /// Planted bugs do this: nothing proves that these can write no more.
  void forget_moves(const std::function<bool(const MoveState&)>& which);
  SourceBlock offered_block(const Fetch& fetch, std::uint32_t column) const;
  std::pair<std::uint32_t, std::uint32_t> tokens_of(const Fetch& fetch, std::uint32_t begin,
                                                    std::uint32_t end) const;
  void moves_due(Time now, TransferEffects& out);

  // transfer_source.cc
  void on(Time now, const ExportKv& event, TransferEffects& out);
  void on(Time now, const AdvanceExport& event, TransferEffects& out);
  void on(Time now, const LayersReady& event, TransferEffects& out);
  void on(Time now, const EndExport& event, TransferEffects& out);
  void on(Time now, const LeaseOpened& event, TransferEffects& out);
  void on(Time now, const Stamped& event, TransferEffects& out);
  void hear(Time now, WorkerRef from, const KvAsk& m, TransferEffects& out);
  void hear(Time now, WorkerRef from, const KvRenew& m, TransferEffects& out);
  void hear(Time now, WorkerRef from, const KvRelease& m, TransferEffects& out);
  void grant(Time now, Export& wanted, WorkerRef from, const KvAsk& m, TransferEffects& out);
  void advance(Export& of, std::uint32_t tokens, std::uint32_t layers,
               const std::vector<BlockId>& blocks, TransferEffects& out);
  void stamp(LeaseId id, Lease& lease, TransferEffects& out);
  void say_offer(LeaseId id, const Lease& lease, TransferEffects& out);
  void say_advance(Time now, LeaseId id, Lease& lease, TransferEffects& out);
  void refuse(WorkerRef to, const TransferId& transfer, LeaseId lease, std::string field,
              std::string message, TransferEffects& out);
  void close_lease(LeaseId id, TransferEffects& out);
  /// `message` not empty: the reader is told.
  void end_export(EffectId id, const std::string& message, TransferEffects& out);
  void leases_due(Time now, TransferEffects& out);
  std::uint32_t tokens_in_block(const Export& of, std::uint32_t index) const;

  // transfer_core.cc
  void on(Time now, const KvReceived& event, TransferEffects& out);
  void on(Time now, const PeerGone& event, TransferEffects& out);
  void on(Time now, const EpochIs& event, TransferEffects& out);
  void on(Time now, const Tick& event, TransferEffects& out);
  EffectId next_id() { return EffectId{++last_id}; }

  TransferConfig config;
  std::uint64_t last_id = 0;
  std::uint64_t last_serial = 0;
  std::uint64_t last_lease;

  KvLedger ledger;
  std::map<EffectId, Fetch> fetches;
  std::map<TransferId, EffectId> by_transfer;
  std::map<EffectId, MoveState> moves;
  std::map<WorkerRef, Fence> fences;
  EffectId served_last;  ///< the fetch that got the last move

  StampBook stamps;
  std::map<EffectId, Export> exports;
  std::map<RequestKey, EffectId> by_request;
  std::map<LeaseId, Lease> leases;
  std::map<EffectId, PendingStamp> pending_stamps;
  std::map<std::pair<RequestKey, WorkerRef>, PendingAsk> asks;
  std::deque<RequestKey> ended;  ///< exports that have ended, the newest last
  std::set<RequestKey> ended_set;
};

}  // namespace infos
