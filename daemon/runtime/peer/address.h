// SPDX-License-Identifier: Apache-2.0
// HOST:PORT and [V6]:PORT as text. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "topology/base/result.h"

namespace infos {

struct HostPort {
  std::string host;  ///< without brackets
  std::uint16_t port = 0;
};
/// Errors: invalid_argument.
Result<HostPort> split_address(std::string_view text);
std::string join_address(const HostPort& address);

}  // namespace infos
