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

TEST(LocalPlan, MoreThanOneNodeCanDo_IsRefusedWithItsPlace) {
  const auto workers =
      plan(model("a", "  topology: prefill-decode\n") + model("b", "  topology: attention-ffn\n"));
  ASSERT_FALSE(workers.ok());
  EXPECT_EQ(workers.error().code, ErrorCode::unsupported);
  EXPECT_NE(workers.error().message.find("f.yaml:1"), std::string::npos) << workers.error().message;
  EXPECT_NE(workers.error().message.find("attention-ffn"), std::string::npos)
      << workers.error().message;
}

}  // namespace
}  // namespace infos
