// SPDX-License-Identifier: Apache-2.0
// TransferThread: the shell of TransferCore. One thread that owns the core, the transports, the
// mover and the stamps: feeds events, performs effects in order, decides nothing. Made after the
// engine, whose KV pools it lets others read, and ended before it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/control/transfer_core.h"
#include "daemon/runtime/transfer_links.h"
#include "daemon/runtime/transfer_port.h"
#include "topology/base/result.h"
#include "topology/model/kv_layout.h"

namespace infos {

struct TransferOptions {
  TransferConfig core;  ///< `self`, limits; identity and sizes are filled in from the layout
  Epoch epoch;
  std::string model_name;  ///< what it serves
  KvPolicy policy = KvPolicy::exact;
  KvLayout layout;                ///< of the engine's pools
  std::vector<std::byte*> pools;  ///< by rank; from TransferLinks::allocate
  std::uint64_t staging_bytes = 32u << 20;
};

class TransferThread final : public TransferPort {
 public:
  /// `links` outlives it. Errors: invalid_argument (pools and layout do not fit),
  /// resource_exhausted (no memory for stamps or staging).
  static Result<std::unique_ptr<TransferThread>> start(TransferLinks& links,
                                                       const TransferOptions& options);
  ~TransferThread() override;

  void attach(Loop loop) override;
  void give(TransferEvent event) override;
  void give_letter(KvLetter letter) override;
  void take(std::vector<WorkerEvent>& answers) override;
  void step_begins(std::vector<LayersReady> exports) override;
  void step_ends() override;
  void layer_done(std::uint32_t layer) override;

 private:
  class Shell;
  explicit TransferThread(std::unique_ptr<Shell> shell);
  std::unique_ptr<Shell> shell_;
};

}  // namespace infos
