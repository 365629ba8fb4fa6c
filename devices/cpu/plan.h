// SPDX-License-Identifier: Apache-2.0
// What an artifact of this backend is: a checked copy of the phase graph and its bucket. Owns the
// check of graphs that come from outside (the host, a file) and the byte form. Pure; any thread.
// Never looks at weights.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "devices/abi/infos_device.h"
#include "topology/base/result.h"

namespace infos::cpu {

struct Plan {
  std::vector<infos_tensor> tensors;
  std::vector<infos_op> ops;
  std::uint32_t layer_begin = 0, layer_end = 0, layers = 0;
  infos_bucket bucket{};

  // Found by check_plan.
  std::uint32_t vocab = 0;                   ///< columns of the logits
  std::uint32_t token_limit = 0;             ///< rows of the smallest embedding table
  std::uint32_t kv_heads = 0, head_dim = 0;  ///< 0: the graph has no attention
};

/// Copies and checks a graph. Errors: invalid_argument, unsupported: the op, what it has, what is
/// allowed.
Result<Plan> make_plan(const infos_graph& graph, const infos_bucket& bucket);

/// Values in a row of a tensor: the product of its dims after the first.
std::uint64_t row_values(const infos_tensor& tensor);

/// Bytes of a plan made for devices named `compat`; a function of the plan alone.
std::vector<std::uint8_t> serialize(const Plan& plan, std::string_view compat);
struct StoredPlan {
  Plan plan;
  std::string compat;
};
/// Errors: corrupt (which field), or those of make_plan.
Result<StoredPlan> deserialize(std::span<const std::uint8_t> bytes);

}  // namespace infos::cpu
