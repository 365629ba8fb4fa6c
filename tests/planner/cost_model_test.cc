// SPDX-License-Identifier: Apache-2.0
// Goal: curves and kernel tables give back what was measured and bend as they say between; shapes
// have the published numbers of weights; a step's time equals the roofline by hand. Method: small
// tables with known answers, published parameter counts as the oracle.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "planner/cost/csv.h"
#include "planner/cost/curve.h"
#include "planner/cost/kernel_tables.h"
#include "planner/cost/model_shape.h"
#include "planner/cost/step_model.h"

namespace infos {
namespace {

TEST(LogCurve, Points_AreGivenBackAndBetweenIsAPowerLaw) {
  LogCurve curve;
  curve.add(100, 8);
  curve.add(1, 2);
  curve.add(1, 3);  // disturbed: the smaller stands
  EXPECT_DOUBLE_EQ(curve.at(1), 2);
  EXPECT_DOUBLE_EQ(curve.at(100), 8);
  EXPECT_NEAR(curve.at(10), 4, 1e-12);
  EXPECT_DOUBLE_EQ(curve.at(0.1), 2);    // a floor
  EXPECT_DOUBLE_EQ(curve.at(1000), 80);  // in proportion
  EXPECT_EQ(curve.points(), 2U);
}

TEST(Csv, WrongRows_NameFileLineColumnAndText) {
  const auto error_of = [](const char* text) {
    KernelTables tables;
    const Status status = tables.add_gemm("t.csv", text);
    return status.ok() ? std::string("none") : status.error().message;
  };
  const std::string head = "gemm_dtype,m,n,k,latency\n";
  EXPECT_EQ(error_of(""), "t.csv:0: an empty table, want a header line");
  EXPECT_EQ(error_of("m,n\n"), "t.csv:1: no column 'gemm_dtype'");
  EXPECT_EQ(error_of((head + "fp8,1,2,3\n").c_str()), "t.csv:2: 4 fields, the header has 5");
  EXPECT_EQ(error_of((head + "\r\nfp8,1,2,3,x1\n").c_str()),
            "t.csv:3: latency 'x1': want a number");
  EXPECT_EQ(error_of((head + "fp8,0,2,3,1\n").c_str()), "t.csv:2: m '0': want a number above 0");
  EXPECT_EQ(error_of((head + "fp8,1,2,3,nan\n").c_str()), "t.csv:2: latency 'nan': want a number");
  EXPECT_EQ(error_of((head + "fp8,1,2,3,4\n").c_str()), "none");
}

TEST(KernelTables, Gemm_ExactOnTheGridGeometricBetweenProportionalBeyond) {
  KernelTables tables;
  ASSERT_TRUE(tables
                  .add_gemm("t",
                            "gemm_dtype,m,n,k,latency\nfp8,1,64,64,1\nfp8,1,256,64,4\n"
                            "fp8,1,64,256,2\nfp8,1,256,256,8\nfp8,16,64,64,2\n")
                  .ok());
  EXPECT_FALSE(tables.gemm(MathType::bf16, {1, 64, 64}));
  EXPECT_NEAR(*tables.gemm(MathType::f8, {1, 256, 256}), 8e-3, 1e-12);
  EXPECT_NEAR(*tables.gemm(MathType::f8, {1, 128, 64}), 2e-3, 1e-12);
  EXPECT_NEAR(*tables.gemm(MathType::f8, {4, 64, 64}), std::sqrt(2) * 1e-3, 1e-12);
  EXPECT_NEAR(*tables.gemm(MathType::f8, {1, 512, 256}), 16e-3, 1e-12);
}

TEST(KernelTables, AttentionMoeAndCollectives_AreFoundByTheirKeys) {
  KernelTables tables;
  ASSERT_TRUE(
      tables
          .add_generation_attention("t",
                                    "batch_size,isl,num_heads,num_key_value_heads,step,latency\n"
                                    "1,1,8,1,99,1\n4,1,8,1,99,4\n")
          .ok());
  EXPECT_NEAR(*tables.generation_attention({2, 100, 8, 1}), 2e-3, 1e-12);
  EXPECT_NEAR(*tables.generation_attention({8, 100, 8, 1}), 8e-3, 1e-12);
  EXPECT_NEAR(*tables.generation_attention({1, 200, 16, 1}), 4e-3, 1e-12);  // twice the heads
  EXPECT_FALSE(tables.context_attention({1, 100, 8, 1}));
  ASSERT_TRUE(tables
                  .add_moe("t",
                           "moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,"
                           "moe_tp_size,moe_ep_size,distribution,latency\n"
                           "fp8,8,64,32,2,4,1,1,balanced,1\nfp8,8,64,32,2,4,1,1,power_law_1.01,3\n")
                  .ok());
  EXPECT_NEAR(*tables.moe(MathType::f8, {8, 64, 32, 2, 4, 1, 1}), 3e-3, 1e-12);
  EXPECT_FALSE(tables.moe(MathType::f8, {8, 64, 32, 2, 4, 2, 1}));
  ASSERT_TRUE(tables
                  .add_collectives("t",
                                   "op_name,num_gpus,message_size,latency\n"
                                   "all_reduce,8,1024,0.01\nalltoall,8,1024,0.02\n")
                  .ok());
  EXPECT_NEAR(*tables.collective({Collective::all_reduce, 8, 512}), 1e-5, 1e-12);
  EXPECT_FALSE(tables.collective({Collective::all_reduce, 4, 512}));
}

double billions(const ModelShape& shape) {
  double weights = 2.0 * shape.hidden * shape.vocab;
  for (const LayerGroup& group : shape.groups)
    weights += group.layers * (dense_weights(group, shape.hidden) +
                               group.ffn.experts * expert_weights(group, shape.hidden));
  return weights / 1e9;
}

// Source: the parameter counts on each model's card.
TEST(ModelShape, KnownShapes_HaveThePublishedNumberOfWeights) {
  const std::pair<const char*, double> published[] = {
      {"meta-llama/Llama-3.1-8B-Instruct", 8.03},
      {"meta-llama/Llama-3.1-70B", 70.6},
      {"Qwen/Qwen3-32B", 32.8},
      {"Qwen/Qwen3-235B-A22B-FP8", 235},
      {"deepseek-ai/DeepSeek-R1", 671},
      {"moonshotai/Kimi-K2.5", 1026},
      {"openai/gpt-oss-120b", 117},
      {"MiniMaxAI/MiniMax-M2.5", 229},
      {"Qwen/Qwen3.5-397B-A17B", 397},
      {"zhipuai/GLM-5", 744},
      {"Qwen/Qwen3-30B-A3B", 30.5},
  };
  for (const auto& [name, want] : published) {
    const auto shape = find_shape(name);
    ASSERT_TRUE(shape.ok()) << name;
    EXPECT_NEAR(billions(*shape) / want, 1, 0.025) << name << " " << billions(*shape);
  }
  EXPECT_FALSE(find_shape("nobody/Nothing-1B").ok());
}

DeviceSpeed plain_device() {
  DeviceSpeed device;
  device.name = "plain";
  device.flops_bf16 = 1e12, device.memory_bytes_per_second = 1e11, device.memory_bytes = 1e10;
  device.link_bytes_per_second = 1e10;
  return device;
}

ModelShape plain_shape() {
  AttentionShape attention;
  attention.heads = 8, attention.kv_heads = 2, attention.head_dim = 64;
  FfnShape ffn;
  ffn.inter = 2048;
  return {"plain", 512, 1000, {{4, attention, ffn}}};
}

TEST(StepModel, MemoryBoundStep_IsTheWeightsAndKvOverTheBandwidth) {
  RooflineConstants ideal{1, 1, 0, 0, 1, 1};
  const StepModel model(plain_shape(), plain_device(), {}, {}, ideal);
  StepWork work;
  work.decoding = 1, work.context = 1000;
  const StepTime time = model.time(work);
  const double layer = 512 * (2 * 512 + 2 * 128) + 3 * 512 * 2048;
  const double kv = 1000 * 2 * 2 * 64 * 2;
  EXPECT_NEAR(time.dense, 4 * layer * 2 / 1e11, 0.02 * time.dense);  // and the activations
  EXPECT_NEAR(time.attention, 4 * kv / 1e11, 1e-12);
  EXPECT_NEAR(time.head, 512 * 1000 * 2 / 1e11, 0.02 * time.head);
  EXPECT_NEAR(model.weight_bytes(), (4 * layer + 2 * 512 * 1000) * 2, 1);
  EXPECT_NEAR(model.kv_bytes_per_token(), 4 * 2 * 2 * 64 * 2, 1e-9);
  EXPECT_NEAR(model.kv_tokens(0.5, 1e9),
              (5e9 - 1e9 - model.weight_bytes()) / model.kv_bytes_per_token(), 1);
}

TEST(StepModel, MathBoundPrompt_IsTheProductsOverThePeak) {
  RooflineConstants ideal{1, 1, 0, 0, 1, 1};
  const StepModel model(plain_shape(), plain_device(), {}, {}, ideal);
  StepWork work;
  work.prompts.push_back({4096, 0});
  const double layer = 512 * (2 * 512 + 2 * 128) + 3 * 512 * 2048;
  EXPECT_NEAR(model.time(work).dense, 4 * 2 * layer * 4096 / 1e12, 1e-6);
}

TEST(StepModel, Parallelism_DividesTheWorkAndAddsCollectives) {
  const StepModel one(plain_shape(), plain_device(), {}, {});
  Parallelism two;
  two.tp = 2, two.moe_tp = 2;
  const StepModel both(plain_shape(), plain_device(), two, {});
  StepWork work;
  work.prompts.push_back({2048, 0});
  EXPECT_NEAR(both.weight_bytes() * 2, one.weight_bytes(), 1);
  EXPECT_LT(both.time(work).dense, one.time(work).dense);
  EXPECT_EQ(one.time(work).collectives, 0);
  EXPECT_GT(both.time(work).collectives, 0);
}

TEST(StepModel, PiecesOfAPrompt_CostItsAttentionTogether) {
  RooflineConstants ideal{1, 1, 0, 0, 1, 1};
  const StepModel model(plain_shape(), plain_device(), {}, {}, ideal);
  StepWork whole, first, second;
  whole.prompts.push_back({2048, 0});
  first.prompts.push_back({1024, 0});
  second.prompts.push_back({1024, 1024});
  EXPECT_NEAR(model.time(whole).attention,
              model.time(first).attention + model.time(second).attention,
              1e-9 + 0.01 * model.time(whole).attention);
}

TEST(StepModel, MoreExpertsAreReached_TheMoreTokensThereAre) {
  FfnShape ffn;
  ffn.experts = 64, ffn.top_k = 4, ffn.expert_inter = 256;
  ModelShape shape = plain_shape();
  shape.groups[0].ffn = ffn;
  RooflineConstants ideal{1, 1, 0, 0, 1, 1};
  DeviceSpeed device = plain_device();
  device.flops_bf16 = 1e15;  // memory decides, whatever tiles are padded to
  const StepModel model(shape, device, {}, {}, ideal);
  const auto experts = [&](double sequences) {
    StepWork work;
    work.decoding = sequences, work.context = 10;
    return model.time(work).experts;
  };
  const double weights = 4 * 3.0 * 512 * 256 * 2 / 1e11;  // of one expert in each layer
  EXPECT_NEAR(experts(1), 4 * weights, 0.02 * experts(1));
  EXPECT_NEAR(experts(16), 64 * (1 - std::pow(1 - 4.0 / 64, 16)) * weights, 0.02 * experts(16));
}

}  // namespace
}  // namespace infos
