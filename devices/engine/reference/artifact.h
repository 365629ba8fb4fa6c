// SPDX-License-Identifier: Apache-2.0
// The reference backend's artifact: the graph and its bucket, as bytes with a checksum. Trusts no
// byte it reads.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "devices/engine/reference/graph_check.h"

namespace infos::reference {

struct Artifact {
  GraphCopy graph;
  infos_bucket bucket{};
};

std::vector<std::byte> write_artifact(const Artifact& artifact);
/// Empty when `bytes` hold a sound artifact, else one sentence.
std::string read_artifact(std::span<const std::byte> bytes, Artifact* out);

}  // namespace infos::reference
