// SPDX-License-Identifier: Apache-2.0
// The inside of TransferThread: transfer_thread.cc has the thread and its inbox,
// transfer_effects.cc performs the core's effects.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/runtime/transfer_thread.h"
#include "daemon/runtime/unique_fd.h"
#include "transports/kv/exporter.h"
#include "transports/kv/mover.h"

namespace infos {

/// The exports of the step that runs, and which run of the layer clock is theirs.
struct TransferStep {
  std::uint64_t serial = 0;
  std::vector<LayersReady> exports;
};

class TransferThread::Shell {
 public:
  Shell(TransferLinks& links, const TransferOptions& options);
  ~Shell();
  Status prepare();
  void run();
  void stop();
  bool quiesce();

  // ---- any thread ----

  void attach(Loop loop);
  void put(std::variant<TransferEvent, TransferStep> item);
  void take(std::vector<WorkerEvent>& answers);
  void step_begins(std::vector<LayersReady> exports);
  void step_ends();
  void layer_done(std::uint32_t layer);

 private:
  /// A source that a fetch may read, reached when its first move wants it.
  struct Attached {
    WorkerRef worker;
    KvAccess access;
    KvLayout layout;
    std::string refused;  ///< why it cannot be used
    std::optional<TransferLink> link;
    KvSourceId source;
    std::vector<RemoteId> remotes;
  };
  struct MoveRef {
    EffectId fetch;
    KvMoveId move;
    std::vector<SourceBlock> sources;
  };
  struct Granted {
    std::uint32_t transport = 0;
    GrantId grant;
  };
  struct StampJob {
    StampKv wish;
    std::size_t next = 0;  ///< block
  };

  // transfer_thread.cc
  void wake();
  std::uint64_t next_serial();
  void wait();
  bool turn();
  void feed(const TransferEvent& event);
  void look_at_layers();
  void answer(WorkerEvent event);
  bool stamp_some();

  // transfer_effects.cc
  void perform(TransferEffect& effect);
  void on(SendKv& e);
  void on(AttachSource& e);
  void on(const DetachSource& e);
  void on(MoveKv& e);
  void on(const CancelMove& e);
  void on(const FencePeer& e);
  void on(const FenceOverdue& e);
  void on(const OpenLease& e);
  void on(StampKv& e);
  void on(const CloseLease& e);
  void on(FetchDone& e);
  void on(ExportDone& e) { answer(e); }
  void fence(const WorkerRef& peer, std::function<void()> done);
  Status reach(Attached& attached);
  Result<KvRemote> remote_of(Attached& attached, const TransferLink& link);
  void leave(Attached& attached);
  void moved(EffectId id, KvMoved result);
  Result<KvAccess> grant(LeaseId lease);
  void revoke(LeaseId lease);

  TransferLinks& links_;
  TransferOptions options_;
  std::unique_ptr<TransferCore> core_;
  std::unique_ptr<KvMover> mover_;
  std::optional<KvExporter> exporter_;
  std::vector<const SharedMemory*> pools_, stamps_;  ///< by rank
  const SharedMemory* staging_ = nullptr;

  // The transfer thread's.
  TransferEffects effects_;
  std::deque<TransferEvent> queue_;  ///< answers to effects, told one after the other
  std::map<EffectId, Attached> attached_;
  std::map<EffectId, MoveRef> moves_;
  std::map<LeaseId, std::vector<Granted>> granted_;
  std::deque<StampJob> stamp_jobs_;
  TransferStep step_;
  std::uint32_t layers_told_ = 0;
  std::vector<int> fds_;
  std::vector<pollfd> polled_;
  std::vector<std::variant<TransferEvent, TransferStep>> arrived_;

  // Shared.
  UniqueFd wake_fd_;
  std::atomic<bool> asleep_{false};
  std::atomic<bool> stopping_{false};
  /// Serial of the running step << 16 | layers of it that are final. Written by the loop's thread
  /// and the engine's, which never do so at one time. Sequentially consistent, like asleep_: either
  /// the writer sees the sleeper or the sleeper sees the layer.
  std::atomic<std::uint64_t> layer_clock_{0};
  std::mutex mutex_;  ///< inbox and answers
  std::vector<std::variant<TransferEvent, TransferStep>> inbox_;
  std::vector<WorkerEvent> answers_;
  std::atomic<bool> answered_{false};
  std::mutex loop_mutex_;  ///< held while the loop is called
  Loop loop_;
  std::thread thread_;
};

}  // namespace infos
