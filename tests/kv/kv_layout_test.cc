// SPDX-License-Identifier: Apache-2.0
// Goal: a layout maps every element to bytes of its own inside the pool; two layouts are told apart
// by the field's name; what may be resharded is decided by the table in the header; hostile text
// becomes one error. Method: exhaustive small layouts, tables of differing fields.
#include "topology/model/kv_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace infos {
namespace {

using ::testing::HasSubstr;

constexpr KvDType kDTypes[] = {KvDType::f32, KvDType::f16, KvDType::bf16, KvDType::i8};

KvShape shape() {
  KvShape s;
  s.model = "m1";
  s.build = "cpu-1";
  s.layers = 3;
  s.heads = 4;
  s.head_dim = 8;
  s.block_tokens = 4;
  s.blocks = 2;
  return s;
}

/// Marks every byte that a rank's elements and scales occupy; false when one is used twice or lies
/// outside.
bool covers_once(const KvLayout& l, std::uint32_t rank) {
  std::vector<int> used(l.pool_bytes());
  const auto mark = [&](std::uint64_t begin, std::uint64_t bytes) {
    if (begin + bytes > used.size()) return false;
    for (std::uint64_t i = begin; i < begin + bytes; ++i)
      if (used[i]++ != 0) return false;
    return true;
  };
  const KvHeads heads = l.heads_of(rank);
  for (std::uint32_t b = 0; b < l.blocks; ++b)
    for (std::uint32_t y = 0; y < l.layers; ++y)
      for (std::uint32_t h = heads.begin; h < heads.begin + heads.count; ++h)
        for (std::uint32_t t = 0; t < l.block_tokens; ++t)
          for (const KvHalf half : {KvHalf::k, KvHalf::v}) {
            if (!mark(l.row_offset(rank, b, y, h, t, half), l.row_bytes())) return false;
            if (l.dtype == KvDType::i8 && !mark(l.scale_offset(rank, b, y, h, t, half), 4))
              return false;
          }
  return std::count(used.begin(), used.end(), 0) == 0;
}

TEST(KvLayout, EveryElementHasItsOwnBytes) {
  for (const KvDType dtype : kDTypes)
    for (const KvOrder order : {KvOrder::token_major, KvOrder::head_major})
      for (const KvPlacing placing : {KvPlacing::apart, KvPlacing::interleaved})
        for (const std::uint32_t ranks : {1U, 2U, 4U, 8U}) {
          KvShape s = shape();
          s.dtype = dtype;
          s.order = order;
          s.placing = placing;
          s.ranks = ranks;
          const KvLayout l = make_kv_layout(s);
          ASSERT_TRUE(l.validate().ok()) << l.validate().error().message;
          for (std::uint32_t rank = 0; rank < ranks; ++rank)
            ASSERT_TRUE(covers_once(l, rank)) << describe(l) << " rank " << rank;
        }
}

TEST(KvLayout, HeadsAreSharedOutOrRepeated) {
  KvShape s = shape();
  s.ranks = 2;
  EXPECT_EQ(make_kv_layout(s).heads_of(1).begin, 2U);
  EXPECT_EQ(make_kv_layout(s).heads_of(1).count, 2U);
  s.ranks = 8;
  EXPECT_EQ(make_kv_layout(s).heads_of(3).begin, 1U);
  EXPECT_EQ(make_kv_layout(s).heads_of(3).count, 1U);
}

TEST(KvLayout, CompareNamesTheFirstFieldThatDiffers) {
  struct Row {
    std::function<void(KvShape&)> change;
    const char* difference;
  };
  const Row rows[] = {
      {[](KvShape& s) { s.model = "m2"; }, "model 'm1' against 'm2'"},
      {[](KvShape& s) { s.layers = 4; }, "layers 3 against 4"},
      {[](KvShape& s) { s.heads = 2; }, "heads 4 against 2"},
      {[](KvShape& s) { s.head_dim = 16; }, "head_dim 8 against 16"},
      {[](KvShape& s) { s.build = "cpu-2"; }, "build 'cpu-1' against 'cpu-2'"},
      {[](KvShape& s) { s.dtype = KvDType::bf16; }, "dtype f16 against bf16"},
      {[](KvShape& s) { s.block_tokens = 32; }, "block_tokens 4 against 32"},
      {[](KvShape& s) { s.ranks = 4; }, "ranks 1 against 4"},
      {[](KvShape& s) { s.order = KvOrder::token_major; }, "order head-major against token-major"},
      {[](KvShape& s) { s.placing = KvPlacing::interleaved; },
       "placing K and V apart against K and V interleaved"},
  };
  const KvLayout base = make_kv_layout(shape());
  for (const Row& row : rows) {
    KvShape changed = shape();
    row.change(changed);
    EXPECT_EQ(compare(base, make_kv_layout(changed)), row.difference);
  }
  KvLayout padded = base;
  padded.data.block += 64;
  EXPECT_THAT(compare(base, padded).value_or(""), HasSubstr("data stride of block"));
  KvLayout larger = base;
  larger.blocks = 7;
  EXPECT_EQ(compare(base, larger), std::nullopt);
}

TEST(KvLayout, PolicyDecidesWhatMayBeConverted) {
  struct Row {
    KvDType from, to;
    const char* verdicts;  // exact, bounded, permissive: = exact, ~ lossy, x refused
  };
  const Row rows[] = {
      {KvDType::f32, KvDType::f32, "==="},   {KvDType::f32, KvDType::f16, "x~~"},
      {KvDType::f32, KvDType::bf16, "x~~"},  {KvDType::f32, KvDType::i8, "xx~"},
      {KvDType::f16, KvDType::f32, "==="},   {KvDType::f16, KvDType::f16, "==="},
      {KvDType::f16, KvDType::bf16, "x~~"},  {KvDType::f16, KvDType::i8, "xx~"},
      {KvDType::bf16, KvDType::f32, "==="},  {KvDType::bf16, KvDType::f16, "x~~"},
      {KvDType::bf16, KvDType::bf16, "==="}, {KvDType::bf16, KvDType::i8, "xx~"},
      {KvDType::i8, KvDType::f32, "x~~"},    {KvDType::i8, KvDType::f16, "x~~"},
      {KvDType::i8, KvDType::bf16, "x~~"},   {KvDType::i8, KvDType::i8, "==="},
  };
  for (const Row& row : rows) {
    KvShape from = shape(), to = shape();
    from.dtype = row.from;
    to.dtype = row.to;
    to.block_tokens = 32;
    to.ranks = 2;
    std::string verdicts;
    for (const KvPolicy policy : {KvPolicy::exact, KvPolicy::bounded, KvPolicy::permissive}) {
      const auto r = can_reshard(make_kv_layout(from), make_kv_layout(to), policy);
      verdicts += !r.ok() ? 'x' : *r == KvFidelity::exact ? '=' : '~';
      if (r.ok()) continue;
      EXPECT_EQ(r.error().code, ErrorCode::unsupported);
      EXPECT_THAT(r.error().message, HasSubstr(describe(make_kv_layout(from))));
      EXPECT_THAT(r.error().message, HasSubstr(describe(make_kv_layout(to))));
    }
    EXPECT_EQ(verdicts, row.verdicts) << to_string(row.from) << " to " << to_string(row.to);
  }
}

TEST(KvLayout, AnotherModelIsNeverUsedAndAnotherBuildOnlyWhereNumericsAllow) {
  KvShape other = shape();
  other.model = "m2";
  const auto refused =
      can_reshard(make_kv_layout(shape()), make_kv_layout(other), KvPolicy::permissive);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(refused.error().message, HasSubstr("model 'm1' against 'm2'"));
  other = shape();
  other.build = "cpu-2";
  const auto exact = can_reshard(make_kv_layout(shape()), make_kv_layout(other), KvPolicy::exact);
  ASSERT_FALSE(exact.ok());
  EXPECT_THAT(exact.error().message, HasSubstr("build 'cpu-1' against 'cpu-2'"));
  EXPECT_TRUE(can_reshard(make_kv_layout(shape()), make_kv_layout(other), KvPolicy::bounded).ok());
}

TEST(KvLayout, TextGivesTheSameLayoutBack) {
  for (const KvDType dtype : kDTypes) {
    KvShape s = shape();
    s.dtype = dtype;
    const KvLayout l = make_kv_layout(s);
    const auto back = decode_kv_layout(encode(l));
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(*back, l);
    const auto later = decode_kv_layout(encode(l) + ";colour=blue");
    ASSERT_TRUE(later.ok());
    EXPECT_EQ(*later, l);
  }
}

TEST(KvLayout, HostileTextIsOneError) {
  const std::string good = encode(make_kv_layout(shape()));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  struct Row {
    std::string text;
    const char* says;
  };
  const Row rows[] = {
      {"", "want 'kv1;'"},
      {"kv2;layers=1", "want 'kv1;'"},
      {"kv1;layers", "want key=value"},
      {std::string(4096, 'a'), "at most 2048"},
      {with("layers=3", "layers=0"), "layers is 0, allowed 1 to 4096"},
      {with("layers=3", "layers=-1"), "want a whole number"},
      {with("layers=3", "layers=99999999999"), "want a whole number"},
      {with("dtype=f16", "dtype=f8"), "want f32, f16, bf16 or i8"},
      {with("ranks=1", "ranks=3"), "one divides the other"},
      {with("blocks=2", "blocks=2000000000"), "blocks is 2000000000"},
      {good + ";data=1,2", "want block,layer,head,token,v"},
      {good + ";data=99999999999999999,0,0,0,0", "beyond 64 TiB"},
      {good + ";data=18446744073709551615,18446744073709551615,0,0,0", "beyond 64 TiB"},
      {good + ";scale_begin=5", "allowed with i8 alone"},
  };
  for (const Row& row : rows) {
    const auto l = decode_kv_layout(row.text);
    ASSERT_FALSE(l.ok()) << row.text;
    EXPECT_THAT(l.error().message, HasSubstr(row.says));
  }
}

}  // namespace
}  // namespace infos
