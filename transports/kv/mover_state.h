// SPDX-License-Identifier: Apache-2.0
// The inside of KvMover, shared by its two halves: mover.cc takes sources and moves,
// mover_window.cc asks for bytes, window by window, and proves what has landed.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "transports/kv/mover.h"
#include "transports/kv/reshard.h"
#include "transports/kv/staging.h"
#include "transports/kv/unit.h"

namespace infos {

struct KvMover::State {
  /// What is compiled for a source.
  struct Source {
    KvSourceId id;
    KvRemote remote;
    ReshardProgram direct;  ///< source -> ours
    ReshardProgram stage;   ///< source -> staging
    ReshardProgram land;    ///< staging -> ours
    std::uint64_t unit_bytes = 0;
    bool may_go_direct = false;
    bool closed = false;     ///< detached; lives until its last staging is free
    std::uint32_t held = 0;  ///< windows whose staging waits for the fence
  };

  struct Move {
    KvMoveId id;
    Source* source = nullptr;
    KvMove wish;
    KvMover::Done done;
    std::uint32_t next_unit = 0;  ///< units are (block, layer), layers inner
    std::uint32_t windows_open = 0;
    Verdict verdict = Verdict::ok;
    bool asked = false;  ///< a get was given
    std::vector<KvSeen> seen;

    std::uint32_t layers() const { return wish.layer_end - wish.layer_begin; }
    std::uint32_t units() const {
      return static_cast<std::uint32_t>(wish.sources.size()) * layers();
    }
  };

  /// Part of a window: layers [layer_begin, layer_end) of one source block.
  struct Slice {
    std::uint32_t index = 0;  ///< of the source block in the move
    std::uint32_t layer_begin = 0, layer_end = 0;
    bool direct = false;
    std::uint64_t stamps = 0;  ///< in the staging: [ranks, layers]
    std::uint64_t bytes = 0;   ///< likewise: [ranks, layers] units; unless direct
    std::uint32_t layers() const { return layer_end - layer_begin; }
  };

  struct Window {
    Move* move = nullptr;
    std::vector<Slice> slices;
    StagingPart staging;
    std::vector<OpId> ops;
    std::uint32_t open = 0;
    Verdict verdict = Verdict::ok;
  };

  State(const KvLayout& own_layout, std::vector<std::byte*> pool_bases,
        std::span<std::byte> staging_memory, const KvMoverOptions& o)
      : own(own_layout), pools(std::move(pool_bases)), options(o), staging(staging_memory) {
    for (std::byte* pool : pools) pools_const.push_back(pool);
  }

  KvLayout own;
  std::vector<std::byte*> pools;
  std::vector<const std::byte*> pools_const;
  KvMoverOptions options;
  Staging staging;
  std::map<KvSourceId, std::unique_ptr<Source>> sources;
  std::map<KvMoveId, std::unique_ptr<Move>> moves;
  std::deque<Move*> waiting;  ///< have units that no window has taken
  std::vector<std::unique_ptr<Window>> idle;
  std::map<Window*, std::unique_ptr<Window>> busy;
  std::vector<std::pair<Source*, StagingPart>> held;  ///< may still be written to
  KvMoverStats stats;
  std::uint32_t last_source = 0;
  std::uint64_t last_move = 0;
  bool pumping = false;
  // Scratch, kept for its capacity.
  std::vector<KvCopy> copies, runs;
  std::vector<Piece> pieces;
  std::vector<const std::byte*> bases;

  Status check(const KvRemote& remote) const;
  bool makes_sense(const Source& source, const KvMove& wish) const;
  KvPart part_of(const Move& move, const Slice& slice) const;
  bool goes_direct(const Move& move, std::uint32_t index) const;

  void pump();
  bool open_window(Move& move);
  void cut(Move& move, Window& window, std::uint64_t& staged_bytes);
  void ask(Window& window);
  void ask_rank(Window& window, std::uint32_t rank);
  void get(Window& window, RemoteId from, RegionId into);
  void on_verdict(Window* window, Verdict verdict);
  void land(Window& window);
  void prove(Move& move, const Slice& slice);
  void close_window(Window& window);
  void finish(Move& move);
};

}  // namespace infos
