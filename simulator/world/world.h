// SPDX-License-Identifier: Apache-2.0
// World: one node's gateway, agent and workers under a virtual clock. Performs the cores' effects
// on a modelled network and modelled devices, injects faults until it heals, and checks invariants.
// Owns all modelled state; decides nothing that a core decides.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "simulator/world/device_model.h"
#include "simulator/world/event_queue.h"
#include "simulator/world/ledger.h"
#include "simulator/world/run.h"
#include "simulator/world/workload.h"

namespace infos {

class World {
 public:
  explicit World(const SimulateOptions& options);
  SimulateReport run();

 private:
  using Kind = WorldEvent::Kind;
  /// A worker slot and the process in it.
  struct Slot {
    WorkerSpec spec;
    Generation generation;
    bool alive = false, serving = false, hung = false;
    std::optional<WorkerCore> core;
    std::optional<DeviceModel> device;
    Time slow_until;
    Time sent_to, sent_from;  ///< latest arrival of its two streams, which keep their order
    std::uint64_t preemptions = 0;
  };

  // world.cc: the loop and the cores
  void start();
  void happen(const WorldEvent& event);
  void arrive();
  bool is_quiet() const;
  void tell_gateway(const GatewayEvent& event);
  void tell_agent(const AgentEvent& event);
  void tell_worker(std::uint32_t slot, const WorkerEvent& event);
  template <typename Event, typename Effects>
  void note(std::uint64_t instance, const Event& event, const Effects& effects);
  void arm_ticks();
  void violated(const std::string& what);
  SimulateReport report();

  // world_workers.cc: what effects do
  void perform(Reject& effect) { violated(ledger_.told(now_, effect)); }
  void perform(Deliver& effect) { violated(ledger_.told(now_, effect)); }
  void perform(Finish& effect) { violated(ledger_.told(now_, effect)); }
  void perform(SendWorker& effect);
  void perform(Spawn& effect);
  void perform(AskStop& effect);
  void perform(Kill& effect);
  void perform(AnnounceUp& effect) {
    tell_gateway(WorkerUp{effect.worker, effect.generation, effect.ready});
  }
  void perform(AnnounceDown& effect) { tell_gateway(WorkerDown{effect.worker, effect.generation}); }
  void perform(std::uint32_t slot, OpenSequence& effect);
  void perform(std::uint32_t slot, CloseSequence& effect);
  void perform(std::uint32_t slot, RunStep& effect);
  void perform(std::uint32_t slot, Report& effect);
  void perform(std::uint32_t slot, Drained& effect);
  void perform(std::uint32_t, FetchKv&) { violated("a fetch where no request is split"); }
  void perform(std::uint32_t, ExportKv&) { violated("an export where no request is split"); }
  void perform(std::uint32_t, AbandonFetch&) {}
  void perform(std::uint32_t, AdvanceExport&) {}
  void perform(std::uint32_t, EndExport&) {}
  Slot* process(WorkerId worker, Generation generation);
  std::uint32_t index(const Slot& slot) const {
    return static_cast<std::uint32_t>(&slot - slots_.data());
  }
  void serve(Slot& slot);
  void step_done(Slot& slot);
  void end_process(Slot& slot, const std::string& how);
  WorkerSpec spec_of(std::uint32_t slot) const;
  Desired desired() const;

  // world_faults.cc: the network and what goes wrong
  enum class Direction { to_worker, from_worker };
  void send(Slot& slot, Direction direction, std::uint64_t parcel);
  bool strikes(double chance, const char* kind);
  void arm_fault(Kind kind, Duration gap);
  void strike(Kind kind);
  Time heal_at() const { return Time{options_.heal_after.ns}; }
  bool is_healed() const { return now_ >= heal_at(); }
  void check_worker(std::uint32_t slot);
  void check_gateway();

  void push(Time at, Kind kind, std::uint32_t slot = 0, std::uint32_t generation = 0,
            std::uint64_t value = 0) {
    queue_.push({at, 0, kind, slot, generation, value});
  }

  SimulateOptions options_;
  bool checks_;
  Rng rng_;
  Time now_;
  EventQueue queue_;
  Workload workload_;
  Ledger ledger_;
  GatewayCore gateway_;
  AgentCore agent_;
  std::vector<Slot> slots_;
  Parcels<ToWorker> to_worker_;
  Parcels<StepReport> from_worker_;
  std::uint64_t in_flight_ = 0;
  bool arrivals_done_ = false;
  bool agent_told_ = false;
  Time last_arrival_;
  Time gateway_tick_ = kNever, agent_tick_ = kNever;
  std::vector<WorkerEffects> worker_effects_;  ///< reused; one per depth of nesting
  std::vector<GatewayEffects> gateway_effects_;
  std::vector<AgentEffects> agent_effects_;
  std::size_t depth_ = 0;
  Recorder recorder_;
  std::map<std::pair<CoreKind, std::uint64_t>, std::uint64_t> hashes_;
  SimulateReport report_;
};

}  // namespace infos
