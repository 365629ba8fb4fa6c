// SPDX-License-Identifier: Apache-2.0
// Plan: which workers run where, under one epoch. The controller numbers plans and sends them whole
// to every node; a node acts on its own part and knows from the rest who serves elsewhere. Plain
// values; decides nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/control/agent_core.h"
#include "daemon/control/messages.h"
#include "topology/base/ids.h"

namespace infos {

/// A member of the cluster that the plan knows.
struct PlannedNode {
  NodeId node;
  std::string name;
  bool drained = false;  ///< it is to run nothing
  std::string address;   ///< HOST:PORT where its peers reach it
  friend bool operator==(const PlannedNode&, const PlannedNode&) = default;
};

/// What every gateway must know of a model to offer it.
struct PlannedModel {
  std::string name;
  std::string source;             ///< path of the checkpoint, the same on every node
  std::uint32_t max_context = 0;  ///< tokens; 0: what the model says
  bool drained = false;           ///< listed, but no worker of it is to run
  friend bool operator==(const PlannedModel&, const PlannedModel&) = default;
};

/// One worker slot. Two with the same slot key are the same slot in different plans.
struct PlannedWorker {
  NodeId node;
  std::uint32_t pool = 0;  ///< index of its pool in the model
  std::string device;      ///< name of the device on its node; empty: the node's cores
  std::uint32_t replica = 0;
  WorkerRole role = WorkerRole::aggregated;
  WorkerSpec spec;
  friend bool operator==(const PlannedWorker&, const PlannedWorker&) = default;
};

struct Plan {
  Epoch epoch;             ///< grows with every plan; 0: there is none yet
  std::uint64_t term = 0;  ///< the controller's incarnation that made it
  std::vector<PlannedNode> nodes;
  std::vector<PlannedModel> models;
  std::vector<PlannedWorker> workers;
  std::vector<std::string> notes;  ///< what is wished and cannot be placed now, and why
  WorkerId last_worker;            ///< ids up to this one have been given out
  std::string spec;                ///< the YAML that it fulfils
  friend bool operator==(const Plan&, const Plan&) = default;
};

const char* to_string(WorkerRole role);

/// The workers that `node` runs under `plan`.
std::vector<WorkerSpec> part_of(const Plan& plan, NodeId node);

}  // namespace infos
