// SPDX-License-Identifier: Apache-2.0
// Goal: the figures of device kinds are plausible, sourced and equal to the system descriptions
// they came from. Method: relations that hold for every real device, and a comparison with the YAML
// files of the shared data.
#include "topology/catalogue/catalogue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "tests/support/data.h"

namespace infos {
namespace {

/// "  key: number # comment" lines of a file.
std::map<std::string, double> numbers(const std::string& path) {
  std::map<std::string, double> out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    const std::size_t start = line.find_first_not_of(' ');
    if (colon == std::string::npos || start == std::string::npos || line[start] == '#') continue;
    out[line.substr(start, colon - start)] = std::strtod(line.c_str() + colon + 1, nullptr);
  }
  return out;
}

TEST(Catalogue, Names_AreUniqueAndSorted) {
  std::string last;
  for (const DeviceKind& kind : device_kinds()) {
    EXPECT_LT(last, kind.name);
    last = kind.name;
  }
}

TEST(Catalogue, Figures_ArePlausibleAndSourced) {
  for (const DeviceKind& kind : device_kinds()) {
    EXPECT_FALSE(kind.source.empty()) << kind.name;
    EXPECT_GT(kind.peaks.f32, 1e11) << kind.name;
    EXPECT_GE(kind.memory.value, 16ULL << 30) << kind.name;
    EXPECT_GT(kind.watts, 0) << kind.name;
    EXPECT_GT(kind.memory_efficiency, 0) << kind.name;
    EXPECT_LE(kind.memory_efficiency, 1) << kind.name;
    if (kind.peaks.bf16 > 0) {
      EXPECT_GT(kind.peaks.bf16, kind.peaks.f32) << kind.name;
    }
    if (kind.peaks.f8 > 0) {
      EXPECT_GE(kind.peaks.f8, kind.peaks.bf16) << kind.name;
    }
    if (kind.peaks.f4 > 0) {
      EXPECT_GT(kind.peaks.f4, kind.peaks.f8) << kind.name;
    }
    EXPECT_GE(kind.peer_link.bytes_per_second == 0 ? INFINITY : kind.peer_link.bytes_per_second,
              kind.host_link.bytes_per_second)
        << kind.name;
    EXPECT_GT(kind.memory_bandwidth.bytes_per_second, kind.host_link.bytes_per_second) << kind.name;
    // No device does fewer than 1 or more than 10,000 operations for each byte it reads.
    const double best =
        std::max({kind.peaks.f32, kind.peaks.bf16, kind.peaks.f8, kind.peaks.i8, kind.peaks.f4});
    EXPECT_GT(best, kind.memory_bandwidth.bytes_per_second) << kind.name;
    EXPECT_LT(best, 1e4 * kind.memory_bandwidth.bytes_per_second) << kind.name;
  }
}

TEST(Catalogue, Find_NamesSimilarKinds) {
  EXPECT_EQ(find_device_kind("h100-sxm")->memory.value, 80ULL << 30);
  const Error error = find_device_kind("h100").error();
  EXPECT_EQ(error.code, ErrorCode::not_found);
  EXPECT_NE(error.message.find("h100-pcie, h100-sxm"), std::string::npos) << error.message;
  EXPECT_NE(find_device_kind("").error().message.find("xeon-8480"), std::string::npos);
}

TEST(Catalogue, Figures_EqualTheSystemDescriptions) {
  INFOS_NEEDS_DATA("profiles/systems");
  std::size_t compared = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::data_path("profiles/systems"))) {
    if (entry.path().extension() != ".yaml") continue;
    std::string name = entry.path().stem();
    for (char& c : name) c = c == '_' ? '-' : c;
    const auto kind = find_device_kind(name);
    ASSERT_TRUE(kind.ok()) << name << " is described in the data and not in the catalogue";
    const auto file = numbers(entry.path());
    EXPECT_NEAR(kind->peaks.bf16 / file.at("bfloat16_tc_flops"), 1, 1e-3) << name;
    EXPECT_NEAR(kind->peaks.i8 / file.at("int8_tc_flops"), 1, 1e-3) << name;
    EXPECT_NEAR(kind->memory_bandwidth.bytes_per_second / file.at("mem_bw"), 1, 1e-3) << name;
    EXPECT_NEAR(static_cast<double>(kind->memory.value) / file.at("mem_capacity"), 1, 5e-3) << name;
    EXPECT_NEAR(kind->host_link.bytes_per_second / file.at("pcie_bw"), 1, 1e-3) << name;
    EXPECT_NEAR(kind->watts / file.at("power"), 1, 1e-3) << name;
    EXPECT_NEAR(kind->memory_efficiency, file.at("mem_bw_empirical_scaling_factor"), 1e-9) << name;
    if (kind->peer_link.bytes_per_second > 0 && name != "a30") {
      EXPECT_NEAR(kind->peer_link.bytes_per_second / file.at("intra_node_bw"), 1, 1e-3) << name;
    }
    ++compared;
  }
  EXPECT_GE(compared, 10U);
}

}  // namespace
}  // namespace infos
