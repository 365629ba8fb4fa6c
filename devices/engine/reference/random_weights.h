// SPDX-License-Identifier: Apache-2.0
// Random weights of every dtype, for the tests of backends. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace infos::reference {

/// Random bytes that are a sound tensor of this dtype, its elements spread over about [-amplitude,
/// amplitude]. The same seed gives the same bytes on every machine. Requires: a dtype that holds
/// weights, elements a whole number of its blocks.
std::vector<std::byte> random_weights(std::uint32_t dtype, std::uint64_t elements, double amplitude,
                                      std::uint64_t seed);

}  // namespace infos::reference
