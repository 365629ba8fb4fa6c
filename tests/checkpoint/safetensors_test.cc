// SPDX-License-Identifier: Apache-2.0
// Goal: safetensors files are read as written, and those that lie give an error that names the
// place. Method: files written here are read back; a table of headers, each with one lie; every
// truncation and bit flip.
#include "devices/engine/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "devices/engine/checkpoint/file_bytes.h"
#include "devices/engine/checkpoint/safetensors_writer.h"

namespace infos {
namespace {

std::vector<std::byte> file_of(const std::string& header, std::size_t data) {
  std::vector<std::byte> out(8 + header.size() + data);
  const std::uint64_t length = header.size();
  std::memcpy(out.data(), &length, 8);
  std::memcpy(out.data() + 8, header.data(), header.size());
  return out;
}

/// Pads a header so that the data begins at a multiple of 8.
std::string padded(std::string header) {
  header.append((8 - header.size() % 8) % 8, ' ');
  return header;
}

std::vector<std::byte> written() {
  static const std::vector<std::byte> data(24, std::byte{7});
  const std::vector<TensorView> tensors = {{"a", DType::f32, {2, 2}, std::span(data).first(16)},
                                           {"b", DType::bf16, {4}, std::span(data).subspan(16)}};
  auto bytes = safetensors_header(tensors);
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

TEST(Safetensors, WrittenFile_ReadsBack) {
  const auto bytes = written();
  const auto read = parse_safetensors(bytes, "f");
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].name, "a");
  EXPECT_EQ((*read)[0].dims, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ((*read)[1].dtype, DType::bf16);
  EXPECT_EQ((*read)[1].data.data() + 8, bytes.data() + bytes.size());
}

struct Lie {
  const char* name;
  std::string header;
  std::size_t data;
  ErrorCode code;
  std::vector<const char*> words;
};

void PrintTo(const Lie& lie, std::ostream* out) { *out << lie.name; }

std::string deep(int levels) {
  std::string out = R"({"__metadata__":)";
  for (int i = 0; i < levels; ++i) out += '[';
  return out;
}

std::vector<Lie> lies() {
  const auto corrupt = ErrorCode::corrupt, unsupported = ErrorCode::unsupported;
  return {
      {"NotJson", "{\"a\":", 0, corrupt, {"header", "not JSON"}},
      {"NotObject", "[]      ", 0, corrupt, {"header", "want an object"}},
      {"Trailing", "{} {}   ", 0, corrupt, {"header", "not JSON"}},
      {"Depth", deep(50), 0, corrupt, {"header", "not JSON"}},
      {"NameTwice",
       R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8,
       corrupt,
       {"\"a\"", "twice"}},
      {"Dtype",
       R"({"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})",
       4,
       unsupported,
       {"\"a\"", "dtype", "F8_E4M3"}},
      {"NoDtype",
       R"({"a":{"shape":[4],"data_offsets":[0,4]}})",
       4,
       corrupt,
       {"\"a\"", "dtype", "missing"}},
      {"ShapeText",
       R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})",
       4,
       corrupt,
       {"\"a\"", "shape"}},
      {"ShapeNegative",
       R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
       4,
       corrupt,
       {"\"a\"", "shape"}},
      {"ShapeOverflow",
       R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,4]}})",
       4,
       corrupt,
       {"\"a\"", "shape"}},
      {"ShapeOverflowToFit",
       R"({"a":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}})",
       4,
       corrupt,
       {"\"a\"", "shape"}},
      {"OffsetsMissing",
       R"({"a":{"dtype":"F32","shape":[1]}})",
       4,
       corrupt,
       {"\"a\"", "data_offsets"}},
      {"OffsetsFalling",
       R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})",
       4,
       corrupt,
       {"\"a\"", "data_offsets"}},
      {"OffsetsPastEnd",
       R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       4,
       corrupt,
       {"\"a\"", "within the 4 bytes"}},
      {"SizeMismatch",
       R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})",
       4,
       corrupt,
       {"\"a\"", "want 8"}},
      {"Hole",
       R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8,
       corrupt,
       {"\"a\"", "hole"}},
      {"Overlap",
       R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       12,
       corrupt,
       {"\"b\"", "overlap"}},
      {"SameBytes",
       R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       8,
       corrupt,
       {"overlap"}},
      {"DataLeftOver",
       R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       8,
       corrupt,
       {"8 bytes of data"}},
      {"MetadataNumber",
       R"({"__metadata__":{"format":1}})",
       0,
       corrupt,
       {"__metadata__", "format"}},
  };
}

class SafetensorsLie : public testing::TestWithParam<Lie> {};

TEST_P(SafetensorsLie, IsAnErrorThatNamesFileAndField) {
  const Lie& lie = GetParam();
  const auto read = parse_safetensors(file_of(padded(lie.header), lie.data), "w.safetensors");
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, lie.code) << read.error().message;
  EXPECT_TRUE(read.error().message.starts_with("w.safetensors: ")) << read.error().message;
  for (const char* word : lie.words)
    EXPECT_NE(read.error().message.find(word), std::string::npos)
        << read.error().message << "\nwants: " << word;
}

INSTANTIATE_TEST_SUITE_P(Header, SafetensorsLie, testing::ValuesIn(lies()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Safetensors, HeaderLength_BeyondTheFileOrTheLimit_IsRefused) {
  auto bytes = file_of("{}      ", 0);
  bytes[0] = std::byte{9};
  auto read = parse_safetensors(bytes, "f");
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("header length: is 9: want at most 8"), std::string::npos)
      << read.error().message;
  bytes[7] = std::byte{0xFF};
  EXPECT_FALSE(parse_safetensors(bytes, "f").ok());
  EXPECT_FALSE(
      parse_safetensors(file_of(std::string(2000, ' '), 0), "f", {.header_bytes = 1000}).ok());
}

TEST(Safetensors, TooManyTensors_AreRefusedBeforeTheyAreBuilt) {
  std::string header = "{";
  for (int i = 0; i < 100; ++i)
    header += (i ? ",\"" : "\"") + std::to_string(i) +
              R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  const auto read = parse_safetensors(file_of(padded(header + "}"), 0), "f", {.tensors = 10});
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("too many values"), std::string::npos)
      << read.error().message;
}

TEST(Safetensors, DataAtAnOddPlace_IsRefused) {
  std::string header = padded(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})") + " ";
  const auto read = parse_safetensors(file_of(header, 4), "f");
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("not a multiple of 4"), std::string::npos)
      << read.error().message;
}

TEST(Safetensors, EveryTruncation_IsAnError) {
  const auto whole = written();
  for (std::size_t length = 0; length < whole.size(); ++length)
    ASSERT_FALSE(parse_safetensors(std::span(whole).first(length), "f").ok()) << length;
}

TEST(Safetensors, EveryBitFlip_IsAnErrorOrTilesTheData) {
  const auto whole = written();
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      auto bent = whole;
      bent[at] ^= static_cast<std::byte>(1 << bit);
      const auto read = parse_safetensors(bent, "f");
      if (!read.ok()) continue;
      std::size_t total = 0;
      for (const auto& tensor : *read) total += tensor.data.size();
      ASSERT_EQ(total, 24u) << "byte " << at << " bit " << bit;
    }
}

}  // namespace
}  // namespace infos
