// SPDX-License-Identifier: Apache-2.0
// Goal: graphs ask for the right weights in the right shapes, and an engine says clearly what a
// checkpoint or its options lack. Method: tiny models of every family with one thing spoiled at a
// time.
#include "devices/engine/graph/phase_graph.h"

#include <cmath>
#include <cstring>
#include <numbers>
#include <set>

#include "devices/engine/engine/kv_budget.h"
#include "devices/engine/graph/rope.h"
#include "devices/engine/reference/graph_check.h"
#include "tests/engine/engine_driver.h"
#include "tests/engine/memory_checkpoint.h"

namespace infos::test {
namespace {

TEST(PhaseGraph, EveryFamily_KeepsTheAbiContractAndNamesEveryTensorOfItsModel) {
  for (const char* name : kTinyModels) {
    SCOPED_TRACE(name);
    const auto checkpoint = tiny_model(name, DType::f32, 1);
    const auto graph = build_phase_graph(checkpoint->config());
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    const infos_graph view = graph->view();
    reference::GraphCopy copy;
    EXPECT_EQ(reference::copy_graph(&view, &copy), "");
    std::set<std::string> wanted;
    for (const infos_tensor& tensor : graph->tensors())
      for (std::uint32_t layer = 0; tensor.role == INFOS_ROLE_WEIGHT && layer < 2; ++layer)
        wanted.insert(weight_name(tensor, layer));
    for (const TensorView& view_of : checkpoint->tensors()) {
      std::string stacked =
          view_of.name;  // blk.0.ffn_up.3.weight is a part of blk.0.ffn_up_exps.weight
      const auto last = stacked.rfind('.', stacked.rfind('.') - 1);
      if (std::isdigit(static_cast<unsigned char>(stacked[last + 1])) != 0 &&
          stacked.find("ffn_") != std::string::npos)
        stacked = stacked.substr(0, last) + "_exps.weight";
      EXPECT_TRUE(wanted.contains(stacked)) << stacked;
    }
  }
}

TEST(PhaseGraph, UnsoundConfig_IsRefusedByName) {
  auto config = tiny_model("llama3", DType::f32, 1)->config();
  config.kv_heads = 3;
  EXPECT_NE(build_phase_graph(config).error().message.find("kv heads"), std::string::npos);
  config = tiny_model("llama3", DType::f32, 1)->config();
  config.rope_scaling.kind = RopeScaling::Kind::table;
  config.rope_scaling.divisors = {1, 2};
  EXPECT_NE(build_phase_graph(config).error().message.find("rope"), std::string::npos);
}

TEST(Rope, Scalings_FollowTheirFormulas) {
  ModelConfig c;
  c.head_dim = 8;
  c.rope_theta = 10000;
  const auto plain = rope_frequencies(c);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_FLOAT_EQ(plain[i], std::pow(10.0F, -static_cast<float>(i)));
  c.rope_scaling.kind = RopeScaling::Kind::linear;
  c.rope_scaling.factor = 4;
  EXPECT_FLOAT_EQ(rope_frequencies(c)[2], plain[2] / 4);
  c.rope_scaling = {RopeScaling::Kind::table, 1, 1, 4, 8192, {1, 2, 3, 4}};
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_FLOAT_EQ(rope_frequencies(c)[i], plain[i] / static_cast<float>(i + 1));
  // Llama 3.1: wavelengths 2 pi, 20 pi, 200 pi, 2000 pi against an original context of 200: below
  // 50 kept, above 200 divided, between mixed.
  c.rope_scaling = {RopeScaling::Kind::llama3, 8, 1, 4, 200, {}};
  const auto llama3 = rope_frequencies(c);
  EXPECT_FLOAT_EQ(llama3[0], 1);
  EXPECT_FLOAT_EQ(llama3[2], 0.01F / 8);
  EXPECT_FLOAT_EQ(llama3[3], 0.001F / 8);
  const double smooth = (200 * 0.1 / (2 * std::numbers::pi) - 1) / 3;
  EXPECT_FLOAT_EQ(llama3[1], static_cast<float>((1 - smooth) * 0.1 / 8 + smooth * 0.1));
}

Error open_error(const Checkpoint& checkpoint,
                 const EngineOptions& options = small_options("reference")) {
  auto engine = Engine::open(checkpoint, options);
  return engine.ok() ? Error{ErrorCode::io, "opened"} : engine.error();
}

void expect_error(const Error& error, ErrorCode code, const std::string& part) {
  EXPECT_EQ(error.code, code) << error.message;
  EXPECT_NE(error.message.find(part), std::string::npos) << error.message;
}

TEST(EngineOpen, SpoiledTensor_IsNamedWithWhatItIsAndWhatIsWanted) {
  auto checkpoint = tiny_model("llama3", DType::f32, 1);
  checkpoint->view("blk.1.attn_k.weight").dims = {64, 32};
  expect_error(open_error(*checkpoint), ErrorCode::invalid_argument,
               "blk.1.attn_k.weight is [64, 32]: the model's config wants [32, 64]");
  checkpoint = tiny_model("llama3", DType::f32, 1);
  checkpoint->remove("blk.1.ffn_down.weight");
  expect_error(open_error(*checkpoint), ErrorCode::not_found,
               "blk.1.ffn_down.weight is missing: a llama model wants it, [64, 96]");
  checkpoint = tiny_model("llama3", DType::f32, 1);
  TensorView& view = checkpoint->view("output.weight");
  view.data = view.data.first(view.data.size() - 4);
  expect_error(open_error(*checkpoint), ErrorCode::corrupt,
               "output.weight has 21244 bytes: its shape and dtype want 21248");
  checkpoint = tiny_model("llama3", DType::f32, 1);
  checkpoint->view("blk.0.attn_q.weight").dtype = DType::i32;
  expect_error(open_error(*checkpoint), ErrorCode::unsupported,
               "blk.0.attn_q.weight has dtype i32: the device takes f32, f16");
  checkpoint = tiny_model("llama3", DType::f32, 1);
  checkpoint->view("blk.0.ffn_down.weight").dtype = DType::q4_k;  // rows of 96
  expect_error(open_error(*checkpoint), ErrorCode::invalid_argument,
               "rows of 96: q4_k wants a multiple of 256");
}

TEST(EngineOpen, SpoiledExpert_IsNamed) {
  auto checkpoint = tiny_model("qwen3-moe", DType::f32, 1);
  checkpoint->remove("blk.1.ffn_up.5.weight");
  expect_error(open_error(*checkpoint), ErrorCode::not_found, "blk.1.ffn_up.5.weight");
  checkpoint = tiny_model("qwen3-moe", DType::f32, 1);
  TensorView& view = checkpoint->view("blk.0.ffn_gate.3.weight");
  view.dtype = DType::f16;
  view.data = view.data.first(view.data.size() / 2);
  expect_error(open_error(*checkpoint), ErrorCode::unsupported,
               "blk.0.ffn_gate.3.weight has dtype f16: the experts before it have f32");
  checkpoint = tiny_model("mixtral", DType::f32, 1);
  checkpoint->view("blk.0.ffn_gate_exps.weight").dims = {4, 64, 96};
  expect_error(open_error(*checkpoint), ErrorCode::invalid_argument,
               "[4, 64, 96]: the model's config wants [4, 96, 64]");
}

TEST(EngineOpen, OptionsThatCannotBe_AreRefusedWithTheBounds) {
  const auto checkpoint = tiny_model("llama3", DType::f32, 1);
  EngineOptions options = small_options("reference");
  options.max_context = 1U << 25;
  expect_error(open_error(*checkpoint, options), ErrorCode::invalid_argument,
               "max_context is 33554432: want at most 16777216");
  options = small_options("reference");
  options.block_tokens = 0;
  expect_error(open_error(*checkpoint, options), ErrorCode::invalid_argument, "want 1 to");
  options = small_options("reference");
  options.kv_memory = {100};
  expect_error(open_error(*checkpoint, options), ErrorCode::invalid_argument,
               "4 tokens needs 2KiB: 100B is there");
  options = small_options("reference");
  options.kv_dtype = DType::q8_0;
  expect_error(open_error(*checkpoint, options), ErrorCode::invalid_argument, "kv_dtype");
  options = small_options("no-such-backend");
  expect_error(open_error(*checkpoint, options), ErrorCode::not_found,
               "libinfos_no-such-backend.so");
}

TEST(EngineStep, BadSequences_AreRefusedAndTheNextStepWorks) {
  const auto checkpoint = tiny_model("llama3", DType::f32, 1);
  for (const std::string& backend : backends()) {
    SCOPED_TRACE(backend);
    auto engine = Engine::open(*checkpoint, small_options(backend));
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    const std::vector<TokenId> tokens = {1, 2, 3}, foreign = {1, 83}, none;
    const std::vector<BlockId> blocks = {{0}, {1}}, beyond = {{(*engine)->kv_blocks()}}, no_blocks;
    const auto code = [&](const EngineSequence& s) {
      const auto result = (*engine)->step({&s, 1});
      return result.ok() ? ErrorCode::io : result.error().code;
    };
    const RequestId open{1}, closed{2};
    (*engine)->open_sequence(open, tokens, 3, {});
    EXPECT_EQ(code({closed, tokens, 0, blocks, true, 0}), ErrorCode::invalid_argument);
    EXPECT_EQ(code({open, none, 0, blocks, true, 0}), ErrorCode::invalid_argument);
    EXPECT_EQ(code({open, foreign, 0, blocks, true, 0}), ErrorCode::invalid_argument);
    EXPECT_EQ(code({open, tokens, 0, beyond, true, 0}), ErrorCode::invalid_argument);
    EXPECT_EQ(code({open, tokens, 0, no_blocks, true, 0}), ErrorCode::invalid_argument);
    EXPECT_EQ(code({open, tokens, 254, blocks, true, 0}), ErrorCode::invalid_argument);
    EXPECT_EQ((*engine)->step({}).ok(), false);
    const EngineSequence good{open, tokens, 0, blocks, true, 0};
    const auto result = (*engine)->step({&good, 1});
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result->size(), 1U);
    (*engine)->close_sequence(open);
    (*engine)->close_sequence(open);  // twice is harmless
    EXPECT_EQ(code(good), ErrorCode::invalid_argument);
  }
}

TEST(EngineStep, WeightsThatGiveNotANumber_AreAnErrorThatNamesTheSequence) {
  auto checkpoint = tiny_model("llama3", DType::f32, 1);
  std::vector<float> bad(checkpoint->config().hidden, NAN);
  checkpoint->remove("output_norm.weight");
  checkpoint->add_f32("output_norm.weight", {checkpoint->config().hidden}, bad.data());
  for (const std::string& backend : backends()) {
    SCOPED_TRACE(backend);
    auto engine = Engine::open(*checkpoint, small_options(backend));
    ASSERT_TRUE(engine.ok());
    const std::vector<TokenId> tokens = {1, 2};
    const std::vector<BlockId> blocks = {{0}};
    (*engine)->open_sequence({7}, tokens, 2, {});
    const EngineSequence s{{7}, tokens, 0, blocks, true, 0};
    const auto result = (*engine)->step({&s, 1});
    ASSERT_FALSE(result.ok());
    expect_error(result.error(), ErrorCode::corrupt, "sequence 7: the logit of token 0 is nan");
  }
}

TEST(KvBudget, Blocks_AreWhatFitsAndAtMostWhatTheSequencesUse) {
  ModelConfig c;
  c.layers = 2;
  c.kv_heads = 4;
  c.head_dim = 8;
  EXPECT_EQ(kv_block_bytes(c, 16, 2).value, 2U * 2 * 4 * 8 * 16 * 2);  // 4 KiB
  KvBudgetRequest r;
  r.free = {1 << 20};
  r.max_context = 100;
  r.max_sequences = 3;
  EXPECT_EQ(kv_budget(c, r)->blocks, 21U);  // 7 for each sequence; a quarter of 1 MiB would be 64
  r.max_sequences = 1000;
  EXPECT_EQ(kv_budget(c, r)->blocks, 64U);
  r.memory = {10 * 4096 + 5};
  EXPECT_EQ(kv_budget(c, r)->blocks, 10U);
  EXPECT_EQ(kv_budget(c, r)->max_context, 100U);
  r.max_context = 4000;
  EXPECT_EQ(kv_budget(c, r)->max_context, 160U);
}

// A worker that failed for good is not started again; one that lacked free memory is.
TEST(KvBudget, NoRoomForOneBlock_IsPermanentOnlyWhereTheSpecGaveTheMemory) {
  ModelConfig c;
  c.layers = 2;
  c.kv_heads = 4;
  c.head_dim = 8;
  KvBudgetRequest r;
  r.max_context = 100;
  r.free = {1 << 20};
  r.memory = {4095};
  EXPECT_EQ(kv_budget(c, r).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(kv_budget(c, r).error().message,
            "one KV block of 16 tokens needs 4KiB: 4095B is there for KV caches");
  r.memory = {0};
  r.free = {4096};
  EXPECT_EQ(kv_budget(c, r).error().code, ErrorCode::resource_exhausted);
}

TEST(KvBudget, FreeMemory_IsSomethingOnAnyMachine) { EXPECT_GT(free_memory().value, 0U); }

}  // namespace
}  // namespace infos::test
