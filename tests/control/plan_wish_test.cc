// SPDX-License-Identifier: Apache-2.0
// Goal: a spec's pools become wishes with the options of model, pool and device in their order, and
// what cannot be run is refused with its place. Method: small YAML documents.
#include "daemon/control/plan_wish.h"

#include <gtest/gtest.h>

namespace infos {
namespace {

const char* const kCluster =
    "apiVersion: infos/v1\nkind: Cluster\nmetadata: {name: lab}\nspec:\n  nodes:\n"
    "    - {name: n1, devices: [{name: a, cores: 0-1}, {name: b, cores: '2'}]}\n"
    "    - {name: n2, devices: [{name: a, cores: '0'}]}\n---\n";

Result<PlanWish> wish(const std::string& model_keys, const std::string& cluster = kCluster) {
  const SpecFile file{"f.yaml",
                      cluster +
                          "apiVersion: infos/v1\nkind: Model\nmetadata: {name: m}\nspec:\n"
                          "  source: /m\n" +
                          model_keys};
  const SpecOutcome outcome = parse_spec(std::span(&file, 1));
  EXPECT_TRUE(outcome.ok()) << outcome.error_text();
  return plan_wish(outcome.set, {"f.yaml"});
}

TEST(PlanWish, ExplicitPools_HaveTheirOwnEngineOptions) {
  const auto made = wish(
      "  numerics: bounded\n  engine: {block_tokens: 16, kv_dtype: f16, threads: 2}\n  pools:\n"
      "    - {phase: prefill, devices: [n1/a, n1/b], engine: {block_tokens: 8, kv_dtype: f32}}\n"
      "    - {phase: decode, devices: [n2/a], replicas: 2, tensor_parallel: 2, engine: {cores: "
      "'3'}}\n");
  ASSERT_TRUE(made.ok()) << made.error().message;
  const std::vector<PoolWish>& pools = made->models.at(0).pools;
  ASSERT_EQ(pools.size(), 2u);
  EXPECT_EQ(pools[0].role, WorkerRole::prefill);
  EXPECT_EQ(pools[0].options.at("block_tokens"), "8");
  EXPECT_EQ(pools[0].options.at("kv_dtype"), "f32");
  EXPECT_EQ(pools[0].options.at("role"), "prefill");
  EXPECT_EQ(pools[0].options.at("threads"), "2");
  EXPECT_EQ(pools[0].devices.at(0).options.at("cores"), "0-1");
  EXPECT_EQ(pools[0].devices.at(1).options.at("cores"), "2");
  EXPECT_EQ(pools[1].replicas, 2u);
  EXPECT_EQ(pools[1].options.at("block_tokens"), "16");
  EXPECT_EQ(pools[1].options.at("kv_dtype"), "f16");
  EXPECT_EQ(pools[1].options.at("tensor_parallel"), "2");
  EXPECT_EQ(pools[1].options.at("cores"), "3");
  EXPECT_TRUE(pools[1].devices.at(0).options.empty());
}

TEST(PlanWish, PrefillDecode_SplitsTheDevices) {
  const auto made = wish("  topology: prefill-decode\n");
  ASSERT_TRUE(made.ok()) << made.error().message;
  const std::vector<PoolWish>& pools = made->models.at(0).pools;
  ASSERT_EQ(pools.size(), 2u);
  EXPECT_EQ(pools[0].devices.size(), 2u);
  ASSERT_EQ(pools[1].devices.size(), 1u);
  EXPECT_EQ(pools[1].devices[0].node, "n2");
}

TEST(PlanWish, WhatCannotBeRun_IsRefusedWithItsPlace) {
  const auto made = wish("  pools: [{phase: attention}, {phase: ffn}]\n");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::unsupported);
  EXPECT_NE(made.error().message.find("f.yaml:"), std::string::npos);
  EXPECT_NE(made.error().message.find("phase attention"), std::string::npos);
  EXPECT_NE(made.error().message.find("phase ffn"), std::string::npos);
  EXPECT_FALSE(wish("  topology: attention-ffn\n").ok());
  EXPECT_FALSE(wish("  pools: [{phase: prefill, devices: [n1/a]}]\n", "").ok());
}

TEST(PlanWish, PoolsWhoseKvMayNotBeConverted_AreRefused) {
  const auto pools = [](const std::string& numerics, const std::string& prefill,
                        const std::string& decode) {
    return wish("  numerics: " + numerics + "\n  pools:\n    - {phase: prefill, engine: {" +
                prefill + "}}\n    - {phase: decode, tensor_parallel: 2, engine: {" + decode +
                "}}\n");
  };
  const auto refused =
      pools("exact", "kv_dtype: f32, block_tokens: 8", "kv_dtype: f16, block_tokens: 32");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_EQ(refused.error().message,
            "f.yaml:17:7: decode pool 1 of model m cannot take the KV of prefill pool 0: numerics "
            "exact does not allow KV (f32 block 8 head-major K and V apart TP 1) as (f16 block 32 "
            "head-major K and V apart TP 2): f32 to f16 rounds");
  EXPECT_FALSE(pools("exact", "kv_dtype: bf16", "kv_dtype: f16").ok());
  EXPECT_TRUE(pools("bounded", "kv_dtype: f32", "kv_dtype: f16").ok());
  EXPECT_TRUE(pools("exact", "kv_dtype: f16, block_tokens: 8", "kv_dtype: f32").ok());
  EXPECT_TRUE(pools("exact", "block_tokens: 8", "kv_dtype: f16").ok());  // the weights decide
}

}  // namespace
}  // namespace infos
