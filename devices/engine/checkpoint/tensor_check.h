// SPDX-License-Identifier: Apache-2.0
// Decides whether a set of weights is the model that its configuration describes: every weight the
// phase graph binds is there with its shape and a dtype we compute with, and there is none that the
// graph would silently leave out. Pure; any thread.
#pragma once

#include <span>
#include <string>

#include "devices/engine/checkpoint.h"
#include "topology/base/result.h"
#include "topology/model/model_config.h"

namespace infos {

/// Experts may be stacked (blk.N.ffn_gate_exps.weight [experts, out, in]) or one by one
/// (blk.N.ffn_gate.E.weight [out, in]). Errors: corrupt (missing, wrong shape), unsupported (dtype,
/// a weight outside the family), naming `label` and tensor.
Status check_tensors(const ModelConfig& config, std::span<const TensorView> tensors,
                     const std::string& label);

}  // namespace infos
