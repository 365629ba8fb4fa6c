// SPDX-License-Identifier: Apache-2.0
// Goal: graphs, artifacts and batches from outside are refused with a sentence before any memory is
// touched, and an artifact comes back as it was. Method: one sound graph and batch, broken in one
// place at a time.
#include "devices/cpu/plan.h"

#include <gtest/gtest.h>

#include <cstring>

#include "devices/cpu/batch_check.h"
#include "devices/engine/graph/phase_graph.h"
#include "topology/base/rng.h"

namespace infos::cpu {
namespace {

constexpr infos_bucket kBucket = {sizeof(infos_bucket), 32, 4, 64};

PhaseGraph sound_graph() {
  ModelConfig c;
  c.name = "tiny";
  c.family = ModelFamily::qwen3;
  c.layers = 2;
  c.hidden = 32;
  c.ffn_hidden = 64;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 8;
  c.vocab = 50;
  c.max_context = 64;
  c.qk_norm = true;
  c.experts = 4;
  c.experts_per_token = 2;
  auto graph = build_phase_graph(c);
  EXPECT_TRUE(graph.ok());
  return std::move(*graph);
}

/// The message of the refusal after `change` has been made to copies of the tensors and ops.
template <typename Change>
std::string refusal(Change change) {
  const PhaseGraph graph = sound_graph();
  std::vector<infos_tensor> tensors = graph.tensors();
  std::vector<infos_op> ops = graph.ops();
  infos_graph view = graph.view();
  infos_bucket bucket = kBucket;
  change(tensors, ops, view, bucket);
  view.tensors = tensors.data();
  view.ops = ops.data();
  const auto plan = make_plan(view, bucket);
  return plan.ok() ? "" : plan.error().message;
}

std::size_t find(const std::vector<infos_op>& ops, std::uint32_t kind) {
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind == kind) return i;
  }
  return 0;
}

#define CHANGE [](auto& tensors, auto& ops, auto& view, auto& bucket)
#define UNUSED (void)tensors, (void)ops, (void)view, (void)bucket

TEST(Plan, SoundGraph_IsTaken) {
  EXPECT_EQ(refusal(CHANGE { UNUSED; }), "");
}

TEST(Plan, BrokenGraphs_AreRefusedWithThePlaceAndTheValue) {
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  std::string text = refusal(CHANGE {
    UNUSED;
    bucket.max_tokens = 0;
  });
  EXPECT_TRUE(has(text, "max_tokens 0")) << text;
  text = refusal(CHANGE {
    UNUSED;
    view.layer_end = 999;
  });
  EXPECT_TRUE(has(text, "999")) << text;
  text = refusal(CHANGE {
    UNUSED;
    tensors[1].rank = 9;
  });
  EXPECT_TRUE(has(text, "rank 9")) << text;
  text = refusal(CHANGE {
    UNUSED;
    tensors[0].dims[0] = -7;
  });
  EXPECT_TRUE(has(text, "dim 0 is -7")) << text;
  text = refusal(CHANGE {
    UNUSED;
    ops[0].kind = 77;
  });
  EXPECT_TRUE(has(text, "op 0")) << text;
  text = refusal(CHANGE {
    UNUSED;
    ops[1].inputs[0] = 5000;
  });
  EXPECT_TRUE(has(text, "tensor 5000")) << text;
  text = refusal(CHANGE {
    UNUSED;
    ops[2].output = 5000;
  });
  EXPECT_TRUE(has(text, "tensor 5000")) << text;
  text = refusal(CHANGE {
    UNUSED;
    ops[find(ops, INFOS_OP_LINEAR)].accumulator = INFOS_F64;
  });
  EXPECT_TRUE(has(text, "accumulator")) << text;
  text = refusal(CHANGE {
    UNUSED;
    ops[find(ops, INFOS_OP_LINEAR)].output = ops[find(ops, INFOS_OP_LINEAR)].inputs[0];
  });
  EXPECT_FALSE(text.empty());
  text = refusal(CHANGE {
    UNUSED;
    ops[find(ops, INFOS_OP_ROPE)].rotary_dim = 7;
  });
  EXPECT_TRUE(has(text, "rotary_dim 7")) << text;
  text = refusal(CHANGE {
    UNUSED;
    ops[find(ops, INFOS_OP_ATTENTION)].kv_heads = 3;
  });
  EXPECT_TRUE(has(text, "KV heads")) << text;
  text = refusal(CHANGE {
    UNUSED;
    ops[find(ops, INFOS_OP_ATTENTION)].head_dim = 0;
  });
  EXPECT_TRUE(has(text, "ATTENTION")) << text;
  text = refusal(CHANGE {
    UNUSED;
    ops[find(ops, INFOS_OP_ADD)].kind = INFOS_OP_ALL_REDUCE;
  });
  EXPECT_TRUE(has(text, "ALL_REDUCE): 2 inputs")) << text;
  text = refusal(CHANGE {  // others read the input while the output is written
    UNUSED;
    ops[find(ops, INFOS_OP_ADD)].n_inputs = 1;
    ops[find(ops, INFOS_OP_ADD)].kind = INFOS_OP_ALL_REDUCE;
  });
  EXPECT_TRUE(has(text, "the output is the input")) << text;
  text = refusal(CHANGE {
    UNUSED;
    ops[find(ops, INFOS_OP_MOE_FFN)].top_k = 5;
  });
  EXPECT_TRUE(has(text, "top_k 5")) << text;
  text = refusal(CHANGE {
    UNUSED;
    ops[find(ops, INFOS_OP_EMBED)].n_inputs = 2;
  });
  EXPECT_TRUE(has(text, "2 inputs")) << text;
}

TEST(Plan, Serialised_ComesBackEqual) {
  const PhaseGraph graph = sound_graph();
  const auto plan = make_plan(graph.view(), kBucket);
  ASSERT_TRUE(plan.ok());
  const auto bytes = serialize(*plan, "cpu-test");
  const auto stored = deserialize(bytes);
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  EXPECT_EQ(stored->compat, "cpu-test");
  EXPECT_EQ(serialize(stored->plan, "cpu-test"), bytes);
  EXPECT_EQ(stored->plan.vocab, 50U);
  EXPECT_EQ(stored->plan.kv_heads, 2U);
}

TEST(Plan, DamagedArtifacts_AreRefused) {
  const PhaseGraph graph = sound_graph();
  const auto bytes = serialize(*make_plan(graph.view(), kBucket), "cpu-test");
  for (std::size_t n = 0; n < bytes.size(); n += 1 + n / 16) {
    EXPECT_FALSE(deserialize(std::span(bytes).first(n)).ok()) << n;
  }
  Rng rng(3);
  for (int i = 0; i < 300; ++i) {
    auto damaged = bytes;
    damaged[rng.below(damaged.size())] ^= static_cast<std::uint8_t>(1 + rng.below(255));
    EXPECT_FALSE(deserialize(damaged).ok());
  }
}

// Damage that keeps the checksum right must still meet the graph checks: no crash, and either
// refused or sound.
TEST(Plan, DamagedArtifactsWithAGoodChecksum_NeverPassUnchecked) {
  const PhaseGraph graph = sound_graph();
  const auto bytes = serialize(*make_plan(graph.view(), kBucket), "cpu-test");
  Rng rng(4);
  for (int i = 0; i < 2000; ++i) {
    auto damaged = bytes;
    damaged[8 + rng.below(damaged.size() - 16)] = static_cast<std::uint8_t>(rng.below(256));
    std::uint64_t h = 14695981039346656037ULL;
    for (std::size_t j = 0; j < damaged.size() - 8; ++j) h = (h ^ damaged[j]) * 1099511628211ULL;
    std::memcpy(damaged.data() + damaged.size() - 8, &h, 8);
    const auto stored = deserialize(damaged);
    if (stored.ok()) {
      EXPECT_EQ(serialize(stored->plan, stored->compat).size(), bytes.size());
    }
  }
}

/// A sound batch of two sequences and its arrays.
struct BatchArrays {
  std::vector<std::int32_t> tokens{1, 2, 3}, positions{4, 5, 0};
  std::vector<std::uint32_t> row_begin{0, 2, 3}, table{0, 1, 2}, table_begin{0, 2, 3},
      logit_rows{1, 2};
  float logits[2] = {};
  infos_batch view() {
    infos_batch b{};
    b.struct_size = sizeof b;
    b.n_tokens = 3;
    b.tokens = tokens.data();
    b.positions = positions.data();
    b.n_sequences = 2;
    b.row_begin = row_begin.data();
    b.block_table = table.data();
    b.table_begin = table_begin.data();
    b.n_logit_rows = 2;
    b.logit_rows = logit_rows.data();
    b.logits = logits;
    return b;
  }
};
constexpr BatchLimits kLimits = {8, 4, 16, 10, 4, 3};

TEST(BatchCheck, SoundBatch_Passes) {
  BatchArrays a;
  EXPECT_TRUE(check_batch(a.view(), kLimits).ok());
}

TEST(BatchCheck, EachBrokenField_IsNamed) {
  const auto expect = [](void (*change)(BatchArrays&), const char* part) {
    BatchArrays a;
    change(a);
    const Status s = check_batch(a.view(), kLimits);
    ASSERT_FALSE(s.ok()) << part;
    EXPECT_NE(s.error().message.find(part), std::string::npos) << s.error().message;
  };
  expect([](BatchArrays& a) { a.tokens[1] = 10; }, "row 1: token 10");
  expect([](BatchArrays& a) { a.tokens[2] = -1; }, "row 2: token -1");
  expect([](BatchArrays& a) { a.positions[1] = 6; }, "row 1: position 6, expected 5");
  expect([](BatchArrays& a) { a.positions[2] = -3; }, "position -3");
  expect([](BatchArrays& a) { a.positions = {15, 16, 0}; }, "position 16");
  expect(
      [](BatchArrays& a) {
        a.positions = {7, 8, 0};
      },
      "2 blocks in its table, its last row needs 3");
  expect([](BatchArrays& a) { a.table[1] = 3; }, "block 3");
  expect([](BatchArrays& a) { a.row_begin = {0, 2, 4}; }, "row_begin");
  expect([](BatchArrays& a) { a.row_begin = {0, 4000000000U, 3}; }, "rows [0, 4000000000)");
  expect([](BatchArrays& a) { a.table_begin = {2, 1, 3}; }, "block table [2, 1)");
  expect([](BatchArrays& a) { a.logit_rows[0] = 3; }, "logit row 0 is token row 3");
}

TEST(BatchCheck, CountsBeyondTheBucketAndNulls_AreRefused) {
  for (int what = 0; what < 8; ++what) {
    BatchArrays a;
    infos_batch b = a.view();
    switch (what) {
      case 0:
        b.n_tokens = 0;
        break;
      case 1:
        b.n_tokens = 9;
        break;
      case 2:
        b.n_sequences = 5;
        break;
      case 3:
        b.n_logit_rows = 4;
        break;
      case 4:
        b.tokens = nullptr;
        break;
      case 5:
        b.row_begin = nullptr;
        break;
      case 6:
        b.block_table = nullptr;
        break;
      case 7:
        b.logits = nullptr;
        break;
    }
    EXPECT_FALSE(check_batch(b, kLimits).ok()) << what;
  }
}

}  // namespace
}  // namespace infos::cpu
