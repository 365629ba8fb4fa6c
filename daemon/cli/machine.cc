// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <fstream>
#include <sstream>

namespace infos::cli {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::string text(1 << 20, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  return text;
}

std::string first_line(const std::string& path) {
  const std::string text = read_file(path);
  return text.substr(0, text.find('\n'));
}

/// The value of the first "key : value" line.
std::string field(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

/// Folder of this process's control group, version 2; or "".
std::string control_group() {
  std::istringstream lines(read_file("/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("0::")) return "/sys/fs/cgroup" + line.substr(3);
  return "";
}

/// A control group limit is the smallest on the way up to the root.
template <typename T, typename Parse>
std::optional<T> smallest_limit(std::string folder, const std::string& file, Parse parse) {
  std::optional<T> out;
  while (folder.starts_with("/sys/fs/cgroup")) {
    const std::optional<T> here = parse(first_line(folder + "/" + file));
    if (here && (!out || *here < *out)) out = here;
    if (folder == "/sys/fs/cgroup") break;
    folder.resize(folder.find_last_of('/'));
  }
  return out;
}

Bytes meminfo(const std::string& text, const std::string& key) {
  const std::optional<std::uint64_t> kib =
      parse_limit(field(text, key).substr(0, field(text, key).find(' ')));
  return Bytes{kib.value_or(0) << 10};
}

void read_limits(MachineFacts& facts) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0)
    facts.open_files = limit.rlim_cur, facts.open_files_hard = limit.rlim_max;
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    facts.locked_memory = Bytes{limit.rlim_cur};
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0)
    facts.shared_memory_free = Bytes{std::uint64_t{shm.f_bavail} * shm.f_frsize};
}

void read_cores(MachineFacts& facts) {
  const std::string cpuinfo = read_file("/proc/cpuinfo");
  facts.cpu_model = field(cpuinfo, "model name");
  std::istringstream words(field(cpuinfo, "flags"));
  for (std::string word; words >> word;)
    for (const char* known :
         {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx_vnni", "amx_int8"})
      if (word == known) facts.cpu_features.push_back(word);
  facts.cores_online = static_cast<std::uint32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  facts.cores_allowed = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0
                            ? static_cast<std::uint32_t>(CPU_COUNT(&allowed))
                            : facts.cores_online;
}

}  // namespace

std::optional<std::uint64_t> parse_limit(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_cpu_max(const std::string& text) {
  const std::size_t space = text.find(' ');
  if (space == std::string::npos) return std::nullopt;
  const auto quota = parse_limit(text.substr(0, space));
  const auto period = parse_limit(text.substr(space + 1));
  if (!quota || !period || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::string chosen_word(const std::string& text) {
  const std::size_t open = text.find('[');
  const std::size_t close = text.find(']');
  return open == std::string::npos || close == std::string::npos || close < open
             ? ""
             : text.substr(open + 1, close - open - 1);
}

MachineFacts read_machine() {
  MachineFacts facts;
  read_cores(facts);
  read_limits(facts);
  const std::string group = control_group();
  facts.cores_quota = smallest_limit<double>(group, "cpu.max", parse_cpu_max);
  const auto bytes = smallest_limit<std::uint64_t>(group, "memory.max", parse_limit);
  if (bytes) facts.memory_limit = Bytes{*bytes};
  const std::string memory = read_file("/proc/meminfo");
  facts.memory_total = meminfo(memory, "MemTotal");
  facts.memory_available = meminfo(memory, "MemAvailable");
  facts.huge_pages = chosen_word(first_line("/sys/kernel/mm/transparent_hugepage/enabled"));
  facts.clock_source =
      first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  facts.unix_time = std::time(nullptr);
  utsname name{};
  if (::uname(&name) == 0) facts.kernel = name.release;
  return facts;
}

}  // namespace infos::cli
