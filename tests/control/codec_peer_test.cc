// SPDX-License-Identifier: Apache-2.0
// Goal: plans and words between daemons come back unchanged, are the protobuf that messages.proto
// describes, and hostile bytes are refused with the field named. Method: random messages; Google's
// generated classes as oracle; every truncation.
#include "daemon/control/codec_peer.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include "daemon/control/codec_peer_fields.h"
#include "messages.pb.h"
#include "tests/control/random_message.h"

namespace infos {
namespace {

template <typename Oracle>
std::string through(const std::string& ours, std::uint64_t seed) {
  Oracle oracle;
  EXPECT_TRUE(oracle.ParseFromString(ours)) << "seed " << seed;
  oracle.DiscardUnknownFields();
  std::string theirs;
  google::protobuf::io::StringOutputStream stream(&theirs);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  EXPECT_TRUE(oracle.SerializeToCodedStream(&coded));
  coded.Trim();
  return theirs;
}

TEST(CodecPeer, RandomMessages_AreTheSchemasProtobufAndComeBackEqual) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    test::RandomMessage random(seed);
    PeerMessage message;
    Plan plan;
    random.fill(message), random.fill(plan);
    EXPECT_EQ(decode_peer_message(encode(message)).value(), message) << "seed " << seed;
    EXPECT_EQ(decode_plan(encode_plan(plan)).value(), plan) << "seed " << seed;
    EXPECT_EQ(through<v1::PeerMessage>(encode(message), seed), encode(message)) << "seed " << seed;
    EXPECT_EQ(through<v1::Plan>(encode_plan(plan), seed), encode_plan(plan)) << "seed " << seed;
  }
}

TEST(CodecPeer, HostileBytes_AreRefusedWithTheField) {
  const auto bad = decode_plan(std::string("\x1a\x7f", 2));
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, ErrorCode::corrupt);
  EXPECT_NE(bad.error().message.find("nodes"), std::string::npos) << bad.error().message;
  EXPECT_FALSE(decode_peer_message("").ok());
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    PeerMessage message;
    test::RandomMessage(seed).fill(message);
    const std::string bytes = encode(message);
    for (std::size_t length = 0; length < bytes.size(); ++length)
      static_cast<void>(decode_peer_message(bytes.substr(0, length)));  // must not crash
  }
}

}  // namespace
}  // namespace infos
