// SPDX-License-Identifier: Apache-2.0
// The conformance suite for backends: what a plugin must do before this host will trust it. Each
// check runs in a child process, so that a plugin that crashes or hangs fails that check and
// nothing else.
#pragma once

#include <string>
#include <vector>

#include "topology/base/units.h"

namespace infos {

struct PluginCheckResult {
  enum class Outcome { passed, failed, skipped };
  std::string name;  ///< what must hold, in words
  Outcome outcome = Outcome::failed;
  std::string detail;  ///< why it failed or was skipped
};

struct PluginReport {
  std::string plugin;  ///< as given
  std::vector<PluginCheckResult> checks;
  bool ok() const;           ///< nothing failed
  std::string text() const;  ///< one line for each check, and a last one with the sum
};

struct PluginCheckOptions {
  std::string device_options;       ///< passed to open, e.g. "isa=avx2"
  Duration deadline = seconds(60);  ///< for each check
  std::string only;                 ///< run the checks whose name holds this; empty: all
};

/// `plugin`: what find_plugin takes. Forks: call it from a process of one thread.
PluginReport check_plugin(const std::string& plugin, const PluginCheckOptions& options = {});

}  // namespace infos
