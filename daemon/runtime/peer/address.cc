// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/peer/address.h"

#include <fmt/format.h>

#include <charconv>

namespace infos {

Result<HostPort> split_address(std::string_view text) {
  const Error bad{ErrorCode::invalid_argument,
                  fmt::format("address '{}': want HOST:PORT or [IPV6]:PORT, port from 0 to 65535",
                              text.substr(0, 200))};
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return bad;
  HostPort out;
  const std::string_view port = text.substr(colon + 1);
  const auto [end, code] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (code != std::errc() || end != port.data() + port.size()) return bad;
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    return bad;
  if (host.empty() || host.size() > 253) return bad;
  out.host = host;
  return out;
}

std::string join_address(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", address.host, address.port)
            : fmt::format("{}:{}", address.host, address.port);
}

}  // namespace infos
