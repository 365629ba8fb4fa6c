// SPDX-License-Identifier: Apache-2.0
// A transformer written straight from its papers, in double, over a whole token list at once: no
// graph, no paging, no batches. The oracle of the graph builder and of whole-graph execution.
#pragma once

#include <vector>

#include "devices/engine/checkpoint.h"
#include "topology/base/ids.h"

namespace infos::test {

/// Logits of every position, [tokens, vocab].
std::vector<double> direct_forward(const Checkpoint& checkpoint,
                                   const std::vector<TokenId>& tokens);

}  // namespace infos::test
