// SPDX-License-Identifier: Apache-2.0
#include "devices/host/conformance/plugin_check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "devices/host/conformance/checks.h"
#include "topology/base/check.h"

namespace infos {

using conformance::Check;
using conformance::Verdict;
using Outcome = PluginCheckResult::Outcome;

namespace {

std::int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// The child: runs the check and writes one letter and the detail.
[[noreturn]] void run_child(const Check& check, const std::string& plugin,
                            const PluginCheckOptions& options, int out) {
  Verdict verdict;
  const auto found = find_plugin(plugin);
  if (!found.ok())
    verdict = conformance::fail(found.error().message);
  else
    verdict = check.run(**found, options.device_options);
  const char letter = verdict.outcome == Outcome::passed    ? 'p'
                      : verdict.outcome == Outcome::skipped ? 's'
                                                            : 'f';
  const std::string answer = letter + verdict.detail;
  const bool written =
      write(out, answer.data(), answer.size()) == static_cast<ssize_t>(answer.size());
  _exit(written ? 0 : 1);
}

/// Reads to the end, or until the deadline (then false).
bool read_all(int in, Duration deadline, std::string& text) {
  const std::int64_t until = now_ns() + deadline.ns;
  for (;;) {
    const std::int64_t left = until - now_ns();
    if (left <= 0) return false;
    pollfd waiting{in, POLLIN, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(left / 1'000'000 + 1));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    char buffer[4096];
    const ssize_t n = read(in, buffer, sizeof buffer);
    if (n <= 0) return true;
    text.append(buffer, static_cast<std::size_t>(n));
  }
}

PluginCheckResult run_check(const Check& check, const std::string& plugin,
                            const PluginCheckOptions& options) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {check.name, Outcome::failed, std::strerror(errno)};
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    return {check.name, Outcome::failed, std::strerror(errno)};
  }
  if (child == 0) run_child(check, plugin, options, ends[1]);
  close(ends[1]);
  std::string answer;
  const bool in_time = read_all(ends[0], options.deadline, answer);
  close(ends[0]);
  if (!in_time) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time)
    return {check.name, Outcome::failed,
            fmt::format("no end within {}", to_string(options.deadline))};
  if (WIFSIGNALED(status))
    return {check.name, Outcome::failed, fmt::format("crashed: {}", strsignal(WTERMSIG(status)))};
  if (answer.empty())
    return {check.name, Outcome::failed,
            fmt::format("ended the process with {}", WEXITSTATUS(status))};
  const Outcome outcome = answer[0] == 'p'   ? Outcome::passed
                          : answer[0] == 's' ? Outcome::skipped
                                             : Outcome::failed;
  return {check.name, outcome, answer.substr(1)};
}

}  // namespace

bool PluginReport::ok() const {
  for (const PluginCheckResult& check : checks)
    if (check.outcome == Outcome::failed) return false;
  return !checks.empty();
}

std::string PluginReport::text() const {
  std::string out;
  int counts[3] = {0, 0, 0};
  for (const PluginCheckResult& check : checks) {
    static constexpr const char* kWords[] = {"ok     ", "FAILED ", "skipped"};
    ++counts[static_cast<int>(check.outcome)];
    out += fmt::format("{} {}{}{}\n", kWords[static_cast<int>(check.outcome)], check.name,
                       check.detail.empty() ? "" : ": ", check.detail);
  }
  return out + fmt::format("{}: {} passed, {} failed, {} skipped\n", plugin, counts[0], counts[1],
                           counts[2]);
}

PluginReport check_plugin(const std::string& plugin, const PluginCheckOptions& options) {
  PluginReport report;
  report.plugin = plugin;
  std::vector<Check> checks = {{"the plugin loads and its table is whole",
                                [](const Plugin&, const std::string&) { return Verdict{}; }}};
  for (const auto& more :
       {conformance::table_checks(), conformance::artifact_checks(), conformance::execute_checks(),
        conformance::kv_checks(), conformance::group_checks()})
    checks.insert(checks.end(), more.begin(), more.end());
  for (const Check& check : checks) {
    if (check.name.find(options.only) == std::string::npos) continue;
    report.checks.push_back(run_check(check, plugin, options));
    if (report.checks.size() == 1 && options.only.empty() && !report.ok())
      break;  // the others could only repeat it
  }
  return report;
}

}  // namespace infos
