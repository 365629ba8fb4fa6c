// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/finish_word.h"

namespace infos {

const char* to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::none:
      return "none";
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::error:
      return "error";
    case FinishReason::prefilled:
      return "prefilled";
  }
  return "unknown";
}

}  // namespace infos
