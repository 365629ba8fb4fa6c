// SPDX-License-Identifier: Apache-2.0
// Goal: a GGUF file that is cut, bent or lying gives an error that names the place, or is the same
// model; never a crash. Method: a table of single lies with the words that the error must hold;
// every truncation and every bit flip of the smallest model; under the sanitizers.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "devices/engine/checkpoint/gguf_checkpoint.h"
#include "devices/engine/checkpoint/gguf_config.h"
#include "tests/checkpoint/gguf_bytes.h"

namespace infos {
namespace {

using test::Bytewise;

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();

struct Lie {
  const char* name;
  Bytewise bytes;
  ErrorCode code;
  std::vector<const char*> words;  ///< that the error holds
};

void PrintTo(const Lie& lie, std::ostream* out) { *out << lie.name; }

Bytewise key(std::string_view name, GgufType type) {
  return Bytewise().head(0, 1).text(name).type(type);
}

/// One tensor directory entry, then `data` bytes at the next multiple of 32.
Bytewise one_tensor(std::vector<std::uint64_t> dims, std::uint32_t type, std::uint64_t offset,
                    std::size_t data) {
  return Bytewise().head(1, 0).tensor("w", std::move(dims), type, offset).pad(32).zeros(data);
}

std::vector<Lie> container_lies() {
  const auto corrupt = ErrorCode::corrupt, unsupported = ErrorCode::unsupported;
  return {
      {"Empty", Bytewise(), corrupt, {"magic"}},
      {"Magic", Bytewise().raw("GGML"), corrupt, {"magic", "47 47 4d 4c", "GGUF"}},
      {"Version", Bytewise().raw("GGUF").number(4U), unsupported, {"version", "4", "2 or 3"}},
      {"BigEndian",
       Bytewise().raw("GGUF").number(0x03000000U),
       unsupported,
       {"version", "big endian"}},
      {"TensorCount", Bytewise().head(kHuge, 0), corrupt, {"tensor count"}},
      {"KeyCount", Bytewise().head(0, kHuge), corrupt, {"metadata count"}},
      {"KeyLength",
       Bytewise().head(0, 1).number(kHuge),
       corrupt,
       {"metadata key 0", "at most 1024"}},
      {"KeyEmpty", Bytewise().head(0, 1).text(""), corrupt, {"metadata key 0", "empty"}},
      {"ValueType", key("k", static_cast<GgufType>(13)), corrupt, {"k", "13", "0 to 12"}},
      {"StringLength",
       key("k", GgufType::string).number(kHuge),
       corrupt,
       {"k", "18446744073709551615"}},
      {"StringPastEnd",
       key("k", GgufType::string).number<std::uint64_t>(5).raw("abc"),
       corrupt,
       {"k", "5 bytes"}},
      {"ArrayCount",
       key("k", GgufType::array).type(GgufType::u8).number(kHuge),
       corrupt,
       {"k", "array of"}},
      {"ArrayPastEnd",
       key("k", GgufType::array).type(GgufType::u64).number<std::uint64_t>(1 << 20),
       corrupt,
       {"k", "8388608"}},
      {"Bool", key("k", GgufType::boolean).number<std::uint8_t>(2), corrupt, {"k", "2", "0 or 1"}},
      {"Nesting",
       key("k", GgufType::array)
           .type(GgufType::array)
           .number<std::uint64_t>(1)
           .type(GgufType::array)
           .number<std::uint64_t>(1)
           .type(GgufType::array)
           .number<std::uint64_t>(1)
           .type(GgufType::u8)
           .number<std::uint64_t>(0),
       corrupt,
       {"k", "nested deeper"}},
      {"KeyTwice",
       Bytewise()
           .head(0, 2)
           .text("k")
           .type(GgufType::u8)
           .number<std::uint8_t>(1)
           .text("k")
           .type(GgufType::u8)
           .number<std::uint8_t>(1),
       corrupt,
       {"k", "twice"}},
      {"Alignment",
       key("general.alignment", GgufType::u32).number(24U),
       corrupt,
       {"general.alignment", "24", "power of two"}},
      {"AlignmentZero",
       key("general.alignment", GgufType::u32).number(0U),
       corrupt,
       {"general.alignment"}},
      {"AlignmentType",
       key("general.alignment", GgufType::string).text("32"),
       corrupt,
       {"general.alignment", "string"}},
      {"Rank", one_tensor({}, 0, 0, 0), corrupt, {"\"w\"", "0 dimensions"}},
      {"RankFive", one_tensor({1, 1, 1, 1, 1}, 0, 0, 32), corrupt, {"\"w\"", "5 dimensions"}},
      {"DimZero", one_tensor({0}, 0, 0, 32), corrupt, {"\"w\"", "dimension 0 is 0"}},
      {"ProductOverflow",
       one_tensor({1ULL << 32, 1ULL << 32}, 0, 0, 32),
       corrupt,
       {"\"w\"", "dimension 1"}},
      {"ProductOverflowFour",
       one_tensor({1ULL << 16, 1ULL << 16, 1ULL << 16, 1ULL << 16}, 0, 0, 32),
       corrupt,
       {"dimension 3"}},
      {"TypeUnknown", one_tensor({1}, 77, 0, 32), corrupt, {"\"w\"", "77"}},
      {"TypeQ5K", one_tensor({256}, 13, 0, 256), unsupported, {"\"w\"", "q5_k"}},
      {"RowNotWholeBlocks", one_tensor({33}, 8, 0, 64), corrupt, {"\"w\"", "33", "32"}},
      {"OffsetMisaligned", one_tensor({1}, 0, 4, 64), corrupt, {"\"w\"", "offset 4", "32"}},
      {"OffsetPastEnd", one_tensor({8}, 0, 32, 32), corrupt, {"\"w\"", "past the end", "32 bytes"}},
      {"OffsetHuge", one_tensor({8}, 0, kHuge - 31, 32), corrupt, {"\"w\"", "past the end"}},
      {"Overlap",
       Bytewise().head(2, 0).tensor("a", {16}, 0, 0).tensor("b", {8}, 0, 32).pad(32).zeros(64),
       corrupt,
       {"\"b\"", "overlap", "\"a\""}},
      {"NameTwice",
       Bytewise().head(2, 0).tensor("a", {8}, 0, 0).tensor("a", {8}, 0, 32).pad(32).zeros(64),
       corrupt,
       {"\"a\"", "twice"}},
  };
}

class GgufLie : public testing::TestWithParam<Lie> {};

TEST_P(GgufLie, IsAnErrorThatNamesFileAndField) {
  const Lie& lie = GetParam();
  const auto opened = open_gguf(FileBytes::own(lie.bytes.bytes()), "model.gguf");
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, lie.code) << opened.error().message;
  EXPECT_TRUE(opened.error().message.starts_with("model.gguf: ")) << opened.error().message;
  for (const char* word : lie.words)
    EXPECT_NE(opened.error().message.find(word), std::string::npos)
        << opened.error().message << "\nwants: " << word;
}

INSTANTIATE_TEST_SUITE_P(Container, GgufLie, testing::ValuesIn(container_lies()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(GgufHostile, VersionTwo_Opens) {
  auto bytes = test::smallest_gguf();
  bytes[4] = std::byte{2};
  const auto opened = open_gguf(FileBytes::own(bytes), "m");
  EXPECT_TRUE(opened.ok()) << opened.error().message;
}

TEST(GgufHostile, ErrorsShowNoControlCharacters) {
  const Bytewise bytes =
      Bytewise().head(0, 1).text("\x1b[2Jkey\xff").type(static_cast<GgufType>(99));
  const auto opened = open_gguf(FileBytes::own(bytes.bytes()), "m");
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().message.find("?[2Jkey?"), std::string::npos) << opened.error().message;
}

TEST(GgufHostile, EveryTruncation_IsAnError) {
  const auto whole = test::smallest_gguf();
  ASSERT_TRUE(open_gguf(FileBytes::own(whole), "m").ok());
  // The last tensor's padding may be missing.
  const std::size_t needed = whole.size() - (32 - 8 * sizeof(float) % 32) % 32;
  for (std::size_t length = 0; length < needed; ++length) {
    const auto opened = open_gguf(
        FileBytes::own({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)}), "m");
    ASSERT_FALSE(opened.ok()) << "cut to " << length << " of " << whole.size();
    ASSERT_TRUE(opened.error().message.starts_with("m: ")) << opened.error().message;
  }
}

/// Reads every byte of every view: the sanitizer says when one lies outside.
std::uint64_t touch_all(const Checkpoint& checkpoint) {
  std::uint64_t sum = 0;
  for (const auto& tensor : checkpoint.tensors())
    for (const std::byte b : tensor.data) sum += static_cast<std::uint64_t>(b);
  return sum;
}

TEST(GgufHostile, EveryBitFlip_IsAnErrorOrAModelThatHolds) {
  const auto whole = test::smallest_gguf();
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      auto bent = whole;
      bent[at] ^= static_cast<std::byte>(1 << bit);
      const auto opened = open_gguf(FileBytes::own(std::move(bent)), "m");
      if (!opened.ok()) {
        ASSERT_FALSE(opened.error().message.empty());
        continue;
      }
      // What still opens is consistent in itself: valid, whole, and every view readable.
      ASSERT_TRUE((*opened)->config().validate().ok()) << "byte " << at << " bit " << bit;
      ASSERT_EQ((*opened)->tensors().size(), 11u) << "byte " << at << " bit " << bit;
      touch_all(**opened);
    }
  }
}

/// Changes the smallest configuration before it is written; the file must be refused with these
/// words.
struct ConfigLie {
  const char* name;
  std::function<void(ModelConfig&)> change;
  std::vector<const char*> words;
};

void PrintTo(const ConfigLie& lie, std::ostream* out) { *out << lie.name; }

class GgufConfigLie : public testing::TestWithParam<ConfigLie> {};

// The weights stay those of the true configuration: only the keys lie.
TEST_P(GgufConfigLie, IsRefused) {
  ModelConfig lying = test::smallest_config();
  GetParam().change(lying);
  GgufHeader header = *gguf_header(lying, test::smallest_tokenizer(), DType::f32);
  const auto visited = visit_tensors(test::smallest_config(), ExpertForm::stacked,
                                     [&](const TensorSpec& spec) -> Status {
                                       header.add_tensor(spec.name, DType::f32, spec.dims);
                                       return {};
                                     });
  ASSERT_TRUE(visited.ok());
  auto bytes = header.bytes();
  for (const auto size : header.tensor_bytes()) bytes.resize(bytes.size() + (size + 31) / 32 * 32);
  const auto opened = open_gguf(FileBytes::own(std::move(bytes)), "m");
  ASSERT_FALSE(opened.ok());
  for (const char* word : GetParam().words)
    EXPECT_NE(opened.error().message.find(word), std::string::npos)
        << opened.error().message << "\nwants: " << word;
}

INSTANTIATE_TEST_SUITE_P(
    Keys, GgufConfigLie,
    testing::Values(
        ConfigLie{"MoreLayers",
                  [](ModelConfig& c) { c.layers = 2; },
                  {"blk.1.attn_norm.weight", "missing"}},
        ConfigLie{"NoLayers", [](ModelConfig& c) { c.layers = 0; }, {"layers is 0"}},
        ConfigLie{
            "MillionLayers", [](ModelConfig& c) { c.layers = 1000000; }, {"layers is 1000000"}},
        ConfigLie{"NoHeads", [](ModelConfig& c) { c.heads = 0; }, {"head_count", "0"}},
        ConfigLie{"OtherWidth",
                  [](ModelConfig& c) { c.hidden = 16; },
                  {"token_embd.weight", "[4, 8]", "[4, 16]"}},
        ConfigLie{"OtherHeadDim",
                  [](ModelConfig& c) { c.head_dim = 2; },
                  {"attn_q.weight", "[8, 8]", "[4, 8]"}},
        ConfigLie{"OtherKvHeads", [](ModelConfig& c) { c.kv_heads = 2; }, {"attn_k.weight"}},
        ConfigLie{"OtherFfn", [](ModelConfig& c) { c.ffn_hidden = 16; }, {"ffn_gate.weight"}},
        ConfigLie{
            "OtherVocabulary", [](ModelConfig& c) { c.vocab = 5; }, {"vocab_size", "5", "4 rows"}},
        ConfigLie{"Experts",
                  [](ModelConfig& c) {
                    c.experts = 4096;
                    c.experts_per_token = 2;
                  },
                  {"ffn_gate_inp.weight", "missing"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(GgufHostile, WeightOutsideTheFamily_IsRefusedByName) {
  ModelConfig with_bias = test::smallest_config();
  GgufHeader header = *gguf_header(with_bias, test::smallest_tokenizer(), DType::f32);
  const auto add = [&](const TensorSpec& spec) -> Status {
    header.add_tensor(spec.name, DType::f32, spec.dims);
    return {};
  };
  ASSERT_TRUE(visit_tensors(with_bias, ExpertForm::stacked, add).ok());
  const std::int64_t width = 8;
  header.add_tensor("blk.0.attn_output.bias", DType::f32, std::span(&width, 1));
  auto bytes = header.bytes();
  for (const auto size : header.tensor_bytes()) bytes.resize(bytes.size() + (size + 31) / 32 * 32);
  const auto opened = open_gguf(FileBytes::own(std::move(bytes)), "m");
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::unsupported);
  EXPECT_NE(opened.error().message.find("blk.0.attn_output.bias"), std::string::npos)
      << opened.error().message;
}

}  // namespace
}  // namespace infos
