// SPDX-License-Identifier: Apache-2.0
// Goal: link messages are the protobuf that peer.proto describes; frames are cut the same however
// their bytes come.
// Method: generated classes as the oracle; every cut of a stream.
#include "daemon/runtime/peer/peer_messages.h"

#include <gtest/gtest.h>

#include "daemon/runtime/peer/join_tokens.h"
#include "peer.pb.h"

namespace infos {
namespace {

Hello full_hello() {
  Hello hello{"lab", NodeId{7}, 3, 2, 1, 0xff00ff00ff00ff00u, 42, "10.0.0.7:7400", "0.1"};
  return hello;
}

TEST(PeerMessages, AreTheProtobufOfTheSchema) {
  peer::Hello hello;
  hello.set_cluster("lab");
  hello.set_node(7);
  hello.set_incarnation(3);
  hello.set_version(2);
  hello.set_version_min(1);
  hello.set_features(0xff00ff00ff00ff00u);
  hello.set_last_link(42);
  hello.set_address("10.0.0.7:7400");
  hello.set_build("0.1");
  EXPECT_EQ(encode(full_hello()), hello.SerializeAsString());

  peer::Welcome welcome;
  welcome.set_link(~0ull);
  EXPECT_EQ(encode(Welcome{~0ull}), welcome.SerializeAsString());
  peer::Refusal refusal;
  refusal.set_reason("no");
  EXPECT_EQ(encode(Refusal{"no"}), refusal.SerializeAsString());
  peer::Ping ping;
  ping.set_sequence(300);
  EXPECT_EQ(encode(Ping{300}), ping.SerializeAsString());
  peer::JoinRequest join;
  join.set_token("a");
  join.set_name("b");
  join.set_request("c");
  join.set_address("d");
  EXPECT_EQ(encode(JoinRequest{"a", "b", "c", "d"}), join.SerializeAsString());
  peer::JoinAnswer joined;
  joined.set_error("a");
  joined.set_certificate("b");
  joined.set_authority("c");
  joined.set_controller(9);
  EXPECT_EQ(encode(JoinAnswer{"a", "b", "c", NodeId{9}}), joined.SerializeAsString());
  peer::RenewRequest renew;
  renew.set_request("a");
  EXPECT_EQ(encode(RenewRequest{"a"}), renew.SerializeAsString());
  peer::RenewAnswer answer;
  answer.set_error("a");
  answer.set_certificate("b");
  EXPECT_EQ(encode(RenewAnswer{"a", "b"}), answer.SerializeAsString());
  peer::Renewed renewed;
  renewed.set_certificate("a");
  renewed.set_proof("b\xff");
  EXPECT_EQ(encode(Renewed{"a", "b\xff"}), renewed.SerializeAsString());
}

TEST(PeerMessages, StoredToken_IsTheProtobufOfTheSchema) {
  const TokenRecord record{"0123456789abcdef", std::string(32, '\xee'), {Role::decode}, 5, 6, "n"};
  peer::StoredToken stored;
  stored.set_id(record.id);
  stored.set_hash(record.hash);
  stored.set_roles("decode");
  stored.set_created(5);
  stored.set_expires(6);
  stored.set_used_by("n");
  EXPECT_EQ(encode(record), stored.SerializeAsString());
}

TEST(PeerMessages, Versions_AgreeOnTheNewestThatBothSpeak) {
  const auto agree = [](std::uint32_t mine_min, std::uint32_t mine, std::uint32_t their_min,
                        std::uint32_t theirs) {
    Hello a, b;
    a.version_min = mine_min, a.version = mine;
    b.version_min = their_min, b.version = theirs;
    const auto agreed = agree_version(a, b);
    return agreed.ok() ? *agreed : 0;
  };
  EXPECT_EQ(agree(4, 5, 4, 5), 5u);
  EXPECT_EQ(agree(4, 5, 3, 4), 4u);
  EXPECT_EQ(agree(4, 5, 5, 6), 5u);
  EXPECT_EQ(agree(4, 5, 6, 7), 0u);
  EXPECT_EQ(agree(4, 5, 2, 3), 0u);
  EXPECT_EQ(agree(4, 5, 6, 5), 0u);  // a range the wrong way round
}

TEST(PeerFrames, EveryCut_GivesTheSameFrames) {
  std::string stream;
  append_peer_frame(stream, 1, encode(full_hello()));
  append_peer_frame(stream, 65535, "");
  append_peer_frame(stream, 100, std::string(300, 'x'));
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    PeerFrameReader reader;
    std::string seen;
    for (const std::string_view part :
         {std::string_view(stream).substr(0, cut), std::string_view(stream).substr(cut)}) {
      reader.append(part);
      while (const auto frame = reader.next().value())
        append_peer_frame(seen, frame->kind, frame->payload);
    }
    ASSERT_EQ(seen, stream) << "cut at " << cut;
    EXPECT_EQ(reader.held(), 0u);
  }
}

TEST(PeerFrames, LengthAboveTheLimit_IsRefusedByItsHeader) {
  std::string stream;
  append_peer_frame(stream, 1, std::string(kGreetingBytesMax + 1, 'x'));
  PeerFrameReader reader;
  reader.append(stream.substr(0, 5));
  EXPECT_FALSE(reader.next().value());
  reader.append(stream.substr(5, 1));
  const auto frame = reader.next();
  ASSERT_FALSE(frame.ok());
  EXPECT_EQ(frame.error().message, "frame of 16385 bytes: at most 16384 are allowed here");
  PeerFrameReader wider;
  wider.set_limit(kPeerFrameBytesMax);
  wider.append(stream);
  EXPECT_TRUE(wider.next().value());
}

}  // namespace
}  // namespace infos
