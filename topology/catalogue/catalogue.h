// SPDX-License-Identifier: Apache-2.0
// The device kinds that are known before anything is measured: peaks, memory, links, watts, each
// with its source, as a table; docs/sources.md says where the figures come from. Immutable; any
// thread. A measured profile wins.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "topology/base/result.h"
#include "topology/base/units.h"

namespace infos {

enum class DeviceClass { cpu, gpu, asic };
const char* to_string(DeviceClass device_class);

/// How far a kind's figures can be trusted.
enum class Confidence {
  data_sheet,  ///< the vendor's published figures, dense (without sparsity)
  reported,    ///< a data sheet, corrected by what such a device reported of itself
  estimate,    ///< computed from published core counts, clocks and channels
};
const char* to_string(Confidence confidence);

/// Dense peaks. Units: operations (a multiply-add is two) per second; 0: not supported, or unknown.
struct Peaks {
  double f32 = 0;   ///< of vector units (GPU: outside the tensor cores)
  double bf16 = 0;  ///< f16 has the same, with f32 accumulation
  double f8 = 0;
  double i8 = 0;
  double f4 = 0;
};

/// Units: bandwidths in one direction, of one device.
struct DeviceKind {
  std::string_view name;  ///< "h100-sxm"
  std::string_view vendor;
  DeviceClass device_class = DeviceClass::gpu;
  Peaks peaks;
  Bytes memory;
  Bandwidth memory_bandwidth;
  double memory_efficiency = 0.8;  ///< part of it that kernels reach
  Bandwidth peer_link;  ///< to another device of the node (NVLink, xGMI); 0: through the host
  Bandwidth host_link;  ///< PCIe
  double watts = 0;     ///< board power limit
  Confidence confidence = Confidence::estimate;
  std::string_view source;
};

/// All kinds, by name.
std::span<const DeviceKind> device_kinds();
/// Errors: not_found, naming similar kinds.
Result<DeviceKind> find_device_kind(std::string_view name);

}  // namespace infos
