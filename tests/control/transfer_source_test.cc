// SPDX-License-Identifier: Apache-2.0
// Goal: each rule of the source's side: who gets a lease, which stamps, what the ready clock says,
// how leases and exports end. Method: one core, its peer and its shell played by hand.
#include "tests/control/transfer_harness.h"

namespace infos {
namespace {

using test::kPeer;
using test::kStranger;
using test::kTestLayers;
using test::TransferHarness;

std::string refused_field(TransferHarness& h) {
  const std::vector<KvRefuse> refusals = h.letters<KvRefuse>();
  return refusals.size() == 1 ? refusals[0].field : std::to_string(refusals.size()) + " refusals";
}

/// Answers every StampKv. Returns them.
std::vector<StampKv> stamp_all(TransferHarness& h) {
  std::vector<StampKv> all = h.take<StampKv>();
  for (const StampKv& s : all) h.tell(Stamped{s.id});
  return all;
}

TEST(TransferSource, EarlyAsk_WaitsForTheExport) {
  TransferHarness h;
  h.hear(h.ask());
  EXPECT_EQ(h.letters<KvHold>().size(), 1U);
  h.pass(seconds(5));
  h.hear(h.ask());
  h.begin_export();
  const std::vector<OpenLease> leases = h.take<OpenLease>();
  ASSERT_EQ(leases.size(), 1U);
  EXPECT_EQ(leases[0].reader, kPeer);
  h.hear(h.ask());  // while it is being opened
  EXPECT_EQ(h.letters<KvHold>().size(), 2U);
  h.tell(LeaseOpened{leases[0].lease, {{{1, "host", "address"}}, {}}, ""});
  h.tell(LeaseOpened{leases[0].lease, {}, ""});
  const KvOffer offer = h.letters<KvOffer>().at(0);
  EXPECT_EQ(offer.tokens, 6U);
  EXPECT_EQ(offer.access.endpoints.at(0).address, "address");
  h.hear(h.ask());
  EXPECT_EQ(h.letters<KvOffer>().at(0), offer);
}

TEST(TransferSource, AskWithoutExport_IsBoundedInTimeAndNumber) {
  TransferConfig config = test::transfer_config();
  config.asks_max = 2;
  TransferHarness h(config);
  for (std::uint64_t r = 1; r <= 3; ++r) {
    KvAsk ask = h.ask();
    ask.transfer.request = RequestId{r};
    h.hear(ask);
  }
  EXPECT_EQ(refused_field(h), "asks");
  EXPECT_EQ(h.core.audit().asks, 2U);
  h.pass(config.ask_wait + milliseconds(1));
  EXPECT_EQ(h.letters<KvRefuse>().size(), 2U);
  EXPECT_EQ(h.core.audit().asks, 0U);
  EXPECT_EQ(h.core.next_deadline(), kNever);
}

TEST(TransferSource, EveryDifferingField_IsRefusedByItsName) {
  const auto with = [](auto change) {
    TransferHarness h;
    h.begin_export();
    KvAsk ask = h.ask();
    change(ask);
    h.hear(ask);
    EXPECT_EQ(h.count<OpenLease>(), 0U);
    return refused_field(h);
  };
  EXPECT_EQ(with([](KvAsk& a) { a.identity.model = "x"; }), "model");
  EXPECT_EQ(with([](KvAsk& a) { a.identity.checkpoint = "x"; }), "checkpoint");
  EXPECT_EQ(with([](KvAsk& a) { a.identity.plugin_build = "x"; }), "plugin build");
  EXPECT_EQ(with([](KvAsk& a) { a.identity.epoch = Epoch{9}; }), "epoch");
  EXPECT_EQ(with([](KvAsk& a) { a.identity.layers = 9; }), "layers");
  EXPECT_EQ(with([](KvAsk& a) { a.identity.kv_heads = 9; }), "KV heads");
  EXPECT_EQ(with([](KvAsk& a) { a.identity.head_dim = 9; }), "head dim");
  EXPECT_EQ(with([](KvAsk& a) { a.identity.dtype = "x"; }), "dtype");
  EXPECT_EQ(with([](KvAsk& a) { a.identity.block_tokens = 9; }), "block size");
  EXPECT_EQ(with([](KvAsk& a) { a.identity.ranks = 9; }), "ranks");
  EXPECT_EQ(with([](KvAsk& a) { a.identity.layout = "x"; }), "layout");
  EXPECT_EQ(with([](KvAsk& a) { a.version = a.version_min = kKvVersion + 1; }), "protocol");
  EXPECT_EQ(with([](KvAsk& a) { a.begin = 6; }), "tokens");
  // What must be equal cannot be declared bridgeable.
  EXPECT_EQ(with([](KvAsk& a) { a.identity.model = "x", a.may_differ = UINT32_MAX; }), "model");
}

TEST(TransferSource, PeersAtNAndNMinus1_SpeakTheOlder) {
  const auto spoken = [](std::uint32_t ours, std::uint32_t theirs) -> std::uint32_t {
    TransferConfig config = test::transfer_config();
    config.version = ours, config.version_min = ours - 1;
    TransferHarness h(config);
    h.begin_export();
    KvAsk ask = h.ask();
    ask.version = theirs, ask.version_min = theirs - 1;
    h.hear(ask);
    const std::vector<OpenLease> leases = h.take<OpenLease>();
    if (leases.empty()) return 0;
    h.tell(LeaseOpened{leases[0].lease, {}, ""});
    return h.letters<KvOffer>().at(0).version;
  };
  EXPECT_EQ(spoken(3, 3), 3U);
  EXPECT_EQ(spoken(3, 2), 2U);
  EXPECT_EQ(spoken(2, 3), 2U);
  EXPECT_EQ(spoken(4, 2), 0U);
  EXPECT_EQ(spoken(2, 4), 0U);
}

TEST(TransferSource, Stranger_GetsNoLeaseAndEndsNone) {
  TransferHarness h;
  h.begin_export();
  h.hear(h.ask(), kStranger);
  EXPECT_EQ(refused_field(h), "sink");
  h.hear(h.ask());
  const LeaseId lease = h.take<OpenLease>().at(0).lease;
  h.tell(LeaseOpened{lease, {}, ""});
  h.hear(KvRelease{h.ask().transfer, lease, KvReleaseHow::done}, kStranger);
  h.hear(KvRenew{h.ask().transfer, lease, 0}, kStranger);
  EXPECT_EQ(refused_field(h), "lease");
  EXPECT_EQ(h.count<ExportDone>(), 0U);
}

TEST(TransferSource, Clock_CountsWholeBlocksOnceTheirStampsAreVisible) {
  TransferHarness h;
  const LeaseId lease = h.leased();
  h.tell(LayersReady{{2}, 5, 1, {{30}, {31}}});
  std::vector<StampKv> stamps = h.take<StampKv>();
  ASSERT_EQ(stamps.size(), 1U);  // the second block lacks a token
  EXPECT_EQ(stamps[0].lease, lease);
  EXPECT_EQ(stamps[0].layer_end, 1U);
  EXPECT_EQ(stamps[0].blocks, (std::vector<SourceBlock>{{{30}, test::stamp(1), 4}}));
  EXPECT_EQ(h.letters<KvAdvance>().size(), 1U);  // names the block, nothing is ready
  h.pass(milliseconds(2));
  h.tell(Stamped{stamps[0].id});
  KvAdvance m = h.letters<KvAdvance>().at(0);
  EXPECT_EQ(m.ready, (std::vector<KvReady>{{1, 1}}));
  EXPECT_EQ(m.blocks, (std::vector<BlockId>{{30}}));
  h.tell(AdvanceExport{{2}, 6, {{30}, {31}}});
  stamps = stamp_all(h);
  ASSERT_EQ(stamps.size(), 2U);
  EXPECT_EQ(stamps[0].layer_begin, 1U);
  EXPECT_EQ(stamps[1].blocks, (std::vector<SourceBlock>{{{31}, test::stamp(2), 2}}));  // the tail
  EXPECT_TRUE(h.letters<KvAdvance>().empty());                                         // paced
  h.pass(milliseconds(2));
  m = h.letters<KvAdvance>().at(0);
  EXPECT_EQ(m.ready, (std::vector<KvReady>{{2, kTestLayers}}));
  h.hear(KvRenew{h.ask().transfer, lease, 1});
  h.pass(milliseconds(2));
  m = h.letters<KvAdvance>().at(0);  // what is known is left out
  EXPECT_EQ(m.first, 1U);
  EXPECT_EQ(m.blocks, (std::vector<BlockId>{{31}}));
}

TEST(TransferSource, SharedBlocks_KeepTheirGenerationToTheLastLease) {
  TransferHarness h;
  const LeaseId first = h.leased();
  h.tell(AdvanceExport{{2}, 4, {{30}}});
  EXPECT_EQ(stamp_all(h).at(0).blocks.at(0).generation, test::stamp(1));
  h.tell(ExportKv{{3}, {9}, {1}, kStranger, 4});
  KvAsk ask = h.ask();
  ask.transfer.request = RequestId{9};
  h.hear(ask, kStranger);
  const LeaseId second = h.take<OpenLease>().at(0).lease;
  h.tell(LeaseOpened{second, {}, ""});
  h.tell(AdvanceExport{{3}, 4, {{30}}});
  EXPECT_EQ(h.count<StampKv>(), 0U);  // they are written
  h.hear(KvRelease{h.ask().transfer, first, KvReleaseHow::done});
  EXPECT_TRUE(h.take<CloseLease>().at(0).unstamp.empty());
  h.tell(EndExport{{3}});
  EXPECT_EQ(h.take<CloseLease>().at(0).unstamp, (std::vector<BlockId>{{30}}));
  EXPECT_EQ(h.take<ExportDone>().size(), 2U);
  h.tell(ExportKv{{4}, {10}, {1}, kPeer, 4});
  ask.transfer.request = RequestId{10};
  h.hear(ask);
  h.tell(LeaseOpened{h.take<OpenLease>().at(0).lease, {}, ""});
  h.tell(AdvanceExport{{4}, 4, {{30}}});
  EXPECT_EQ(h.take<StampKv>().at(0).blocks.at(0).generation, test::stamp(2));
}

TEST(TransferSource, StampsThatAClosedLeaseWaitedFor_AreWishedByTheOther) {
  TransferHarness h;
  const LeaseId first = h.leased();
  h.tell(AdvanceExport{{2}, 4, {{30}}});
  const StampKv dropped = h.take<StampKv>().at(0);
  h.tell(ExportKv{{3}, {9}, {1}, kPeer, 4});
  KvAsk ask = h.ask(2);
  ask.transfer.request = RequestId{9};
  h.hear(ask);
  const LeaseId second = h.take<OpenLease>().at(0).lease;
  h.tell(LeaseOpened{second, {}, ""});
  h.tell(AdvanceExport{{3}, 4, {{30}}});
  EXPECT_EQ(h.count<StampKv>(), 0U);
  h.hear(KvRelease{h.ask().transfer, first, KvReleaseHow::aborted});
  const StampKv again = h.take<StampKv>().at(0);
  EXPECT_EQ(again.lease, second);
  h.tell(Stamped{dropped.id});  // late
  h.pass(milliseconds(2));
  for (const KvAdvance& m : h.letters<KvAdvance>())
    for (const KvReady& run : m.ready) EXPECT_EQ(run.layers, 0U);
  h.tell(Stamped{again.id});
  h.pass(milliseconds(2));
  EXPECT_EQ(h.letters<KvAdvance>().at(0).ready, (std::vector<KvReady>{{1, kTestLayers}}));
}

TEST(TransferSource, NewerAsk_SupersedesAndOlderIsLate) {
  TransferHarness h;
  const LeaseId first = h.leased();
  h.letters<KvOffer>();
  h.hear(h.ask(3));
  EXPECT_EQ(h.take<CloseLease>().at(0).lease, first);
  const LeaseId second = h.take<OpenLease>().at(0).lease;
  h.hear(h.ask(1));
  h.tell(LeaseOpened{first, {}, ""});
  EXPECT_EQ(h.count<SendKv>(), 0U);
  h.hear(KvRelease{h.ask(1).transfer, first, KvReleaseHow::aborted});
  EXPECT_EQ(h.count<ExportDone>(), 0U);
  h.tell(LeaseOpened{second, {}, ""});
  EXPECT_EQ(h.letters<KvOffer>().at(0).lease, second);
}

TEST(TransferSource, EveryEnd_ClosesTheLeaseBeforeTheExport) {
  const auto ends = [](auto how) {
    TransferHarness h;
    const LeaseId lease = h.leased();
    h.tell(AdvanceExport{{2}, 4, {{30}}});
    h.out.clear();
    how(h, lease);
    std::string order;
    for (const TransferEffect& e : h.out) {
      if (std::holds_alternative<CloseLease>(e)) order += "close ";
      if (std::holds_alternative<ExportDone>(e)) order += "done ";
    }
    EXPECT_EQ(order, "close done ");
    how(h, lease);
    EXPECT_EQ(h.count<ExportDone>(), 1U);
    EXPECT_EQ(h.core.audit().stamped_blocks, 0U);
    EXPECT_EQ(h.core.next_deadline(), kNever);
    return h.letters<KvRefuse>();
  };
  EXPECT_TRUE(ends([](TransferHarness& h, LeaseId lease) {
                h.hear(KvRelease{h.ask().transfer, lease, KvReleaseHow::done});
              }).empty());
  EXPECT_TRUE(ends([](TransferHarness& h, LeaseId) { h.tell(PeerGone{kPeer}); }).empty());
  EXPECT_EQ(ends([](TransferHarness& h, LeaseId) { h.tell(EndExport{{2}}); }).at(0).message,
            "the source ended it");
  EXPECT_EQ(ends([](TransferHarness& h, LeaseId) { h.pass(seconds(3)); }).at(0).message,
            "the destination was silent");
  EXPECT_EQ(ends([](TransferHarness& h, LeaseId) {
              h.tell(AdvanceExport{{2}, 6, {{35}, {31}}});
            })
                .at(0)
                .message,
            "its blocks were exchanged");
}

TEST(TransferSource, LeaseThatCannotBeOpened_EndsTheExport) {
  TransferHarness h;
  h.begin_export();
  h.hear(h.ask());
  h.tell(LeaseOpened{h.take<OpenLease>().at(0).lease, {}, "no transport"});
  EXPECT_EQ(h.letters<KvRefuse>().at(0).message, "no transport");
  EXPECT_EQ(h.count<ExportDone>(), 1U);
}

TEST(TransferSource, ExportThatNobodyAsksFor_EndsByItsDeadline) {
  TransferHarness h;
  h.begin_export();
  h.tell(AdvanceExport{{2}, 6, {{30}, {31}}});
  h.pass(seconds(29));
  EXPECT_EQ(h.count<ExportDone>(), 0U);
  h.pass(seconds(2));
  EXPECT_EQ(h.count<ExportDone>(), 1U);
  EXPECT_EQ(h.count<StampKv>(), 0U);  // nothing was hashed for nobody
  h.hear(h.ask());
  EXPECT_EQ(refused_field(h), "request");
  h.hear(KvRenew{h.ask().transfer, test::first_lease(), 0});
  EXPECT_EQ(refused_field(h), "lease");
}

TEST(TransferSource, Renewals_KeepTheLease) {
  TransferHarness h;
  const LeaseId lease = h.leased();
  for (int i = 0; i < 30; ++i) {
    h.pass(seconds(1));
    h.hear(KvRenew{h.ask().transfer, lease, 0});
  }
  EXPECT_EQ(h.count<ExportDone>(), 0U);
  EXPECT_EQ(h.letters<KvAdvance>().size(), 30U);
}

TEST(TransferSource, NonsenseWishes_EndAtOnce) {
  TransferHarness h;
  h.tell(ExportKv{{1}, {7}, {1}, kPeer, 0});
  h.tell(ExportKv{{2}, {7}, {1}, {}, 4});
  EXPECT_EQ(h.take<ExportDone>().size(), 2U);
  h.begin_export();
  h.begin_export();
  h.tell(ExportKv{{5}, {8}, {1}, kPeer, 6});  // the same request again
  EXPECT_EQ(h.take<ExportDone>().at(0).id, EffectId{5});
  h.tell(AdvanceExport{{9}, 6, {{30}}});
  h.tell(LayersReady{{9}, 6, 1, {{30}}});
  h.tell(EndExport{{9}});
  EXPECT_TRUE(h.out.empty());
}

}  // namespace
}  // namespace infos
