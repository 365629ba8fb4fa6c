// SPDX-License-Identifier: Apache-2.0
// The words for why a sequence ended, in traces and reports. Pure.
#pragma once

#include "daemon/control/messages.h"

namespace infos {

const char* to_string(FinishReason reason);

}  // namespace infos
