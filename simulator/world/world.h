// SPDX-License-Identifier: Apache-2.0
// World: nodes with a gateway, agents and workers under a virtual clock. Performs the cores'
// effects on a modelled network and modelled devices, injects faults until it heals, and checks
// invariants. Owns all modelled state; decides nothing that a core decides.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/peer_relay.h"
#include "simulator/world/device_model.h"
#include "simulator/world/event_queue.h"
#include "simulator/world/kv_model.h"
#include "simulator/world/ledger.h"
#include "simulator/world/network.h"
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
    std::optional<KvModel> kv;  ///< none in a plain world
    WorkerConfig config;
    WorkerRole role = WorkerRole::aggregated;
    std::uint32_t node = 0;
    Time tick = kNever;
    Time slow_until;
    Time sent_to, sent_from;  ///< latest arrival of its two streams, which keep their order
    std::uint64_t preemptions = 0;
  };
  struct Node {
    bool alive = true;
    std::uint64_t incarnation = 0;
    std::optional<AgentCore> agent;
    std::optional<PeerRelay> relay;  ///< none in a plain world
    Time agent_tick = kNever, relay_tick = kNever;
    bool agent_told = false;
  };
  /// Between two nodes, a < b. Directions: 0 from a to b, 1 from b to a.
  struct Link {
    bool up = true;
    bool severed[2] = {};       ///< words vanish
    bool data_severed[2] = {};  ///< KV stands still
    bool data_reset = false;    ///< KV fails at once
    std::uint64_t epoch = 0;    ///< of the connection
  };

  // world.cc: the loop and the cores
  void start();
  void happen(const WorldEvent& event);
  void happen_to_worker(const WorldEvent& event);
  void arrive();
  bool is_quiet() const;
  void tell_gateway(const GatewayEvent& event);
  void tell_agent(std::uint32_t node, const AgentEvent& event);
  void tell_worker(std::uint32_t slot, const WorkerEvent& event);
  template <typename Event, typename Effects>
  void note(std::uint64_t instance, const Event& event, const Effects& effects);
  void arm_ticks();
  /// Later, whoever lives then.
  void after(Duration wait, std::function<void()> action);
  /// Later, if that process still lives and is not hung.
  void after_in(Slot& slot, Duration wait, std::function<void(Slot&)> action);
  Duration some(std::int64_t most_us) {
    return microseconds(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most_us))));
  }
  void violated(const std::string& what);
  SimulateReport report();

  // world_workers.cc: what effects do
  void perform(Reject& effect) { violated(ledger_.told(now_, effect)); }
  void perform(Deliver& effect) { violated(ledger_.told(now_, effect)); }
  void perform(Finish& effect) { violated(ledger_.told(now_, effect)); }
  void perform(SendWorker& effect);
  void to_process(SendWorker& effect);
  void perform(Spawn& effect);
  void perform(AskStop& effect);
  void perform(Kill& effect);
  void perform(AnnounceUp& effect);
  void perform(AnnounceDown& effect);
  void perform(std::uint32_t slot, OpenSequence& effect);
  void perform(std::uint32_t slot, CloseSequence& effect);
  void perform(std::uint32_t slot, RunStep& effect);
  void perform(std::uint32_t slot, Report& effect);
  void perform(std::uint32_t slot, Drained& effect);
  Slot* process(WorkerId worker, Generation generation);
  std::uint32_t index(const Slot& slot) const {
    return static_cast<std::uint32_t>(&slot - slots_.data());
  }
  void serve(Slot& slot);
  void step_done(Slot& slot);
  void end_process(Slot& slot, const std::string& how);
  Desired desired(std::uint32_t node) const;

  // world_cluster.cc: nodes, and the words between them
  void start_node(std::uint32_t node);
  void tell_relay(std::uint32_t node, RelayEvent event);
  void send_peer(std::uint32_t node, SendPeer& effect);
  void from_worker(Slot& slot, Generation generation, FromWorker message);
  void end_node(std::uint32_t node);
  void cut_link(std::uint32_t a, std::uint32_t b);
  void restore_link(std::uint32_t a, std::uint32_t b);
  void link_up(std::uint32_t a, std::uint32_t b);
  Link& link(std::uint32_t a, std::uint32_t b) {
    return links_[std::size_t{std::min(a, b)} * nodes_.size() + std::max(a, b)];
  }
  bool carries(std::uint32_t from, std::uint32_t to) {
    return from == to || !link(from, to).data_severed[from < to ? 0 : 1];
  }

  // world_transfers.cc: KV between workers
  void perform(std::uint32_t slot, FetchKv& effect);
  void perform(std::uint32_t slot, ExportKv& effect);
  void perform(std::uint32_t slot, AbandonFetch& effect) { post(slots_[slot], effect); }
  void perform(std::uint32_t slot, AdvanceExport& effect);
  void perform(std::uint32_t slot, EndExport& effect) { post(slots_[slot], effect); }
  void perform_kv(Slot& slot, SendKv& effect);
  void perform_kv(Slot& slot, AttachSource& effect);
  void perform_kv(Slot& slot, DetachSource& effect);
  void perform_kv(Slot& slot, MoveKv& effect);
  void perform_kv(Slot& slot, CancelMove& effect);
  void perform_kv(Slot& slot, FencePeer& effect);
  void perform_kv(Slot& slot, FenceOverdue& effect);
  void perform_kv(Slot& slot, OpenLease& effect);
  void perform_kv(Slot& slot, StampKv& effect);
  void perform_kv(Slot& slot, CloseLease& effect);
  void perform_kv(Slot& slot, FetchDone& effect);
  void perform_kv(Slot& slot, ExportDone& effect);
  void serve_kv(Slot& slot);
  /// To the transfer thread of the process, and to its engine thread.
  void post(Slot& slot, TransferEvent event);
  void post_engine(Slot& slot, WorkerEvent event);
  void tell_transfer(Slot& slot, const TransferEvent& event);
  void letter(Slot& slot, KvLetter& letter);
  void layers_ready(Slot& slot);
  WorkerRef ref(const Slot& slot) const { return {WorkerId{index(slot) + 1}, slot.generation}; }

  // world_moves.cc: bytes of KV
  void begin_flight(std::uint64_t flight);
  void read_stamps(KvFlight& flight, Slot& source);
  void read_rows(KvFlight& flight, Slot& source);
  void land(std::uint64_t flight);
  void give_up(std::uint64_t flight, MoveVerdict verdict, const char* why);
  void drop(std::uint64_t flight, const char* why);
  void process_gone(const Slot& slot);
  void data_cut(std::uint32_t a, std::uint32_t b);
  void data_restored(std::uint32_t a, std::uint32_t b);
  void network_moves();
  void arm_network();
  std::string kv_at_rest() const;

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
  std::vector<Node> nodes_;
  std::vector<Link> links_;  ///< [nodes, nodes]
  std::vector<Slot> slots_;
  Parcels<ToWorker> to_worker_;
  Parcels<FromWorker> from_worker_;
  Parcels<std::function<void()>> actions_;
  Network network_;
  std::map<std::uint64_t, KvFlight> flights_;  ///< moves that may still land
  std::uint64_t last_flight_ = 0;
  Time network_tick_ = kNever;
  std::uint64_t in_flight_ = 0;
  bool arrivals_done_ = false;
  Time last_arrival_;
  Time gateway_tick_ = kNever;
  std::vector<WorkerEffects> worker_effects_;  ///< reused; one per depth of nesting
  std::vector<GatewayEffects> gateway_effects_;
  std::vector<AgentEffects> agent_effects_;
  std::vector<RelayEffects> relay_effects_;
  std::vector<TransferEffects> transfer_effects_;
  std::size_t depth_ = 0;
  Recorder recorder_;
  std::map<std::pair<CoreKind, std::uint64_t>, std::uint64_t> hashes_;
  SimulateReport report_;
};

}  // namespace infos
