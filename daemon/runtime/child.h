// SPDX-License-Identifier: Apache-2.0
// Starts a worker process with exactly two inherited descriptors, and owns its pidfd: signals and
// waits through it, so a recycled pid is never hit. A child that was not reaped is killed and
// reaped by the destructor: no zombie is left. Call spawn on a thread that lives as long as the
// process: workers die with the thread that started them.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "daemon/runtime/unique_fd.h"
#include "topology/base/result.h"
#include "topology/base/units.h"

namespace infos {

/// Where the two descriptors are in the child.
constexpr int kChildSocketFd = 3;
constexpr int kChildStatusFd = 4;

/// How a process ended.
struct ChildExit {
  std::optional<int> status;  ///< of exit(); nothing: a signal ended it
  int signal = 0;
  std::string words() const;  ///< "exited with status 1", "killed by signal 9 (Killed)"
};

class Child {
 public:
  struct Options {
    std::string executable;         ///< path
    std::vector<std::string> argv;  ///< argv[0] first
    int socket_fd = -1;             ///< becomes kChildSocketFd
    int status_fd = -1;             ///< becomes kChildStatusFd
  };
  /// stdin is /dev/null; stdout and stderr are ours (stdout goes to stderr); everything else is
  /// closed. Errors: io, resource_exhausted.
  static Result<Child> spawn(const Options& options);
  Child(Child&& other) noexcept = default;
  Child& operator=(Child&& other) noexcept;
  ~Child();

  pid_t pid() const { return pid_; }
  /// Readable when the process has ended.
  int pidfd() const { return pidfd_.get(); }
  void kill(int signal) const;
  /// Reaps. Nothing: it still runs.
  std::optional<ChildExit> try_reap();
  /// Processor time it has used so far; nothing when it cannot be told.
  std::optional<Duration> cpu_time() const;
  /// Kills and reaps, if that has not been done.
  void destroy();

 private:
  Child(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  pid_t pid_ = -1;
  UniqueFd pidfd_;  ///< empty: reaped
};

}  // namespace infos
