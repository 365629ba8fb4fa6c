// SPDX-License-Identifier: Apache-2.0
// Goal: no text crashes, hangs or outgrows the spec reader, and what it says stays within the text.
// Method: any bytes as a spec file; errors must have a place in the file and one line each.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "topology/base/check.h"
#include "topology/spec/spec.h"
#include "topology/spec/yaml_tree.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<infos::SpecFile> files{
      {"spec.yaml", std::string(reinterpret_cast<const char*>(data), size)}};
  const infos::SpecOutcome outcome = infos::parse_spec(files);
  const auto lines =
      static_cast<std::uint32_t>(std::count(files[0].text.begin(), files[0].text.end(), '\n')) + 1;
  for (const infos::SpecError& error : outcome.errors) {
    INFOS_CHECK(error.line >= 1);
    INFOS_CHECK(error.line <= lines);
    INFOS_CHECK(error.column >= 1);
    INFOS_CHECK(!error.message.empty());
    INFOS_CHECK(error.message == infos::printable(error.message));
    INFOS_CHECK(error.message.size() < 4096);
  }
  if (outcome.ok()) {
    const infos::SpecSet& set = outcome.set;
    INFOS_CHECK(!set.clusters.empty() || !set.models.empty() || !set.workloads.empty() ||
                !set.policies.empty() || !set.tenants.empty());
  }
  return 0;
}
