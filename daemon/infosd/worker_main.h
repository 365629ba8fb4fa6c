// SPDX-License-Identifier: Apache-2.0
// `infosd worker`: one process that owns one model on one device. Opens checkpoint and engine, then
// serves. Never outlives the infosd that started it.
#pragma once

#include <string>
#include <vector>

namespace infos {

/// `argv` begins with "worker". Returns: the exit status (kExitPermanent: trying again is
/// pointless).
int worker_main(const std::vector<std::string>& argv);

}  // namespace infos
