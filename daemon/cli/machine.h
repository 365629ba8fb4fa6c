// SPDX-License-Identifier: Apache-2.0
// What this machine and its limits are, read from /proc, /sys and the kernel: the facts behind
// `infos doctor`. Never judges and never changes anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topology/base/units.h"

namespace infos::cli {

/// Facts that could not be read are absent.
struct MachineFacts {
  std::string cpu_model;
  std::vector<std::string>
      cpu_features;  ///< of avx2, fma, f16c, avx512f, avx512bw, avx512vnni, avx_vnni, amx_int8
  std::uint32_t cores_online = 0;
  std::uint32_t cores_allowed = 0;    ///< by affinity
  std::optional<double> cores_quota;  ///< by the control group
  Bytes memory_total;
  Bytes memory_available;
  std::optional<Bytes> memory_limit;  ///< by the control group
  std::string huge_pages;             ///< "always", "madvise", "never", ""
  std::uint64_t open_files = 0, open_files_hard = 0;
  std::optional<Bytes> locked_memory;       ///< absent: unlimited
  std::optional<Bytes> shared_memory_free;  ///< of /dev/shm
  std::string clock_source;
  std::int64_t unix_time = 0;  ///< s
  std::string kernel;
};
MachineFacts read_machine();

/// The number in a control group file: "max" and unreadable are absent. Pure.
std::optional<std::uint64_t> parse_limit(const std::string& text);
/// Cores of "QUOTA PERIOD" (cpu.max): "max 100000" is absent. Pure.
std::optional<double> parse_cpu_max(const std::string& text);
/// The word in brackets: "always [madvise] never" gives "madvise". Pure.
std::string chosen_word(const std::string& text);

}  // namespace infos::cli
