// SPDX-License-Identifier: Apache-2.0
// Goal: letters between workers are the protobuf that kv.proto describes, come back equal, and
// hostile ones are refused with the field named. Method: random letters; Google's generated classes
// as oracle; every truncation and flip.
#include <gtest/gtest.h>

#include "daemon/control/codec_kv.h"
#include "daemon/control/codec_kv_fields.h"
#include "kv.pb.h"
#include "tests/control/random_message.h"

namespace infos {
namespace {

TEST(TransferCodec, RandomLetters_AreTheSchemasProtobufAndComeBackEqual) {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    KvMessage message;
    test::RandomMessage(seed).fill(message);
    const std::string ours = encode(message);
    v1::KvMessage oracle;
    ASSERT_TRUE(oracle.ParseFromString(ours)) << "seed " << seed;
    oracle.DiscardUnknownFields();  // a field that the schema lacks shows as missing bytes below
    EXPECT_EQ(oracle.SerializeAsString(), ours) << "seed " << seed;
    EXPECT_EQ(decode_kv_message(ours).value(), message) << "seed " << seed;
  }
}

TEST(TransferCodec, FieldsOfALaterVersion_AreSkipped) {
  const KvMessage message = KvHold{{RequestId{7}, Attempt{2}, 3}};
  std::string bytes = encode(message);
  bytes += std::string{'\x98', 6, 5};  // field 99
  EXPECT_EQ(decode_kv_message(bytes).value(), message);
}

TEST(TransferCodec, HostileLetters_AreRefusedWithTheField) {
  EXPECT_NE(decode_kv_message("").error().message.find("no alternative"), std::string::npos);
  const std::string how{'\x1a', 2, '\x18', 9};
  EXPECT_NE(decode_kv_message(how).error().message.find("kv_release: how: 9, want 0 to 1"),
            std::string::npos);
  const std::string length{'\x0a', 4, '\x32', 127, 1, 1};
  EXPECT_NE(decode_kv_message(length).error().message.find("kv_ask: identity: a length that runs"),
            std::string::npos);
  EXPECT_NE(
      decode_kv_message(std::string(kKvLetterBytesMax + 1, 'x')).error().message.find("at most"),
      std::string::npos);
}

TEST(TransferCodec, EveryTruncationAndFlip_IsAValueOrAnError) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    KvMessage message;
    test::RandomMessage(seed).fill(message);
    const std::string good = encode(message);
    for (std::size_t i = 0; i < good.size(); ++i) {
      (void)decode_kv_message(good.substr(0, i)).ok();
      std::string flipped = good;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << (i % 8)));
      const auto got = decode_kv_message(flipped);
      if (!got.ok()) {
        EXPECT_EQ(got.error().code, ErrorCode::corrupt);
      }
    }
  }
}

}  // namespace
}  // namespace infos
