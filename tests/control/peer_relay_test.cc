// SPDX-License-Identifier: Apache-2.0
// Goal: between gateways and workers of several nodes everything arrives where it belongs and
// nowhere else, and every end (worker, link, node) is told to those that it concerns. Method: three
// relays joined by queues that can be cut.
#include "daemon/control/peer_relay.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>

namespace infos {
namespace {

WorkerRef ref(std::uint64_t worker, std::uint32_t generation = 1) {
  return {WorkerId{worker}, Generation{generation}};
}
WorkerReady ready() {
  WorkerReady r;
  r.model = "m";
  return r;
}
RequestId request(std::uint32_t node, std::uint64_t n = 0) {
  return RequestId{first_request(NodeId{node}, 1).value + n};
}
StepReport tokens(std::vector<RequestId> requests) {
  StepReport report;
  for (const RequestId id : requests) report.tokens.push_back({id, Attempt{1}, 0, {}});
  report.load.running = static_cast<std::uint32_t>(requests.size());
  return report;
}
Submit submit(RequestId id, std::uint32_t attempt = 1) {
  Submit s;
  s.request = id;
  s.attempt = Attempt{attempt};
  s.tokens = {1, 2, 3};
  return s;
}

class Cluster {
 public:
  explicit Cluster(std::uint32_t nodes) {
    for (std::uint32_t n = 1; n <= nodes; ++n)
      relays.emplace(NodeId{n}, PeerRelay(RelayConfig{NodeId{n}}));
    for (std::uint32_t a = 1; a <= nodes; ++a)
      for (std::uint32_t b = a + 1; b <= nodes; ++b) join(a, b);
  }
  void join(std::uint32_t a, std::uint32_t b) {
    feed(a, LinkUp{NodeId{b}}), feed(b, LinkUp{NodeId{a}});
    settle();
  }
  void cut(std::uint32_t a, std::uint32_t b) {
    std::erase_if(wire, [&](const auto& m) {
      return (m.from.value == a && m.to.value == b) || (m.from.value == b && m.to.value == a);
    });
    feed(a, LinkDown{NodeId{b}, "cut"}), feed(b, LinkDown{NodeId{a}, "cut"});
    settle();
  }
  void feed(std::uint32_t node, RelayEvent event) {
    RelayEffects out;
    relays.at(NodeId{node}).step(now, std::move(event), out);
    for (RelayEffect& effect : out) {
      if (auto* peer = std::get_if<SendPeer>(&effect))
        wire.push_back({NodeId{node}, peer->node, std::move(peer->message)});
      else if (auto* local = std::get_if<SendLocal>(&effect))
        to_workers[NodeId{node}].push_back(std::move(local->message));
      else if (auto* tell = std::get_if<TellGateway>(&effect))
        to_gateway[NodeId{node}].push_back(std::move(tell->event));
      else
        refused[NodeId{node}].push_back(std::get<RelayRefused>(effect).why);
    }
  }
  void settle() {
    while (!wire.empty()) {
      auto message = std::move(wire.front());
      wire.pop_front();
      feed(message.to.value, LinkSaid{message.from, std::move(message.message)});
    }
  }
  template <typename T>
  std::vector<T> gateway(std::uint32_t node) const {
    std::vector<T> found;
    const auto at = to_gateway.find(NodeId{node});
    if (at != to_gateway.end())
      for (const GatewayEvent& event : at->second)
        if (const auto* e = std::get_if<T>(&event)) found.push_back(*e);
    return found;
  }
  template <typename T>
  std::vector<T> worker(std::uint32_t node) const {
    std::vector<T> found;
    const auto at = to_workers.find(NodeId{node});
    if (at != to_workers.end())
      for (const SendWorker& message : at->second)
        if (const auto* m = std::get_if<T>(&message.message)) found.push_back(*m);
    return found;
  }
  void forget() { to_gateway.clear(), to_workers.clear(); }

  struct Message {
    NodeId from, to;
    PeerMessage message;
  };
  std::map<NodeId, PeerRelay> relays;
  std::deque<Message> wire;
  std::map<NodeId, std::vector<SendWorker>> to_workers;
  std::map<NodeId, std::vector<GatewayEvent>> to_gateway;
  std::map<NodeId, std::vector<std::string>> refused;
  Time now{1};
};

TEST(PeerRelay, WorkerUp_IsKnownToAllGateways_AlsoToThoseThatComeLater) {
  Cluster cluster(2);
  cluster.feed(1, LocalUp{ref(7), ready()});
  cluster.settle();
  EXPECT_EQ(cluster.gateway<WorkerUp>(1).size(), 1u);
  EXPECT_EQ(cluster.gateway<WorkerUp>(1)[0].link, 0u);
  ASSERT_EQ(cluster.gateway<WorkerUp>(2).size(), 1u);
  EXPECT_GT(cluster.gateway<WorkerUp>(2)[0].link, 0u);
  cluster.relays.emplace(NodeId{3}, PeerRelay(RelayConfig{NodeId{3}}));
  cluster.join(1, 3);
  ASSERT_EQ(cluster.gateway<WorkerUp>(3).size(), 1u);
  EXPECT_EQ(cluster.gateway<WorkerUp>(3)[0].worker, WorkerId{7});
}

TEST(PeerRelay, Request_GoesToTheWorkersNodeAndItsTokensComeBackToItsGatewayAlone) {
  Cluster cluster(3);
  cluster.feed(1, LocalUp{ref(7), ready()});
  cluster.settle();
  cluster.feed(2, GatewaySays{{WorkerId{7}, Generation{1}, submit(request(2))}});
  cluster.settle();
  ASSERT_EQ(cluster.worker<Submit>(1).size(), 1u);
  cluster.feed(1, LocalSaid{ref(7), tokens({request(1), request(2), request(2, 1)})});
  cluster.settle();
  ASSERT_EQ(cluster.gateway<WorkerSaid>(1).size(), 1u);
  EXPECT_EQ(cluster.gateway<WorkerSaid>(1)[0].report.tokens.size(), 1u);
  EXPECT_EQ(cluster.gateway<WorkerSaid>(2)[0].report.tokens.size(), 2u);
  EXPECT_EQ(cluster.gateway<WorkerSaid>(2)[0].report.load.running, 3u);
  for (const WorkerSaid& said : cluster.gateway<WorkerSaid>(3))
    EXPECT_TRUE(said.report.tokens.empty());
}

TEST(PeerRelay, Loads_GoToAllAtABoundedRateAndTheLastOneIsNotLost) {
  Cluster cluster(2);
  cluster.feed(1, LocalUp{ref(7), ready()});
  cluster.settle();
  for (int step = 0; step < 1000; ++step) {
    cluster.now = cluster.now + milliseconds(1);
    StepReport report;
    report.load.running = static_cast<std::uint32_t>(step);
    cluster.feed(1, LocalSaid{ref(7), report});
    cluster.settle();
  }
  EXPECT_LE(cluster.gateway<WorkerSaid>(2).size(), 11u);
  cluster.now = cluster.relays.at(NodeId{1}).next_deadline();
  ASSERT_NE(cluster.now, kNever);
  cluster.feed(1, RelayTick{});
  cluster.settle();
  EXPECT_EQ(cluster.gateway<WorkerSaid>(2).back().report.load.running, 999u);
  EXPECT_EQ(cluster.relays.at(NodeId{1}).next_deadline(), kNever);
}

TEST(PeerRelay, LinkGone_WorkersAreDownAndForeignRequestsAreCancelled) {
  Cluster cluster(2);
  cluster.feed(1, LocalUp{ref(7), ready()});
  cluster.settle();
  cluster.feed(2, GatewaySays{{WorkerId{7}, Generation{1}, submit(request(2))}});
  cluster.feed(2, GatewaySays{{WorkerId{7}, Generation{1}, submit(request(2, 1))}});
  cluster.feed(1, GatewaySays{{WorkerId{7}, Generation{1}, submit(request(1))}});
  cluster.settle();
  StepReport done;
  done.ended.push_back({request(2, 1), Attempt{1}, FinishReason::stop, 0, "", false, 1});
  cluster.feed(1, LocalSaid{ref(7), done});
  cluster.settle();
  cluster.cut(1, 2);
  ASSERT_EQ(cluster.gateway<WorkerDown>(2).size(), 1u);
  EXPECT_TRUE(cluster.gateway<WorkerDown>(1).empty());
  ASSERT_EQ(cluster.worker<Cancel>(1).size(),
            1u);  // not the ended one, not that of its own gateway
  EXPECT_EQ(cluster.worker<Cancel>(1)[0].request, request(2));
}

TEST(PeerRelay, LinkGone_KvThatIsKeptForItsRequestsIsCancelled) {
  Cluster cluster(2);
  cluster.feed(1, LocalUp{ref(7), ready()});
  cluster.settle();
  for (const std::uint64_t n : {0, 1})
    cluster.feed(2, GatewaySays{{WorkerId{7}, Generation{1}, submit(request(2, n))}});
  cluster.settle();
  StepReport done;
  for (const std::uint64_t n : {0, 1})
    done.ended.push_back({request(2, n), Attempt{1}, FinishReason::prefilled, 0, "", false, 1});
  cluster.feed(1, LocalSaid{ref(7), done});
  cluster.settle();
  cluster.feed(2, GatewaySays{{WorkerId{7}, Generation{1}, Cancel{request(2, 1), Attempt{1}}}});
  cluster.settle();
  ASSERT_EQ(cluster.worker<Cancel>(1).size(), 1u);
  cluster.cut(1, 2);
  ASSERT_EQ(cluster.worker<Cancel>(1).size(), 2u) << "one was cancelled already";
  EXPECT_EQ(cluster.worker<Cancel>(1)[1].request, request(2));
}

TEST(PeerRelay, EndOfAnOlderAttempt_LeavesTheNewerOneToBeCancelled) {
  Cluster cluster(2);
  cluster.feed(1, LocalUp{ref(7), ready()});
  cluster.settle();
  cluster.feed(2, GatewaySays{{WorkerId{7}, Generation{1}, submit(request(2), 2)}});
  cluster.settle();
  StepReport done;
  done.ended.push_back({request(2), Attempt{1}, FinishReason::cancelled, 0, "", false, 0});
  cluster.feed(1, LocalSaid{ref(7), done});
  cluster.cut(1, 2);
  ASSERT_EQ(cluster.worker<Cancel>(1).size(), 1u);
  EXPECT_EQ(cluster.worker<Cancel>(1)[0].attempt, Attempt{2});
}

TEST(PeerRelay, LinkComesBack_TheSameProcessIsUpAgainWithAHigherLink) {
  Cluster cluster(2);
  cluster.feed(1, LocalUp{ref(7), ready()});
  cluster.settle();
  cluster.cut(1, 2);
  cluster.join(1, 2);
  const auto ups = cluster.gateway<WorkerUp>(2);
  ASSERT_EQ(ups.size(), 2u);
  EXPECT_EQ(ups[0].generation, ups[1].generation);
  EXPECT_GT(ups[1].link, cluster.gateway<WorkerDown>(2)[0].link);
}

TEST(PeerRelay, Letters_ArriveAndTheGoneAreToldOfOnce) {
  Cluster cluster(2);
  cluster.feed(1, LocalUp{ref(7), ready()});
  cluster.feed(2, LocalUp{ref(8), ready()});
  cluster.settle();
  cluster.feed(1, LocalLetter{{ref(7), ref(8), "hello"}});
  cluster.settle();
  ASSERT_EQ(cluster.worker<KvLetter>(2).size(), 1u);
  EXPECT_EQ(cluster.worker<KvLetter>(2)[0].body, "hello");
  cluster.feed(1, LocalDown{ref(7), "killed"});
  cluster.settle();
  ASSERT_EQ(cluster.worker<PeerGone>(2).size(), 1u);
  EXPECT_EQ(cluster.worker<PeerGone>(2)[0].peer, ref(7));
  cluster.cut(1, 2);
  EXPECT_EQ(cluster.worker<PeerGone>(2).size(), 1u);
  // A letter to nobody is answered at once.
  cluster.feed(2, LocalLetter{{ref(8), ref(7), "are you there"}});
  EXPECT_EQ(cluster.worker<PeerGone>(2).size(), 2u);
}

TEST(PeerRelay, LinkGone_CorrespondentsOnBothSidesAreTold) {
  Cluster cluster(2);
  cluster.feed(1, LocalUp{ref(7), ready()});
  cluster.feed(2, LocalUp{ref(8), ready()});
  cluster.feed(2, LocalUp{ref(9), ready()});
  cluster.settle();
  cluster.feed(1, LocalLetter{{ref(7), ref(8), "hello"}});
  cluster.settle();
  cluster.cut(1, 2);
  ASSERT_EQ(cluster.worker<PeerGone>(1).size(), 1u);
  EXPECT_EQ(cluster.worker<PeerGone>(1)[0].peer, ref(8));
  ASSERT_EQ(cluster.worker<PeerGone>(2).size(), 1u);
}

TEST(PeerRelay, RestartedWorker_TheOldProcessIsGoneFirst) {
  Cluster cluster(2);
  cluster.feed(1, LocalUp{ref(7, 1), ready()});
  cluster.feed(1, LocalDown{ref(7, 1), "killed"});
  cluster.feed(1, LocalUp{ref(7, 2), ready()});
  cluster.settle();
  const auto& events = cluster.to_gateway.at(NodeId{2});
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(std::get<WorkerDown>(events[1]).generation, Generation{1});
  EXPECT_EQ(std::get<WorkerUp>(events[2]).generation, Generation{2});
  // What was meant for the old process goes nowhere.
  cluster.feed(2, GatewaySays{{WorkerId{7}, Generation{1}, submit(request(2))}});
  cluster.settle();
  EXPECT_TRUE(cluster.worker<Submit>(1).empty());
}

TEST(PeerRelay, ForeignWords_AreRefused) {
  Cluster cluster(3);
  cluster.feed(1, LocalUp{ref(7), ready()});
  cluster.settle();
  cluster.forget();
  // Of another gateway's request, another node's worker, and words only its own node may say.
  cluster.feed(1, LinkSaid{NodeId{2}, ToRemoteWorker{ref(7), submit(request(3))}});
  cluster.feed(1, LinkSaid{NodeId{2}, ToRemoteWorker{ref(7), Drain{}}});
  cluster.feed(1, LinkSaid{NodeId{2}, RemoteWorkerUp{ref(7), ready()}});
  EXPECT_EQ(cluster.refused[NodeId{1}].size(), 3u);
  cluster.feed(2, LinkSaid{NodeId{3}, FromRemoteWorker{ref(7), tokens({request(2)})}});
  cluster.feed(2, LinkSaid{NodeId{3}, RemoteWorkerDown{ref(7), "a lie"}});
  cluster.feed(2, LinkSaid{NodeId{3}, RelayedLetter{{ref(7), ref(8), "a lie"}}});
  EXPECT_TRUE(cluster.to_workers.empty());
  EXPECT_TRUE(cluster.to_gateway.empty());
}

TEST(PeerRelay, NewsOfPrefixesAndFetches_ReachAllGatewaysWithTheLoad) {
  Cluster cluster(3);
  cluster.feed(1, LocalUp{ref(7), ready()});
  cluster.settle();
  StepReport report;
  report.held = {BlockHash{5}};
  report.dropped = {BlockHash{6}};
  report.fetches.push_back({request(2), Attempt{1}, ref(8), 16, 1000, milliseconds(3), {}, {}});
  cluster.feed(1, LocalSaid{ref(7), report});
  cluster.now = cluster.now + seconds(1);
  cluster.feed(1, RelayTick{});
  cluster.settle();
  for (const std::uint32_t node : {1U, 2U, 3U}) {
    std::size_t held = 0, dropped = 0, fetches = 0;
    for (const WorkerSaid& said : cluster.gateway<WorkerSaid>(node)) {
      held += said.report.held.size(), dropped += said.report.dropped.size();
      fetches += said.report.fetches.size();
    }
    EXPECT_EQ(held, 1u) << "node " << node;
    EXPECT_EQ(dropped, 1u) << "node " << node;
    EXPECT_EQ(fetches, 1u) << "node " << node;
  }
}

TEST(PeerRelay, WithheldKv_ReachesTheWorkerOfAnotherNode) {
  Cluster cluster(2);
  cluster.feed(1, LocalUp{ref(7), ready()});
  cluster.settle();
  cluster.feed(2, GatewaySays{{WorkerId{7}, Generation{1}, KvWithheld{request(2), Attempt{1}}}});
  cluster.settle();
  EXPECT_EQ(cluster.worker<KvWithheld>(1).size(), 1u);
}

}  // namespace
}  // namespace infos
