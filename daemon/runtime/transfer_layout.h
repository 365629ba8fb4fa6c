// SPDX-License-Identifier: Apache-2.0
// What an opened engine's KV is, in the words that peers compare: its layout, the identity of its
// weights, the build that computes it.
#pragma once

#include <string>
#include <vector>

#include "devices/engine/checkpoint.h"
#include "devices/engine/engine.h"
#include "topology/base/result.h"
#include "topology/model/kv_layout.h"

namespace infos {

/// Names the weights and what is computed with them: the configuration, and every tensor's name,
/// dtype, shape and a sample of its bytes (its ends and 62 places between). Says nothing of the
/// path. Two models that differ in the bytes that are not sampled alone look the same.
std::string checkpoint_identity(const Checkpoint& checkpoint);

/// The build of a backend and what its device is compatible with: results of one may differ in
/// their last bits from another's. Errors: as find_plugin().
Result<std::string> backend_identity(const EngineOptions& options);

/// The layout of the engine's pools; `model` and `build` as given. Errors: unsupported: a pool that
/// the host cannot address, or ranks that are not laid out alike.
Result<KvLayout> kv_layout_of(const Engine& engine, std::string model, std::string build);

/// The pools' bases by rank.
std::vector<std::byte*> kv_pools_of(const Engine& engine);

}  // namespace infos
