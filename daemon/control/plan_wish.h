// SPDX-License-Identifier: Apache-2.0
// plan_wish: what a spec asks for, as pools with their places, before it is known which nodes are
// there. Pure. Refuses what this version cannot run, with the place of every refusal.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/control/messages.h"
#include "topology/base/result.h"
#include "topology/spec/spec.h"

namespace infos {

/// One device of one node, and what its workers must know of it.
struct DeviceWish {
  std::string node;
  std::string device;  ///< empty: the node's cores
  std::string backend = "cpu";
  std::map<std::string, std::string> options;  ///< outrank the pool's: cores
  friend bool operator==(const DeviceWish&, const DeviceWish&) = default;
};

struct PoolWish {
  WorkerRole role = WorkerRole::aggregated;
  std::uint32_t replicas = 1;       ///< on each device; of all, when there is no device
  std::vector<DeviceWish> devices;  ///< empty: anywhere
  std::string backend = "cpu";      ///< of those without a device
  std::map<std::string, std::string> options;
  friend bool operator==(const PoolWish&, const PoolWish&) = default;
};

struct ModelWish {
  std::string name;
  std::string source;
  std::uint32_t max_context = 0;
  std::vector<PoolWish> pools;
  friend bool operator==(const ModelWish&, const ModelWish&) = default;
};

struct PlanWish {
  std::string spec;  ///< the YAML it stands for
  std::vector<ModelWish> models;
  friend bool operator==(const PlanWish&, const PlanWish&) = default;
};

/// Errors: unsupported, all of them, one a line, each with its place in `file_names`.
Result<PlanWish> plan_wish(const SpecSet& spec, const std::vector<std::string>& file_names);

}  // namespace infos
