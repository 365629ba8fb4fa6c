// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>

namespace infos::cli {
namespace {

constexpr Bytes kMib{1 << 20};
constexpr std::int64_t kBuilt = 1735689600;  // 2025-01-01: no clock is earlier

Finding judge_cpu(const MachineFacts& facts) {
  const auto has = [&](const char* feature) {
    return std::find(facts.cpu_features.begin(), facts.cpu_features.end(), feature) !=
           facts.cpu_features.end();
  };
  std::string features;
  for (const std::string& feature : facts.cpu_features)
    features += (features.empty() ? "" : " ") + feature;
  Finding out{"cpu", Health::ok,
              fmt::format("{} ({})", facts.cpu_model.empty() ? "unknown model" : facts.cpu_model,
                          features.empty() ? "no vector extension known to infos" : features),
              ""};
  if (!has("avx2") || !has("fma") || !has("f16c")) {
    out.health = Health::warn;
    out.advice =
        "works through plain C++ kernels, many times slower; use a CPU with AVX2, FMA and F16C";
  }
  return out;
}

Finding judge_cores(const MachineFacts& facts) {
  Finding out{
      "cores", Health::ok,
      fmt::format("{} online, {} allowed by affinity", facts.cores_online, facts.cores_allowed),
      ""};
  if (facts.cores_quota)
    out.seen += fmt::format(", {:.2g} by the control group", *facts.cores_quota);
  if (facts.cores_quota && *facts.cores_quota + 0.01 < facts.cores_allowed) {
    out.health = Health::warn;
    out.advice = fmt::format("threads beyond the quota are throttled: start with --threads {}",
                             std::max(1, static_cast<int>(*facts.cores_quota)));
  } else if (facts.cores_allowed < facts.cores_online) {
    out.advice = "fewer cores than the machine has, by affinity; is it meant so?";
  }
  return out;
}

Finding judge_memory(const MachineFacts& facts) {
  Bytes free = facts.memory_available;
  Finding out{"memory", Health::ok,
              fmt::format("{} available of {}", to_human(free), to_human(facts.memory_total)), ""};
  if (facts.memory_limit && *facts.memory_limit < facts.memory_total) {
    out.seen += fmt::format(", limit of the control group {}", to_human(*facts.memory_limit));
    free = std::min(free, *facts.memory_limit);
  }
  if (free < kMib * 256) {
    out.health = Health::fail;
    out.advice = "too little even for the demo model: end other programs or raise the limit";
  } else if (free < kMib * 2048) {
    out.health = Health::warn;
    out.advice = "enough for models below about a billion weights in 8 bits";
  }
  return out;
}

Finding judge_huge_pages(const MachineFacts& facts) {
  Finding out{"huge pages", Health::ok, facts.huge_pages.empty() ? "unknown" : facts.huge_pages,
              ""};
  if (facts.huge_pages == "never") {
    out.health = Health::warn;
    out.advice = "a few percent slower: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
  }
  return out;
}

Finding judge_open_files(const MachineFacts& facts) {
  Finding out{"open files", Health::ok,
              fmt::format("{} (hard limit {})", facts.open_files, facts.open_files_hard), ""};
  if (facts.open_files < 256) {
    out.health = Health::fail;
    out.advice = "too few for a server: ulimit -n 65536";
  } else if (facts.open_files < 4096) {
    out.health = Health::warn;
    out.advice = fmt::format("bounds the clients at once to about {}: ulimit -n 65536",
                             facts.open_files - 100);
  }
  return out;
}

Finding judge_shared_memory(const MachineFacts& facts) {
  if (!facts.shared_memory_free)
    return {"shared memory", Health::warn, "/dev/shm cannot be read", "mount a tmpfs there"};
  Finding out{"shared memory", Health::ok,
              fmt::format("{} free in /dev/shm", to_human(*facts.shared_memory_free)), ""};
  if (*facts.shared_memory_free < kMib * 16) {
    out.health = Health::warn;
    out.advice = "too little to move KV between workers; in a container: --shm-size=1g";
  }
  return out;
}

Finding judge_clock(const MachineFacts& facts) {
  Finding out{"clock", Health::ok,
              fmt::format("source {}", facts.clock_source.empty() ? "unknown" : facts.clock_source),
              ""};
  if (facts.unix_time < kBuilt) {
    out.health = Health::fail;
    out.seen += ", date before 2025";
    out.advice = "set the date: certificates and logs need it";
  } else if (facts.clock_source == "hpet" || facts.clock_source == "acpi_pm" ||
             facts.clock_source == "jiffies") {
    out.health = Health::warn;
    out.advice =
        "reading it is slow (microseconds); a virtual machine should give tsc or kvm-clock";
  }
  return out;
}

}  // namespace

const char* to_string(Health health) {
  switch (health) {
    case Health::ok:
      return "ok";
    case Health::warn:
      return "warn";
    case Health::fail:
      return "fail";
  }
  return "unknown";
}

std::vector<Finding> judge_machine(const MachineFacts& facts) {
  return {judge_cpu(facts),        judge_cores(facts),      judge_memory(facts),
          judge_huge_pages(facts), judge_open_files(facts), judge_shared_memory(facts),
          judge_clock(facts)};
}

}  // namespace infos::cli
