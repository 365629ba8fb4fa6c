// SPDX-License-Identifier: Apache-2.0
// KvMover: brings KV of other workers into our pools. Turns a move (tokens, layers, blocks of both
// sides) into gets of bytes and stamps, straight into place where the layouts agree in long runs,
// else through a staging arena and a conversion; then says which source blocks the stamps prove.
// Decides nothing about leases, retries or use. Runs on the thread that owns the transports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "topology/base/ids.h"
#include "topology/base/result.h"
#include "topology/model/kv_layout.h"
#include "transports/transport.h"

namespace infos {

using KvSourceId = Id<struct KvSourceTag, std::uint32_t>;  ///< an attached source
using KvMoveId = Id<struct KvMoveTag>;

/// Our memory as one transport knows it.
struct KvMemory {
  std::vector<RegionId> pools;  ///< by rank
  RegionId staging;
};

/// A source as one transport reaches it. Remotes of both kinds begin where pool and table begin.
struct KvRemote {
  Transport* transport = nullptr;
  KvMemory memory;
  KvLayout layout;
  std::vector<RemoteId> pools;   ///< by rank of the source
  std::vector<RemoteId> stamps;  ///< likewise
};

/// A source block: how many of its leading tokens its stamp is expected to cover.
struct KvSourceBlock {
  BlockId block;
  std::uint32_t tokens = 0;
};

/// Layers [layer_begin, layer_end) of the tokens [begin, end).
struct KvMove {
  std::uint32_t begin = 0, end = 0;
  std::uint32_t layer_begin = 0, layer_end = 0;
  std::uint32_t source_begin = 0;      ///< the token at which sources[0] begins, <= begin
  std::vector<KvSourceBlock> sources;  ///< one after the other, up to `end`
  std::uint32_t into_begin = 0;        ///< the token at which into[0] begins, <= begin
  std::vector<BlockId> into;
};

/// What the stamps of one source block say, all layers and ranks of the move together.
struct KvSeen {
  std::uint64_t generation = 0;  ///< that all name; 0: they differ, or one is not valid
  std::uint32_t tokens = 0;      ///< the least that one names
  bool intact = false;           ///< every hash is that of the bytes which have landed
  friend bool operator==(const KvSeen&, const KvSeen&) = default;
};

struct KvMoved {
  Verdict verdict = Verdict::ok;
  std::vector<KvSeen> seen;  ///< when ok: one for each source block
  /// No byte of the move can land in our blocks any more; true when ok.
  bool quiet = false;
};

struct KvMoverOptions {
  std::uint64_t window_bytes = 1u << 20;  ///< asked for at a time
  std::uint32_t windows_max = 8;          ///< under way at a time
};

struct KvMoverStats {
  std::uint64_t bytes_direct = 0, bytes_staged = 0;
  std::uint64_t pieces = 0;
  std::uint64_t units_proven = 0, units_refused = 0;
  std::uint64_t staging_used = 0;  ///< bytes, now
  std::uint32_t moves_open = 0;
};

class KvMover {
 public:
  using Done = std::function<void(KvMoveId move, KvMoved moved)>;

  /// `pools` are our ranks' bases, `staging` is memory for windows in flight. Both outlive this.
  KvMover(const KvLayout& own, std::vector<std::byte*> pools, std::span<std::byte> staging,
          const KvMoverOptions& options = {});
  ~KvMover();
  KvMover(const KvMover&) = delete;
  KvMover& operator=(const KvMover&) = delete;

  /// Compiles the programs of a pair of layouts, once. Errors: invalid_argument (another model, or
  /// remotes that do not fit its ranks), resource_exhausted: a unit is larger than the staging.
  Result<KvSourceId> attach(const KvRemote& remote);
  /// Requires: no move from it is open.
  void detach(KvSourceId source);
  /// The source's peer has been fenced: nothing of earlier moves can land, staging of windows that
  /// failed may be used again. Its remotes are void: detach, attach anew.
  void fenced(KvSourceId source);

  /// `done` is called once, from inside the transport's progress() or fence(), or for a move that
  /// makes no sense before this returns.
  KvMoveId start(KvSourceId source, KvMove move, Done done);
  /// A wish: the move still ends with its one `done`.
  void cancel(KvMoveId move);

  KvMoverStats stats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace infos
