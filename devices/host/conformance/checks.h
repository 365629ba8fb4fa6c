// SPDX-License-Identifier: Apache-2.0
// The single checks of the conformance suite. Each runs in a process of its own and opens what it
// needs.
#pragma once

#include <string>
#include <vector>

#include "devices/host/conformance/plugin_check.h"
#include "devices/host/plugin.h"

namespace infos::conformance {

struct Verdict {
  PluginCheckResult::Outcome outcome = PluginCheckResult::Outcome::passed;
  std::string detail;
};
inline Verdict pass() { return {}; }
inline Verdict fail(std::string why) {
  return {PluginCheckResult::Outcome::failed, std::move(why)};
}
inline Verdict skip(std::string why) {
  return {PluginCheckResult::Outcome::skipped, std::move(why)};
}

struct Check {
  std::string name;
  Verdict (*run)(const Plugin& plugin, const std::string& device_options);
};

std::vector<Check> table_checks();     ///< versions, nulls, description, lifecycle
std::vector<Check> execute_checks();   ///< results against the reference, batches, deadlines
std::vector<Check> kv_checks();        ///< what the host may ask of a pool and of a layer's KV
std::vector<Check> group_checks();     ///< ranks that compute together
std::vector<Check> artifact_checks();  ///< compile, serialise, load

}  // namespace infos::conformance

/// Yields the value of a Result, or fails the check with its message.
#define INFOS_CHECK_OK(expression)                                     \
  ({                                                                   \
    auto infos_result = (expression);                                  \
    if (!infos_result.ok()) return fail(infos_result.error().message); \
    std::move(infos_result).value();                                   \
  })
