// SPDX-License-Identifier: Apache-2.0
#include "transports/rdma/devices.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

namespace infos {

namespace {

namespace fs = std::filesystem;

std::string read_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<fs::path> sorted(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// IPv4 of a mapped GID, IPv6 of another that is not link-local; else "".
std::string address_of(const std::string& gid) {
  in6_addr raw{};
  if (inet_pton(AF_INET6, gid.c_str(), &raw) != 1) return "";
  char text[INET6_ADDRSTRLEN];
  if (IN6_IS_ADDR_V4MAPPED(&raw)) return inet_ntop(AF_INET, raw.s6_addr + 12, text, sizeof text);
  if (IN6_IS_ADDR_LINKLOCAL(&raw) || IN6_IS_ADDR_UNSPECIFIED(&raw)) return "";
  return inet_ntop(AF_INET6, &raw, text, sizeof text);
}

}  // namespace

std::vector<RdmaDevice> rdma_devices(const std::string& root) {
  std::vector<RdmaDevice> devices;
  for (const fs::path& folder : sorted(root)) {
    for (const fs::path& port : sorted(folder / "ports")) {
      if (!read_line(port / "state").starts_with("4")) continue;  // "4: ACTIVE"
      RdmaDevice device;
      device.name = folder.filename();
      const std::string number = port.filename();
      std::from_chars(number.data(), number.data() + number.size(), device.port);
      device.ethernet = read_line(port / "link_layer") == "Ethernet";
      device.rate = read_line(port / "rate");
      for (int i = 0; i < 256 && device.ethernet; ++i) {
        if (read_line(port / "gid_attrs/types" / std::to_string(i)) != "RoCE v2") continue;
        const std::string address = address_of(read_line(port / "gids" / std::to_string(i)));
        // IPv4 before IPv6: that is what operators route.
        if (address.empty() || (!device.address.empty() && address.find(':') != address.npos))
          continue;
        device.gid_index = static_cast<std::uint8_t>(i);
        device.address = address;
        if (address.find(':') == address.npos) break;
      }
      if (!device.ethernet || !device.address.empty()) devices.push_back(device);
    }
  }
  return devices;
}

Result<RdmaDevice> find_rdma_device(const std::string& name, const std::string& root) {
  std::string seen;
  for (const RdmaDevice& device : rdma_devices(root)) {
    if (name.empty() || device.name == name) return device;
    seen += (seen.empty() ? "" : ", ") + device.name;
  }
  if (seen.empty())
    return Error{ErrorCode::unsupported, "this machine has no RDMA device with an active port"};
  return Error{ErrorCode::unsupported,
               fmt::format("RDMA device '{}': there is none; with an active port: {}", name, seen)};
}

}  // namespace infos
