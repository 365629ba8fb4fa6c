// SPDX-License-Identifier: Apache-2.0
// Goal: a spec gives the workers that it asks for, an unchanged replica keeps its id, and what one
// node cannot do is refused with its place. Method: small YAML documents.
#include "daemon/runtime/local_plan.h"

#include <gtest/gtest.h>

namespace infos {
namespace {

Result<std::vector<WorkerSpec>> plan(const std::string& yaml,
                                     const std::vector<WorkerSpec>& previous = {}) {
  const SpecFile file{"f.yaml", yaml};
  const SpecOutcome outcome = parse_spec(std::span(&file, 1));
  EXPECT_TRUE(outcome.ok()) << outcome.error_text();
  return local_plan(outcome.set, previous, {"f.yaml"});
}

std::string model(const std::string& name, const std::string& rest = "") {
  return "apiVersion: infos/v1\nkind: Model\nmetadata: {name: " + name + "}\nspec:\n  source: /m/" +
         name + "\n" + rest + "---\n";
}

TEST(LocalPlan, Model_GivesItsReplicasWithItsOptions) {
  const auto workers =
      plan(model("a", "  replicas: {min: 2, max: 2}\n  engine: {threads: 3, kv_memory: 1GiB}\n"))
          .value();
  ASSERT_EQ(workers.size(), 2u);
  EXPECT_EQ(workers[0].worker, WorkerId{1});
  EXPECT_EQ(workers[1].worker, WorkerId{2});
  EXPECT_EQ(workers[0].source, "/m/a");
  EXPECT_EQ(workers[0].device, "cpu");
  EXPECT_EQ(workers[0].options.at("threads"), "3");
  EXPECT_EQ(workers[0].options.at("kv_memory"), "1GiB");
}

TEST(LocalPlan, AnotherModelComesOrGoes_TheRestKeepsItsIds) {
  const auto first = plan(model("a") + model("b")).value();
  const auto second = plan(model("b") + model("c"), first).value();
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[0], first[1]);
  EXPECT_NE(second[1].worker, first[0].worker);  // an id is not given to another model at once
}

TEST(LocalPlan, PrefillAndDecode_AreWorkersOfOneNodeWithTheirRoles) {
  const std::string cluster =
      "apiVersion: infos/v1\nkind: Cluster\nmetadata: {name: lab}\nspec:\n  nodes:\n"
      "    - {name: n1, devices: [{name: a, cores: '0'}, {name: b, cores: '1'}]}\n---\n";
  const auto workers =
      plan(cluster + model("m",
                           "  pools:\n    - {phase: prefill, devices: [n1/a, n1/b]}\n"
                           "    - {phase: decode, devices: [n1/b], replicas: 2, "
                           "tensor_parallel: 2, engine: {block_tokens: 8}}\n"))
          .value();
  ASSERT_EQ(workers.size(), 4u);
  EXPECT_EQ(workers[0].options.at("role"), "prefill");
  EXPECT_EQ(workers[0].options.at("cores"), "0");
  EXPECT_EQ(workers[1].options.at("cores"), "1");
  EXPECT_FALSE(workers[1].options.contains("tensor_parallel"));
  for (const std::size_t i : {2, 3}) {
    EXPECT_EQ(workers[i].options.at("role"), "decode");
    EXPECT_EQ(workers[i].options.at("tensor_parallel"), "2");
    EXPECT_EQ(workers[i].options.at("block_tokens"), "8");
    EXPECT_EQ(workers[i].options.at("numerics"), "exact");
    EXPECT_EQ(workers[i].worker, WorkerId{i + 1});
  }
}

TEST(LocalPlan, TopologyPrefillDecode_WithoutDevices_IsOneWorkerOfEach) {
  const auto workers = plan(model("m", "  topology: prefill-decode\n")).value();
  ASSERT_EQ(workers.size(), 2u);
  EXPECT_EQ(workers[0].options.at("role"), "prefill");
  EXPECT_EQ(workers[1].options.at("role"), "decode");
}

TEST(LocalPlan, MoreThanOneNodeCanDo_IsRefusedWithItsPlace) {
  const auto workers = plan(model("b", "  topology: attention-ffn\n"));
  ASSERT_FALSE(workers.ok());
  EXPECT_EQ(workers.error().code, ErrorCode::unsupported);
  EXPECT_NE(workers.error().message.find("f.yaml:3:"), std::string::npos) << workers.error().message;
  EXPECT_NE(workers.error().message.find("attention-ffn"), std::string::npos)
      << workers.error().message;
  const auto two = plan(
      "apiVersion: infos/v1\nkind: Cluster\nmetadata: {name: lab}\nspec:\n  nodes:\n"
      "    - {name: n1}\n    - {name: n2}\n---\n" +
      model("m"));
  ASSERT_FALSE(two.ok());
  EXPECT_NE(two.error().message.find("f.yaml:7:"), std::string::npos) << two.error().message;
  EXPECT_NE(two.error().message.find("2 nodes"), std::string::npos) << two.error().message;
}

}  // namespace
}  // namespace infos
