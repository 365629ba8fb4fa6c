// SPDX-License-Identifier: Apache-2.0
// TransferPort: what the worker's loop, its socket reader and the engine need of the transfer
// thread. Everything may be called from any thread; nothing here waits for a transfer.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "daemon/control/messages.h"
#include "daemon/control/transfer_core.h"
#include "daemon/control/worker_core.h"

namespace infos {

class TransferPort {
 public:
  /// How the transfer thread reaches the loop, from any thread. `send` puts a letter on the socket,
  /// `wake` makes the loop look for answers.
  struct Loop {
    std::function<void(KvLetter letter)> send;
    std::function<void()> wake;
  };

  virtual ~TransferPort() = default;
  /// From here on letters and answers go to `loop`; with an empty one none do, and none are under
  /// way when this returns.
  virtual void attach(Loop loop) = 0;

  /// FetchKv, AbandonFetch, ExportKv, AdvanceExport, EndExport, PeerGone, EpochIs, in order.
  virtual void give(TransferEvent event) = 0;
  /// A letter as it came; one that makes no sense is dropped.
  virtual void give_letter(KvLetter letter) = 0;
  /// FetchDone and ExportDone that have come since.
  virtual void take(std::vector<WorkerEvent>& answers) = 0;

  /// A step is about to run that computes rows of exports: each with the tokens that will be final
  /// and its blocks; `layers` is not looked at. May be left out for steps without exports.
  virtual void step_begins(std::vector<LayersReady> exports) = 0;
  /// ... and has ended; after every step_begins.
  virtual void step_ends() = 0;
  /// The layer of all rows of the step that runs is final. One store, and a wake-up when the
  /// transfer thread sleeps and the step has exports.
  virtual void layer_done(std::uint32_t layer) = 0;
};

}  // namespace infos
