// SPDX-License-Identifier: Apache-2.0
// ControllerCore turns what is wished and which nodes there are into plans, has each plan stored
// before any node hears of it, and repeats it to nodes that have not said that they act on it. Runs
// on one node. Nothing that serves requests waits for it. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "daemon/control/peer_messages.h"
#include "daemon/control/plan.h"
#include "daemon/control/plan_wish.h"
#include "topology/base/units.h"

namespace infos {

struct ControllerConfig {
  NodeId self;
  std::uint64_t term = 1;              ///< grows with every start of the controller
  Duration resend_after = seconds(2);  ///< without an acknowledgement
  std::uint32_t drains_max = 4096;
  friend bool operator==(const ControllerConfig&, const ControllerConfig&) = default;
};

/// What must not be drained, or no longer.
struct DrainWish {
  enum class What : std::uint8_t { node, model };
  What what = What::node;
  std::string name;
  bool drained = true;
  friend bool operator==(const DrainWish&, const DrainWish&) = default;
};

// ---- events ----

/// At the start, once: the last plan that was stored, and what it fulfils.
struct ControllerRestored {
  Plan plan;
  std::optional<PlanWish>
      wish;  ///< none: it could not be read; no plan is made before the next one
};
/// The whole wish; replaces the last one. Answered by WishAnswered.
struct PlanWished {
  EffectId id;
  PlanWish wish;
};
/// Answered by WishAnswered.
struct DrainWished {
  EffectId id;
  DrainWish wish;
};
/// A node is a member, whether or not it is there.
struct MemberJoined {
  NodeId node;
  std::string name;
  std::string address;  ///< HOST:PORT where its peers reach it
};
/// A link to a member is up (also: to this one).
struct MemberUp {
  NodeId node;
};
struct MemberDown {
  NodeId node;
};
/// A node says what it acts on.
struct MemberReported {
  NodeId node;
  NodeReport report;
};
/// The answer to PersistPlan. `error` empty: stored.
struct PlanPersisted {
  Epoch epoch;
  std::string error;
};
struct ControllerTick {};
using ControllerEvent =
    std::variant<ControllerRestored, PlanWished, DrainWished, MemberJoined, MemberUp, MemberDown,
                 MemberReported, PlanPersisted, ControllerTick>;

// ---- effects ----

/// Store it so that it survives a crash; answered by PlanPersisted.
struct PersistPlan {
  Plan plan;
};
/// Send the plan of this epoch, which is plan(). Always after its PlanPersisted.
struct SendPlan {
  NodeId node;
  Epoch epoch;
};
/// The last word about a wish. `error` empty: it is stored, and under way to the nodes.
struct WishAnswered {
  EffectId id;
  Epoch epoch;
  std::uint64_t workers = 0;
  std::string error;
};
using ControllerEffect = std::variant<PersistPlan, SendPlan, WishAnswered>;
using ControllerEffects = std::vector<ControllerEffect>;

/// For `infos get nodes`: one row.
struct MemberStatus {
  NodeId node;
  std::string name;
  bool up = false;
  bool drained = false;
  Epoch applied;              ///< what it last said that it acts on
  std::uint64_t workers = 0;  ///< planned there
  std::uint64_t running = 0;  ///< serving there, as it last said
};

class ControllerCore {
 public:
  explicit ControllerCore(const ControllerConfig& config);
  ~ControllerCore();
  ControllerCore(ControllerCore&&) noexcept;
  ControllerCore& operator=(ControllerCore&&) noexcept;

  void step(Time now, const ControllerEvent& event, ControllerEffects& out);
  Time next_deadline() const;
  /// The last plan that is stored.
  const Plan& plan() const;
  std::vector<MemberStatus> members() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace infos
