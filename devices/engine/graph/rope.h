// SPDX-License-Identifier: Apache-2.0
// Rotary frequencies: the constant of the ROPE op, with the stretchings for long contexts. Pure;
// any thread.
#pragma once

#include <vector>

#include "topology/model/model_config.h"

namespace infos {

/// Radians per position for each rotated pair, [head_dim / 2].
/// Source: theta^(-2i/d), Su et al. 2021; "linear" divides by the factor (Chen et al. 2023);
/// "llama3" divides the low frequencies only, with a smooth ramp between (Llama 3.1 model card and
/// reference code); "table" divides them one by one. Requires: a table holds head_dim / 2 divisors,
/// as build_phase_graph checks.
std::vector<float> rope_frequencies(const ModelConfig& config);

}  // namespace infos
