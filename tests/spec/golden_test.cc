// SPDX-License-Identifier: Apache-2.0
// Goal: good specs are read, bad ones give exactly the errors that a reader needs, and every key
// has one of each. Method: golden files: good/*.yaml parse, bad/X.yaml gives the lines of
// bad/X.errors (INFOS_UPDATE_GOLDEN=1 writes them anew).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "topology/spec/spec.h"

namespace infos {
namespace {

const std::filesystem::path kGolden = std::filesystem::path(INFOS_SOURCE_DIR) / "tests/spec/golden";

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::filesystem::path> files(const char* folder) {
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(kGolden / folder))
    if (entry.path().extension() == ".yaml") out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

SpecOutcome parse(const std::filesystem::path& path) {
  const std::vector<SpecFile> given{{path.filename().string(), read(path)}};
  return parse_spec(given);
}

bool updating() { return std::getenv("INFOS_UPDATE_GOLDEN") != nullptr; }

/// Equal to the file, or written to it when asked.
void expect_golden(const std::string& actual, const std::filesystem::path& path) {
  if (updating()) std::ofstream(path, std::ios::binary) << actual;
  EXPECT_EQ(actual, read(path)) << path << " differs; INFOS_UPDATE_GOLDEN=1 writes it anew";
}

TEST(SpecGolden, GoodFiles_HaveNoErrors) {
  ASSERT_FALSE(files("good").empty());
  for (const auto& path : files("good")) EXPECT_EQ(parse(path).error_text(), "") << path;
}

TEST(SpecGolden, BadFiles_GiveExactlyTheirErrors) {
  ASSERT_FALSE(files("bad").empty());
  for (const auto& path : files("bad")) {
    const SpecOutcome outcome = parse(path);
    EXPECT_FALSE(outcome.ok()) << path;
    expect_golden(outcome.error_text(), std::filesystem::path(path).replace_extension(".errors"));
  }
}

TEST(SpecGolden, Reference_IsUpToDate) {
  expect_golden(spec_reference(),
                std::filesystem::path(INFOS_SOURCE_DIR) / "docs/spec-reference.md");
}

/// Key paths of the reference, as "Kind nodes[].name".
std::set<std::string> all_keys() {
  std::set<std::string> keys;
  std::istringstream lines(spec_reference());
  std::string kind;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## ")) kind = line.substr(3);
    if (!line.starts_with("| `") || kind.empty()) continue;
    std::string key = line.substr(3, line.find('`', 3) - 3);
    if (key.ends_with("[]")) key.resize(key.size() - 2);
    keys.insert(kind + " " + key);
  }
  return keys;
}

TEST(SpecGolden, EveryKey_HasARefusedValue) {
  std::set<std::string> refused;
  for (const auto& path : files("bad")) {
    // Which kind a line of the file belongs to.
    std::vector<std::string> kind_of_line{""};
    std::istringstream text(read(path));
    std::string kind;
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with("kind: ")) kind = line.substr(6);
      kind_of_line.push_back(kind);
    }
    for (const SpecError& error : parse(path).errors) {
      if (!error.message.starts_with("spec.")) continue;
      std::string key = error.message.substr(5, error.message.find(": ") - 5);
      std::erase_if(key,
                    [](char c) { return c >= '0' && c <= '9'; });  // indices; no key has a digit
      if (key.ends_with("[]")) key.resize(key.size() - 2);
      refused.insert(kind_of_line.at(error.line) + " " + key);
    }
  }
  for (const std::string& key : all_keys())
    EXPECT_TRUE(refused.contains(key)) << "no bad example for " << key;
}

TEST(SpecGolden, EveryKey_IsReadByAGoodFile) {
  // A key that is nowhere written as `key: value` cannot have been read.
  const std::string text =
      read(kGolden / "good/every_key.yaml") + read(kGolden / "good/design.yaml");
  for (const std::string& key : all_keys()) {
    const std::string word = key.substr(key.find_last_of(" .") + 1);
    EXPECT_TRUE(text.find(" " + word + ":") != std::string::npos ||
                text.find("{" + word + ":") != std::string::npos)
        << "no good example for " << key;
  }
}

TEST(SpecGolden, Values_ArriveInTheStructs) {
  const SpecOutcome outcome = parse(kGolden / "good/every_key.yaml");
  ASSERT_TRUE(outcome.ok()) << outcome.error_text();
  const ClusterSpec& cluster = outcome.set.clusters.at(0);
  EXPECT_EQ(cluster.name, "every");
  EXPECT_EQ(cluster.nodes.at(0).devices.at(0).cores, (CoreList{0, 1, 2, 3, 8}));
  EXPECT_EQ(cluster.nodes[0].devices[0].memory, Bytes{64ULL << 30});
  EXPECT_EQ(cluster.nodes[0].devices[1].index, 0U);
  EXPECT_EQ(cluster.links.at(0).kind, LinkKind::rdma);
  EXPECT_DOUBLE_EQ(cluster.links[0].bandwidth->bytes_per_second, 5e10);
  EXPECT_EQ(cluster.links[0].latency, microseconds(2));
  EXPECT_EQ(cluster.links[1].between.at(1).name, "n1/gpu0");
  const ModelSpec& model = outcome.set.models.at(0);
  EXPECT_EQ(model.pools.at(1).engine.block_tokens, 8U);
  EXPECT_EQ(model.pools[1].engine.kv_dtype, "f32");
  EXPECT_EQ(model.name, "meta-llama/Llama-3.1-8B");
  EXPECT_EQ(model.slo.ttft, milliseconds(300));
  EXPECT_DOUBLE_EQ(model.slo.percentile, 99.9);
  EXPECT_EQ(model.pools.at(1).phase, Phase::decode);
  EXPECT_EQ(model.pools[1].replicas, 2U);
  EXPECT_EQ(model.replicas.min, 0U);
  EXPECT_EQ(model.replicas.max, 8U);
  EXPECT_EQ(model.numerics, Numerics::bounded);
  EXPECT_EQ(model.engine.threads, 4U);
  EXPECT_EQ(model.engine.kv_memory, Bytes{1ULL << 30});
  EXPECT_EQ(model.engine.device_options, "isa=avx2");
  EXPECT_EQ(outcome.set.models.at(1).engine.block_tokens, 16U);
  const WorkloadSpec& workload = outcome.set.workloads.at(0);
  EXPECT_EQ(workload.arrivals->process, ArrivalProcess::gamma);
  EXPECT_DOUBLE_EQ(*workload.arrivals->rate, 4.5);
  EXPECT_EQ(workload.prompt.shape, LengthShape::lognormal);
  EXPECT_EQ(workload.duration, seconds(600));
  EXPECT_EQ(outcome.set.workloads.at(2).trace->format, TraceFormat::jsonl);
  EXPECT_TRUE(outcome.set.policies.at(0).admission.deadline_aware);
  EXPECT_EQ(outcome.set.policies[0].swap.dwell, seconds(120));
  EXPECT_EQ(outcome.set.tenants.at(0).models.at(1).name, "meta-llama/Llama-3.1-8B");
  EXPECT_EQ(outcome.set.tenants[0].limits.max_running, 32U);
}

TEST(SpecGolden, SeveralFiles_ReferToEachOther_AndErrorsNameTheirFile) {
  const SpecFile model{"model.yaml", read(kGolden / "good/least.yaml")};
  const SpecFile tenant{"tenant.yaml",
                        "apiVersion: infos/v1\nkind: Tenant\nmetadata: {name: t}\nspec: "
                        "{keys_file: k, models: [tiny]}\n"};
  EXPECT_EQ(parse_spec(std::vector{tenant, model}).error_text(), "");
  EXPECT_EQ(parse_spec(std::vector{model, tenant}).error_text(), "");
  const SpecOutcome alone = parse_spec(std::vector{tenant});
  ASSERT_EQ(alone.errors.size(), 1U);
  EXPECT_EQ(alone.errors[0].file, "tenant.yaml");
  EXPECT_EQ(alone.errors[0].line, 4U);
  EXPECT_TRUE(parse_spec(std::vector{tenant}, SpecReferences::may_be_elsewhere).ok());
  const SpecOutcome twice = parse_spec(std::vector{model, SpecFile{"again.yaml", model.text}});
  ASSERT_EQ(twice.errors.size(), 1U);
  EXPECT_EQ(twice.errors[0].file, "again.yaml");
}

TEST(SpecGolden, Errors_AreBounded) {
  std::string text = "apiVersion: infos/v1\nkind: Model\nmetadata: {name: m}\nspec:\n  source: x\n";
  for (int i = 0; i < 5000; ++i) text += "  key" + std::to_string(i) + "x: 1\n";
  const SpecOutcome outcome = parse_spec(std::vector{SpecFile{"f", text}});
  ASSERT_EQ(outcome.errors.size(), kSpecErrorsMax);
  EXPECT_NE(outcome.errors.back().message.find("more errors"), std::string::npos);
}

TEST(Cores, ParseAndPrint_AreInverse) {
  EXPECT_EQ(parse_cores("5,0-2,7").value(), (CoreList{0, 1, 2, 5, 7}));
  EXPECT_EQ(to_string(CoreList{0, 1, 2, 5, 7}), "0-2,5,7");
  EXPECT_EQ(to_string(CoreList{}), "");
  for (const char* text :
       {"", ",", "1,", "1-", "-1", "2-1", "1,1", "0-4096", "a", "1 - 2", "0-3,2", "1--2", "1-2-3"})
    EXPECT_FALSE(parse_cores(text).ok()) << text;
}

}  // namespace
}  // namespace infos
