// SPDX-License-Identifier: Apache-2.0
// What goes wrong with a client's request, in the OpenAI API's terms. Plain values.
#pragma once

#include <string>
#include <variant>

#include "topology/base/units.h"

namespace infos {

struct ApiError {
  int status = 400;  ///< of HTTP
  std::string type = "invalid_request_error";
  std::string code;   ///< empty: null
  std::string param;  ///< empty: null
  std::string message;
  Duration retry_after;  ///< 0: none
};

template <typename T>
using ApiResult = std::variant<T, ApiError>;

}  // namespace infos
