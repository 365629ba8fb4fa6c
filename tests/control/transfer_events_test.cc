// SPDX-License-Identifier: Apache-2.0
// Goal: every event is legal in every state: late, double and spurious ones too. Method: each state
// is reached by a script; then every pair of events of a list hits it, and the core must keep its
// books, its deadlines and the rule of one end each.
#include <functional>

#include "tests/control/transfer_harness.h"

namespace infos {
namespace {

using test::kPeer;
using test::kStranger;
using test::TransferHarness;

using Script = std::function<void(TransferHarness&)>;
struct Named {
  const char* name;
  Script script;
};

const std::vector<Named>& states() {
  static const std::vector<Named> all = {
      {"idle", [](TransferHarness&) {}},
      {"asking", [](TransferHarness& h) { h.fetch(); }},
      {"offered", [](TransferHarness& h) { h.fetch(), h.hear(h.offer()); }},
      {"moving", [](TransferHarness& h) { h.moving(); }},
      {"half done",
       [](TransferHarness& h) {
         h.fetch(), h.hear(h.offer()), h.hear(h.clock(1, {{1, 2}, {1, 1}}));
         for (const MoveKv& m : h.take<MoveKv>()) h.tell(h.landed(m));
       }},
      {"stopping", [](TransferHarness& h) { h.moving(), h.tell(AbandonFetch{{1}}); }},
      {"quarantined",
       [](TransferHarness& h) {
         h.tell(MoveDone{h.moving().at(0).id, MoveVerdict::failed, {}, false});
       }},
      {"peer gone", [](TransferHarness& h) { h.moving(), h.tell(PeerGone{kPeer}); }},
      {"exported", [](TransferHarness& h) { h.begin_export(); }},
      {"asked early", [](TransferHarness& h) { h.hear(h.ask()); }},
      {"opening", [](TransferHarness& h) { h.begin_export(), h.hear(h.ask()); }},
      {"leased", [](TransferHarness& h) { h.leased(); }},
      {"stamping",
       [](TransferHarness& h) {
         h.leased(), h.tell(AdvanceExport{{2}, 6, {{30}, {31}}});
       }},
      {"export over", [](TransferHarness& h) { h.leased(), h.tell(EndExport{{2}}); }},
      {"both roles", [](TransferHarness& h) { h.moving(), h.leased(); }},
  };
  return all;
}

const std::vector<Named>& events() {
  // Ids of effects are counted from 1 in every state: these hit whatever is there.
  static const std::vector<Named> all = {
      {"fetch", [](TransferHarness& h) { h.fetch(); }},
      {"abandon", [](TransferHarness& h) { h.tell(AbandonFetch{{1}}); }},
      {"export", [](TransferHarness& h) { h.begin_export(); }},
      {"advance export",
       [](TransferHarness& h) {
         h.tell(AdvanceExport{{2}, 6, {{30}, {31}}});
       }},
      {"layers",
       [](TransferHarness& h) {
         h.tell(LayersReady{{2}, 5, 1, {{30}, {31}}});
       }},
      {"end export", [](TransferHarness& h) { h.tell(EndExport{{2}}); }},
      {"offer", [](TransferHarness& h) { h.hear(h.offer()); }},
      {"advance",
       [](TransferHarness& h) {
         h.hear(h.clock(7, {{2, 2}}));
       }},
      {"gap",
       [](TransferHarness& h) {
         h.hear(h.clock(8, {{2, 2}}, {{21}}, 1));
       }},
      {"hold", [](TransferHarness& h) { h.hear(KvHold{h.transfer}); }},
      {"refuse",
       [](TransferHarness& h) {
         h.hear(KvRefuse{h.transfer, {5}, "lease", "x"});
       }},
      {"refuse the ask",
       [](TransferHarness& h) {
         h.hear(KvRefuse{h.transfer, {}, "request", "x"});
       }},
      {"ask", [](TransferHarness& h) { h.hear(h.ask()); }},
      {"newer ask", [](TransferHarness& h) { h.hear(h.ask(2)); }},
      {"stranger asks", [](TransferHarness& h) { h.hear(h.ask(), kStranger); }},
      {"renew",
       [](TransferHarness& h) {
         h.hear(KvRenew{h.ask().transfer, test::first_lease(), 9});
       }},
      {"release",
       [](TransferHarness& h) {
         h.hear(KvRelease{h.ask().transfer, test::first_lease(), {}});
       }},
      {"opened",
       [](TransferHarness& h) {
         h.tell(LeaseOpened{test::first_lease(), {}, ""});
       }},
      {"not opened",
       [](TransferHarness& h) {
         h.tell(LeaseOpened{test::first_lease(), {}, "no"});
       }},
      {"stamped", [](TransferHarness& h) { h.tell(Stamped{{1}}), h.tell(Stamped{{2}}); }},
      {"landed unseen",
       [](TransferHarness& h) {
         h.tell(MoveDone{{1}, MoveVerdict::landed, {}, true});
       }},
      {"landed",
       [](TransferHarness& h) {
         h.tell(MoveDone{{1}, MoveVerdict::landed, {{{120}, 4, true}, {{121}, 4, true}}, true});
       }},
      {"failed",
       [](TransferHarness& h) {
         h.tell(MoveDone{{1}, MoveVerdict::failed, {}, false});
       }},
      {"lost, quiet",
       [](TransferHarness& h) {
         h.tell(MoveDone{{1}, MoveVerdict::peer_lost, {}, true});
       }},
      {"refused",
       [](TransferHarness& h) {
         h.tell(MoveDone{{2}, MoveVerdict::refused, {}, false});
       }},
      {"fenced", [](TransferHarness& h) { h.tell(Fenced{{2}}), h.tell(Fenced{{3}}); }},
      {"peer gone", [](TransferHarness& h) { h.tell(PeerGone{kPeer}); }},
      {"epoch", [](TransferHarness& h) { h.tell(EpochIs{{4}}); }},
      {"tick", [](TransferHarness& h) { h.tell(Tick{}); }},
      {"a second", [](TransferHarness& h) { h.pass(seconds(1)); }},
      {"a minute", [](TransferHarness& h) { h.pass(seconds(61)); }},
  };
  return all;
}

/// Each id ends at most as often as it was begun.
void count_ends(const TransferHarness& h, std::size_t begun_twice) {
  EXPECT_LE(h.count<FetchDone>(), 1 + begun_twice);
  EXPECT_LE(h.count<ExportDone>(), 1 + begun_twice);
  EXPECT_LE(h.count<FenceOverdue>(), 2U);
}

TEST(TransferEvents, EveryPairInEveryState_KeepsTheBooks) {
  for (const Named& state : states()) {
    for (const Named& first : events()) {
      for (const Named& second : events()) {
        SCOPED_TRACE(std::string(state.name) + ", " + first.name + ", " + second.name);
        TransferHarness h;
        state.script(h);
        first.script(h);
        second.script(h);
        count_ends(h, 2);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(TransferEvents, AfterAllOfThem_EverythingEndsWithTheFences) {
  for (const Named& state : states()) {
    for (const Named& event : events()) {
      SCOPED_TRACE(std::string(state.name) + ", " + event.name);
      TransferHarness h;
      state.script(h);
      event.script(h);
      for (int round = 0; round < 8; ++round) {
        h.pass(seconds(70));
        for (const FencePeer& fence : h.take<FencePeer>()) h.tell(Fenced{fence.id});
      }
      const TransferAudit audit = h.core.audit();
      EXPECT_EQ(audit.fetches + audit.exports + audit.leases + audit.asks + audit.moves +
                    audit.fences + audit.stamped_blocks,
                0U);
      EXPECT_EQ(h.core.next_deadline(), kNever);
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace infos
