// SPDX-License-Identifier: Apache-2.0
// Which weights a configuration has: the one list that both the check of a file and the writer of a
// synthetic one walk. Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "topology/base/result.h"
#include "topology/model/model_config.h"

namespace infos {

/// How the experts of a layer are stored: blk.N.ffn_up_exps.weight [experts, out, in], or
/// blk.N.ffn_up.E.weight [out, in].
enum class ExpertForm { stacked, separate };

enum class TensorRole {
  matrix,  ///< may be block-quantised
  router,  ///< matrix that chooses experts; kept precise
  norm,    ///< vector of factors around 1
  bias,    ///< vector of addends around 0
};

struct TensorSpec {
  std::string name;  ///< canonical
  TensorRole role = TensorRole::matrix;
  std::vector<std::int64_t> dims;  ///< row-major, outermost first
};

/// Calls `visit` for each weight, in file order, until it gives an error, which is returned.
/// Lazy, because a lying configuration may describe millions. Requires: config.validate() holds.
Status visit_tensors(const ModelConfig& config, ExpertForm form,
                     const std::function<Status(const TensorSpec&)>& visit);

}  // namespace infos
