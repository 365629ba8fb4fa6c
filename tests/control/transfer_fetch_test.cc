// SPDX-License-Identifier: Apache-2.0
// Goal: each rule of the destination's side: asking, the ready clock, proof, retry, quarantine,
// ends. Method: one core, its peer and its mover played by hand.
#include "tests/control/transfer_harness.h"

namespace infos {
namespace {

using test::kPeer;
using test::kStranger;
using test::kTestLayers;
using test::TransferHarness;

std::string end_of(TransferHarness& h, std::uint32_t tokens) {
  const std::vector<FetchDone> done = h.take<FetchDone>();
  if (done.size() != 1) return std::to_string(done.size()) + " ends";
  EXPECT_EQ(done[0].tokens, tokens);
  EXPECT_TRUE(h.core.audit().blocks.empty());
  return done[0].why;
}

TEST(TransferFetch, Ask_IsSaidAgainAndSilenceEndsIt) {
  TransferHarness h;
  h.fetch();
  h.pass(milliseconds(1399));
  EXPECT_EQ(h.letters<KvAsk>().size(), 7U);
  EXPECT_EQ(h.count<FetchDone>(), 0U);
  h.pass(milliseconds(200));
  EXPECT_EQ(end_of(h, 0), "the source is silent");
  EXPECT_EQ(h.letters<KvRelease>().at(0).how, KvReleaseHow::aborted);
  EXPECT_EQ(h.core.next_deadline(), kNever);
}

TEST(TransferFetch, Hold_KeepsItAliveUpToTheLimit) {
  TransferHarness h;
  h.fetch();
  for (int i = 0; i < 59; ++i) {
    h.pass(seconds(1));
    h.hear(KvHold{h.transfer});
  }
  EXPECT_EQ(h.count<FetchDone>(), 0U);
  h.pass(seconds(1));
  EXPECT_EQ(end_of(h, 0), "not done after 1m");
}

TEST(TransferFetch, Offer_WithADifferingField_IsRefusedByItsName) {
  const auto with = [](auto change) {
    TransferHarness h;
    h.fetch();
    KvOffer offer = h.offer();
    change(offer.identity);
    h.hear(offer);
    EXPECT_EQ(h.count<AttachSource>(), 0U);
    EXPECT_EQ(h.letters<KvRelease>().at(0).lease, offer.lease);
    return end_of(h, 0);
  };
  EXPECT_EQ(with([](auto& i) { i.model = "x"; }),
            "model differs: the source has \"x\", the destination \"m\"");
  EXPECT_EQ(with([](auto& i) { i.block_tokens = 8; }),
            "block size differs: the source has 8, the destination 4");
  EXPECT_NE(with([](auto& i) { i.dtype = "i8"; }).find("dtype"), std::string::npos);
  EXPECT_NE(with([](auto& i) { i.plugin_build = "x"; }).find("plugin build"), std::string::npos);
  EXPECT_NE(with([](auto& i) { i.layout = "x"; }).find("layout"), std::string::npos);
  EXPECT_NE(with([](auto& i) { i.epoch = Epoch{4}; }).find("epoch"), std::string::npos);
}

TEST(TransferFetch, LayoutsThatMayNotBeConverted_AreBothNamed) {
  KvShape shape;
  shape.model = "w", shape.build = "b", shape.layers = kTestLayers, shape.block_tokens = 4;
  shape.dtype = KvDType::f16;
  TransferConfig config = test::transfer_config();
  config.identity = identity_of("m", Epoch{1}, make_kv_layout(shape));
  config.may_differ = bridges(config.policy);
  TransferHarness h(config);
  h.fetch();
  KvOffer offer = h.offer();
  shape.dtype = KvDType::f32, shape.block_tokens = 8;
  offer.identity = identity_of("m", Epoch{1}, make_kv_layout(shape));
  h.hear(offer);
  const std::string why = end_of(h, 0);
  EXPECT_NE(why.find("f32 to f16 rounds"), std::string::npos) << why;
}

TEST(TransferFetch, OfferOfAnotherVersion_IsRefused) {
  TransferHarness h;
  h.fetch();
  KvOffer offer = h.offer();
  offer.version = 2;
  h.hear(offer);
  EXPECT_NE(end_of(h, 0).find("protocol differs: the source speaks version 2"), std::string::npos);
}

TEST(TransferFetch, Moves_FollowTheReadyClock) {
  TransferHarness h;
  h.fetch(4);  // the first block is here already
  h.hear(h.offer());
  h.hear(h.clock(1, {{1, 2}, {1, 1}}));
  std::vector<MoveKv> moves = h.take<MoveKv>();
  ASSERT_EQ(moves.size(), 1U);
  EXPECT_EQ(moves[0].begin, 4U);
  EXPECT_EQ(moves[0].end, 8U);
  EXPECT_EQ(moves[0].layer_end, 1U);
  EXPECT_EQ(moves[0].sources, (std::vector<SourceBlock>{{{21}, {121}, 4}}));
  EXPECT_EQ(moves[0].into, (std::vector<BlockId>{{1}}));
  h.tell(h.landed(moves[0]));
  EXPECT_EQ(h.count<FetchDone>(), 0U);
  h.hear(h.clock(2, {{2, 2}}));
  moves = h.take<MoveKv>();
  ASSERT_EQ(moves.size(), 1U);
  EXPECT_EQ(moves[0].layer_begin, 1U);
  h.hear(h.clock(1, {{1, 2}, {1, 1}}));  // late
  h.hear(h.clock(2, {{2, 2}}));          // double
  EXPECT_EQ(h.count<MoveKv>(), 0U);
  h.tell(h.landed(moves[0]));
  h.tell(h.landed(moves[0]));
  EXPECT_EQ(end_of(h, 4), "");
  EXPECT_EQ(h.letters<KvRelease>().at(0).how, KvReleaseHow::done);
  EXPECT_EQ(h.count<DetachSource>(), 1U);
}

TEST(TransferFetch, UnequalBlockSizes_AreCutAtSourceBlocks) {
  TransferConfig config = test::transfer_config();
  config.may_differ = bit(KvField::block_size);
  config.move_bytes_max = 1;  // one source block, one layer at a time
  TransferHarness h(config);
  h.fetch(4, 15);
  KvOffer offer = h.offer(16);
  offer.identity.block_tokens = 6;
  h.hear(offer);
  h.hear(h.clock(1, {{3, 2}}, {{20}, {21}, {22}}));
  std::vector<MoveKv> moves = h.take<MoveKv>();
  ASSERT_EQ(moves.size(), config.moves_per_fetch_max);  // the window
  EXPECT_EQ(moves[0].begin, 4U);
  EXPECT_EQ(moves[0].end, 6U);
  EXPECT_EQ(moves[0].source_begin, 0U);
  EXPECT_EQ(moves[0].into, (std::vector<BlockId>{{1}}));
  EXPECT_EQ(moves[2].begin, 6U);
  EXPECT_EQ(moves[2].end, 12U);
  EXPECT_EQ(moves[2].into, (std::vector<BlockId>{{1}, {2}}));
  for (int i = 0; i < 6; ++i) {
    if (moves.empty()) moves = h.take<MoveKv>();
    ASSERT_FALSE(moves.empty()) << i;
    if (moves[0].source_begin == 12) {
      EXPECT_EQ(moves[0].end, 15U);
      EXPECT_EQ(moves[0].sources[0].tokens, 4U);  // the tail of what is offered
    }
    h.tell(h.landed(moves[0]));
    moves.erase(moves.begin());
  }
  EXPECT_EQ(end_of(h, 11), "");
}

TEST(TransferFetch, Gap_IsAskedForAndRenewalsSayWhatIsKnown) {
  TransferHarness h;
  h.fetch();
  h.hear(h.offer());
  h.hear(h.clock(2, {{2, 2}}, {{21}}, 1));
  EXPECT_EQ(h.letters<KvRenew>().at(0).blocks_known, 0U);
  EXPECT_EQ(h.count<MoveKv>(), 0U);
  h.hear(h.clock(2, {{1, 2}}, {{20}}));
  h.pass(milliseconds(200));
  EXPECT_EQ(h.letters<KvRenew>().at(0).blocks_known, 1U);
  EXPECT_EQ(h.count<MoveKv>(), 1U);
}

TEST(TransferFetch, ShortOffer_GivesWhatThereIs) {
  TransferHarness h;
  h.fetch();
  h.hear(h.offer(6));
  h.hear(h.clock(1, {{2, 2}}));
  for (const MoveKv& move : h.take<MoveKv>()) h.tell(h.landed(move));
  EXPECT_EQ(end_of(h, 6), "the source offers 6 tokens");
}

TEST(TransferFetch, AnotherGeneration_EndsWithWhatIsProven) {
  TransferHarness h;
  const MoveKv move = h.moving().at(0);
  MoveDone done = h.landed(move);
  done.seen.at(1).generation = StampGeneration{999};
  h.tell(done);
  EXPECT_EQ(end_of(h, 4), "the source uses a block for something else");
}

TEST(TransferFetch, TooFewTokensInTheStamp_ProveNothing) {
  TransferHarness h;
  const MoveKv move = h.moving().at(0);
  MoveDone done = h.landed(move);
  done.seen.at(0).tokens = 3;
  h.tell(done);
  h.tell(h.landed(h.take<MoveKv>().at(0)));  // once more: only that block
  EXPECT_EQ(end_of(h, 8), "");
}

TEST(TransferFetch, WrongChecksum_IsMovedOnceMore) {
  TransferHarness h;
  MoveDone done = h.landed(h.moving().at(0));
  done.seen.at(1).intact = false;
  h.tell(done);
  const std::vector<MoveKv> again = h.take<MoveKv>();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].begin, 4U);
  done = h.landed(again[0]);
  done.seen.at(0).intact = false;
  h.tell(done);
  EXPECT_EQ(h.count<MoveKv>(), 0U);
  EXPECT_EQ(end_of(h, 4), "what arrives does not match its checksum");
}

TEST(TransferFetch, FailedMove_WaitsForAFenceUnlessQuiet) {
  TransferHarness h;
  const MoveKv move = h.moving().at(0);
  h.tell(MoveDone{move.id, MoveVerdict::failed, {}, false});
  EXPECT_EQ(h.count<MoveKv>(), 0U);
  EXPECT_EQ(h.core.audit().blocks.at(0).state, KvBlockState::quarantined);
  h.tell(Fenced{{999}});  // of nothing
  EXPECT_EQ(h.count<MoveKv>(), 0U);
  const EffectId fence = h.take<FencePeer>().at(0).id;
  h.tell(Fenced{fence});
  const MoveKv again = h.take<MoveKv>().at(0);
  EXPECT_NE(again.id, move.id);
  h.tell(MoveDone{again.id, MoveVerdict::failed, {}, true});  // twice is enough
  EXPECT_EQ(h.count<FencePeer>(), 0U);
  EXPECT_EQ(end_of(h, 0), "the link failed");
}

TEST(TransferFetch, Fence_TakesTheMovesOfOthersAlong) {
  TransferHarness h;
  const MoveKv first = h.moving().at(0);
  h.tell(FetchKv{{9}, {17}, {1}, kPeer, 0, 4, {{7}}});
  h.transfer = {{17}, {1}, 2};
  h.hear(h.offer());
  h.hear(h.clock(1, {{1, 2}}));
  const MoveKv other = h.take<MoveKv>().at(0);
  h.tell(MoveDone{first.id, MoveVerdict::peer_lost, {}, false});
  h.tell(MoveDone{other.id, MoveVerdict::cancelled, {}, false});
  h.tell(Fenced{h.take<FencePeer>().at(0).id});
  EXPECT_EQ(h.count<FencePeer>(), 0U);
  const std::vector<MoveKv> again = h.take<MoveKv>();
  ASSERT_EQ(again.size(), 2U);
  for (const MoveKv& move : again) h.tell(h.landed(move));
  EXPECT_EQ(h.take<FetchDone>().size(), 2U);
}

TEST(TransferFetch, Quarantine_IsNeverEndedByATimer) {
  TransferHarness h;
  const MoveKv move = h.moving().at(0);
  h.tell(AbandonFetch{{1}});
  EXPECT_EQ(h.take<CancelMove>().at(0).id, move.id);
  EXPECT_EQ(h.count<FetchDone>(), 0U);
  h.pass(milliseconds(101));
  EXPECT_EQ(h.count<FencePeer>(), 1U);
  h.pass(seconds(24 * 3600));
  EXPECT_EQ(h.count<FetchDone>(), 0U);
  EXPECT_EQ(h.core.audit().blocks.at(0).state, KvBlockState::quarantined);
  EXPECT_EQ(h.count<FenceOverdue>(), 1U);
  h.tell(Fenced{h.take<FencePeer>().at(0).id});
  EXPECT_EQ(end_of(h, 0), "abandoned");
}

TEST(TransferFetch, AbandonedMove_EndsByTheMoversWord) {
  TransferHarness h;
  const MoveKv move = h.moving().at(0);
  h.tell(AbandonFetch{{1}});
  h.tell(MoveDone{move.id, MoveVerdict::cancelled, {}, true});
  EXPECT_EQ(end_of(h, 0), "abandoned");
  EXPECT_EQ(h.count<FencePeer>(), 0U);
}

TEST(TransferFetch, SlowMove_IsCancelledThenFencedThenTriedAgain) {
  TransferHarness h;
  const MoveKv move = h.moving().at(0);
  for (int i = 0; i < 31; ++i) {
    h.pass(milliseconds(100));
    h.hear(h.clock(1, {{2, 2}}));  // the source is alive
  }
  EXPECT_EQ(h.take<CancelMove>().at(0).id, move.id);
  EXPECT_EQ(h.count<MoveKv>(), 0U);
  h.tell(Fenced{h.take<FencePeer>().at(0).id});
  h.tell(h.landed(h.take<MoveKv>().at(0)));
  EXPECT_EQ(end_of(h, 8), "");
}

TEST(TransferFetch, SlowLink_GetsTimeForWhatIsUnderWay) {
  TransferConfig config = test::transfer_config();
  config.token_layer_bytes = 1'000'000;
  config.move_bytes_max = 100'000'000;
  TransferHarness h(config);
  h.moving();  // 16 MB: 1.6 s at 10 MB/s
  for (int i = 0; i < 45; ++i) {
    h.pass(milliseconds(100));
    h.hear(h.clock(1, {{2, 2}}));
  }
  EXPECT_EQ(h.count<CancelMove>(), 0U);
  h.pass(milliseconds(200));
  EXPECT_EQ(h.count<CancelMove>(), 1U);
}

TEST(TransferFetch, PeerGone_FencesWhatMayStillWrite) {
  TransferHarness h;
  h.moving();
  h.tell(PeerGone{kStranger});
  EXPECT_EQ(h.count<FencePeer>(), 0U);
  h.tell(PeerGone{kPeer});
  h.tell(PeerGone{kPeer});
  EXPECT_EQ(h.count<FetchDone>(), 0U);
  const std::vector<FencePeer> fences = h.take<FencePeer>();
  ASSERT_EQ(fences.size(), 1U);
  h.tell(Fenced{fences[0].id});
  EXPECT_EQ(end_of(h, 0), "the source is gone");
}

TEST(TransferFetch, RefusalOfTheLease_KeepsWhatIsProven) {
  TransferHarness h;
  h.fetch();
  h.hear(h.offer());
  h.hear(h.clock(1, {{1, 2}}));
  h.tell(h.landed(h.take<MoveKv>().at(0)));
  h.hear(KvRefuse{h.transfer, LeaseId{}, "request", "late, of the ask"});
  h.hear(KvRefuse{h.transfer, LeaseId{5}, "lease", "it has ended"}, kStranger);
  EXPECT_EQ(h.count<FetchDone>(), 0U);
  h.hear(KvRefuse{h.transfer, LeaseId{5}, "lease", "it has ended"});
  EXPECT_EQ(end_of(h, 4), "lease: it has ended");
}

TEST(TransferFetch, LettersOfAnEndedFetch_AreAnsweredWithARelease) {
  TransferHarness h;
  h.hear(h.offer());
  h.hear(h.clock(1, {{1, 2}}));
  EXPECT_EQ(h.letters<KvRelease>().size(), 2U);
  h.hear(KvHold{h.transfer});
  h.hear(KvRefuse{h.transfer, LeaseId{5}, "lease", "x"});
  EXPECT_TRUE(h.out.empty());
}

TEST(TransferFetch, NonsenseWishes_EndAtOnce) {
  TransferHarness h;
  h.tell(FetchKv{{1}, {7}, {1}, kPeer, 4, 4, {{0}}});
  h.tell(FetchKv{{2}, {7}, {1}, kPeer, 2, 4, {{0}}});
  h.tell(FetchKv{{3}, {7}, {1}, kPeer, 0, 9, {{0}, {1}}});
  h.tell(FetchKv{{4}, {7}, {1}, test::kSelf, 0, 4, {{0}}});
  h.tell(FetchKv{{5}, {7}, {1}, {}, 0, 4, {{0}}});
  EXPECT_EQ(h.take<FetchDone>().size(), 5U);
  h.tell(FetchKv{{6}, {7}, {1}, kPeer, 0, 4, {{0}}});
  h.tell(FetchKv{{6}, {7}, {1}, kPeer, 0, 4, {{0}}});
  h.tell(FetchKv{{7}, {9}, {1}, kPeer, 0, 8, {{1}, {0}}});  // block 0 is taken
  const std::vector<FetchDone> done = h.take<FetchDone>();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].why, "a block still belongs to another transfer");
  EXPECT_EQ(h.core.audit().blocks.size(), 1U);
}

}  // namespace
}  // namespace infos
