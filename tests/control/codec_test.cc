// SPDX-License-Identifier: Apache-2.0
// Goal: what is written is read back unchanged, is the protobuf that messages.proto describes, and
// hostile bytes are refused with the field named. Method: random messages; Google's generated
// classes as oracle; every truncation and byte flip.
#include "daemon/control/codec.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include "messages.pb.h"
#include "tests/control/random_message.h"

namespace infos {
namespace {

template <typename T>
std::string put(const T& message) {
  std::string out;
  wire::WireWriter(out).put_body(message);
  return out;
}

/// Oracle: the generated class reads our bytes, knows every field, and writes the very same bytes.
template <typename Oracle, typename T>
void expect_same_as_protobuf(std::uint64_t seed) {
  T message{};
  test::RandomMessage(seed).fill(message);
  const std::string ours = put(message);
  Oracle oracle;
  ASSERT_TRUE(oracle.ParseFromString(ours)) << "seed " << seed;
  oracle.DiscardUnknownFields();  // a field that the schema lacks shows as missing bytes below
  std::string theirs;
  {
    google::protobuf::io::StringOutputStream stream(&theirs);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    ASSERT_TRUE(oracle.SerializeToCodedStream(&coded));
  }
  T back{};
  wire::WireReader reader(theirs);
  ASSERT_TRUE(reader.read(back)) << "seed " << seed << ": " << reader.error();
  EXPECT_EQ(put(back), ours) << "seed " << seed;
  EXPECT_EQ(theirs, ours) << "seed " << seed;
}

TEST(Codec, RandomMessages_AreTheSchemasProtobuf) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    expect_same_as_protobuf<v1::ToWorker, ToWorker>(seed);
    expect_same_as_protobuf<v1::FromWorker, FromWorker>(seed);
    expect_same_as_protobuf<v1::Record, Record>(seed);
    expect_same_as_protobuf<v1::GatewayEffect, GatewayEffect>(seed);
    expect_same_as_protobuf<v1::WorkerEffect, WorkerEffect>(seed);
    expect_same_as_protobuf<v1::AgentEffect, AgentEffect>(seed);
  }
}

TEST(Codec, RandomMessages_ComeBackEqual) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    test::RandomMessage random(seed);
    ToWorker to;
    FromWorker from;
    Record record;
    random.fill(to), random.fill(from), random.fill(record);
    EXPECT_EQ(decode_to_worker(encode(to)).value(), to) << "seed " << seed;
    EXPECT_EQ(decode_from_worker(encode(from)).value(), from) << "seed " << seed;
    EXPECT_EQ(decode_record(encode(record)).value(), record) << "seed " << seed;
  }
}

TEST(Codec, Absent_TakesTheDefaultAndUnknownIsSkipped) {
  v1::ToWorker bare;
  bare.mutable_submit()->set_request(7);
  std::string bytes;
  ASSERT_TRUE(bare.SerializeToString(&bytes));
  Submit want;
  want.request = RequestId{7};
  EXPECT_EQ(decode_to_worker(bytes).value(), ToWorker(want));
  // Field 99 of every wire type, from a later version.
  const std::string later = {'\x98', 6,      5, '\x99', 6,   1,      2, 3, 4, 5, 6, 7,
                             8,      '\x9a', 6, 1,      'x', '\x9d', 6, 1, 2, 3, 4};
  EXPECT_EQ(decode_to_worker(bytes + later).value(), ToWorker(want));
}

TEST(Codec, Hostile_NamesTheField) {
  struct Case {
    std::string bytes;
    const char* want;
  };
  const Case cases[] = {
      {"", "no alternative"},
      {{'\x0a', 9, 1}, "submit: a length that runs past the end"},
      {{'\x0a', 2, '\x0a', 0}, "submit: request: not a whole number"},
      {{'\x0a', 2, '\x3a', 5}, "submit: sampling: a length that runs past the end"},
      {{'\x0a', 4, '\x3a', 2, '\x08', 1}, "submit: sampling: temperature: not 4 bytes"},
      {{'\x0a', 7, 16, '\xff', '\xff', '\xff', '\xff', '\xff', 1},
       "submit: attempt: 68719476735 is out of range"},
      {{'\x0b', 0}, "submit: a length that runs past the end"},
      {{'\x07'}, "a bad field tag"},
  };
  for (const Case& c : cases) {
    const auto got = decode_to_worker(c.bytes);
    ASSERT_FALSE(got.ok()) << c.want;
    EXPECT_EQ(got.error().code, ErrorCode::corrupt);
    EXPECT_NE(got.error().message.find(c.want), std::string::npos) << got.error().message;
  }
  const auto reason = decode_from_worker(std::string{'\x12', 4, '\x12', 2, '\x18', 9});
  EXPECT_NE(reason.error().message.find("step_report: ended: reason: 9, want 0 to 5"),
            std::string::npos)
      << reason.error().message;
}

TEST(Codec, EveryTruncationAndFlip_IsAValueOrAnError) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    FromWorker from;
    test::RandomMessage(seed).fill(from);
    const std::string good = encode(from);
    for (std::size_t i = 0; i < good.size(); ++i) {
      (void)decode_from_worker(good.substr(0, i)).ok();
      std::string flipped = good;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << (i % 8)));
      const auto got = decode_from_worker(flipped);
      if (!got.ok()) {
        EXPECT_EQ(got.error().code, ErrorCode::corrupt);
      }
    }
  }
}

TEST(Codec, FewBytes_CannotAskForMuchMemory) {
  std::string inner;
  for (int i = 0; i < 70000; ++i) inner += std::string{'\x0a', 0};
  std::string bytes{'\x12'};
  for (std::size_t n = inner.size();; n >>= 7) {
    if (n < 0x80) {
      bytes.push_back(static_cast<char>(n));
      break;
    }
    bytes.push_back(static_cast<char>(n | 0x80));
  }
  EXPECT_NE(decode_from_worker(bytes + inner).error().message.find("tokens: too many entries"),
            std::string::npos);
  EXPECT_FALSE(decode_to_worker(std::string(kFrameBytesMax + 1, '\0')).ok());
}

TEST(Codec, EffectHash_DependsOnEveryEffectAndOrder) {
  const GatewayEffects a{Deliver{RequestId{1}, {}}}, b{Deliver{RequestId{2}, {}}};
  EXPECT_EQ(hash_effects(5, GatewayEffects{}), 5U);
  EXPECT_NE(hash_effects(0, a), hash_effects(0, b));
  EXPECT_NE(hash_effects(hash_effects(0, a), b), hash_effects(hash_effects(0, b), a));
}

}  // namespace
}  // namespace infos
