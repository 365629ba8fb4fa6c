// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/daemon_child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace infos::cli {
namespace {

constexpr std::size_t kLineMax = 64u << 10;

/// In the child: becomes the program. Only calls that are safe after fork.
[[noreturn]] void become(const char* path, char* const* argv, int output, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);
  ::dup2(output, STDOUT_FILENO);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::execv(path, argv);
  const char message[] = "infos: cannot execute infosd\n";
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, message, sizeof message - 1);
  ::_exit(127);
}

}  // namespace

Result<DaemonChild> DaemonChild::start(const std::string& path,
                                       const std::vector<std::string>& arguments) {
  if (::access(path.c_str(), X_OK) != 0)
    return Error{ErrorCode::not_found,
                 fmt::format("{} is not there or not executable; it belongs beside infos", path)};
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0)
    return Error{ErrorCode::io, fmt::format("pipe: {}", std::strerror(errno))};
  std::vector<std::string> words{path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(path.c_str(), argv.data(), pipe[1], parent);
  ::close(pipe[1]);
  if (pid < 0) {
    ::close(pipe[0]);
    return Error{ErrorCode::io, fmt::format("fork: {}", std::strerror(errno))};
  }
  ::fcntl(pipe[0], F_SETFL, O_NONBLOCK);
  return DaemonChild(pid, pipe[0]);
}

DaemonChild::DaemonChild(DaemonChild&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      output_(std::exchange(other.output_, -1)),
      buffer_(std::move(other.buffer_)),
      ended_(other.ended_),
      ending_(std::move(other.ending_)) {}

DaemonChild::~DaemonChild() {
  if (output_ >= 0) ::close(output_);
  if (pid_ < 0 || ending_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::optional<std::string> DaemonChild::next_line() {
  while (true) {
    const std::size_t newline = buffer_.find('\n');
    if (newline != std::string::npos) {
      std::string line = buffer_.substr(0, newline);
      buffer_.erase(0, newline + 1);
      return line;
    }
    if (ended_ || buffer_.size() > kLineMax) return std::nullopt;
    std::array<char, 4096> bytes;
    const ssize_t n = ::read(output_, bytes.data(), bytes.size());
    if (n == 0) ended_ = true;
    if (n <= 0) return std::nullopt;
    buffer_.append(bytes.data(), static_cast<std::size_t>(n));
  }
}

void DaemonChild::signal(int number) const {
  if (pid_ > 0 && !ending_) ::kill(pid_, number);
}

std::optional<DaemonChild::Ending> DaemonChild::ending() {
  int status = 0;
  if (ending_ || ::waitpid(pid_, &status, WNOHANG) != pid_) return ending_;
  if (WIFEXITED(status))
    ending_ = Ending{fmt::format("exit status {}", WEXITSTATUS(status)), WEXITSTATUS(status)};
  else
    ending_ = Ending{fmt::format("signal {}", WTERMSIG(status)), 128 + WTERMSIG(status)};
  return ending_;
}

}  // namespace infos::cli
