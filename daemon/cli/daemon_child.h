// SPDX-License-Identifier: Apache-2.0
// infosd as a child process of `infos up`: started in its own process group, told to end, never
// left behind.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "topology/base/result.h"

namespace infos::cli {

class DaemonChild {
 public:
  /// Starts `path` with its stdout in a pipe; it gets SIGTERM when this process dies. Errors: io.
  static Result<DaemonChild> start(const std::string& path,
                                   const std::vector<std::string>& arguments);
  DaemonChild(DaemonChild&& other) noexcept;
  DaemonChild& operator=(DaemonChild&&) = delete;
  ~DaemonChild();  ///< kills it if it still runs

  pid_t pid() const { return pid_; }
  /// The next whole line of its stdout that is there now, without waiting.
  std::optional<std::string> next_line();
  /// True when its stdout has ended.
  bool output_ended() const { return ended_; }
  /// For poll: readable when there is more output.
  int output_fd() const { return output_; }
  void signal(int number) const;
  /// How it ended ("exit status 1", "signal 9"), when it has; and whether well.
  struct Ending {
    std::string how;
    int status = 0;
  };
  std::optional<Ending> ending();

 private:
  DaemonChild(pid_t pid, int output) : pid_(pid), output_(output) {}
  pid_t pid_ = -1;
  int output_ = -1;
  std::string buffer_;
  bool ended_ = false;
  std::optional<Ending> ending_;
};

}  // namespace infos::cli
