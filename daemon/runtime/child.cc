// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/child.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include <utility>

extern "C" {  // glibc 2.36 does not say so itself
#include <sys/pidfd.h>
}

extern char** environ;

namespace infos {
namespace {

Error system_error(const char* what, int code) {
  const bool short_of = code == EAGAIN || code == ENOMEM || code == EMFILE || code == ENFILE;
  return Error{short_of ? ErrorCode::resource_exhausted : ErrorCode::io,
               fmt::format("start of a worker: {}: {}", what, ::strerror(code))};
}

struct FileActions {
  posix_spawn_file_actions_t value;
  FileActions() { INFOS_CHECK(::posix_spawn_file_actions_init(&value) == 0); }
  ~FileActions() { ::posix_spawn_file_actions_destroy(&value); }
};

struct Attributes {
  posix_spawnattr_t value;
  Attributes() { INFOS_CHECK(::posix_spawnattr_init(&value) == 0); }
  ~Attributes() { ::posix_spawnattr_destroy(&value); }
};

/// A copy of `fd` above the numbers that the child's descriptors get, so that moving one does not
/// overwrite the other.
UniqueFd high_copy(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, kChildStatusFd + 1)); }

/// The child begins with default signal actions and nothing blocked, whatever this process does
/// with signals.
int reset_signals(Attributes& attributes) {
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  int code = ::posix_spawnattr_setsigmask(&attributes.value, &none);
  if (code == 0) code = ::posix_spawnattr_setsigdefault(&attributes.value, &all);
  if (code == 0)
    code = ::posix_spawnattr_setflags(&attributes.value,
                                      POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  return code;
}

int set_files(FileActions& actions, int socket_fd, int status_fd) {
  int code =
      ::posix_spawn_file_actions_addopen(&actions.value, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (code == 0)
    code = ::posix_spawn_file_actions_adddup2(&actions.value, STDERR_FILENO, STDOUT_FILENO);
  if (code == 0)
    code = ::posix_spawn_file_actions_adddup2(&actions.value, socket_fd, kChildSocketFd);
  if (code == 0)
    code = ::posix_spawn_file_actions_adddup2(&actions.value, status_fd, kChildStatusFd);
  // Libraries open descriptors without CLOEXEC (accepted connections, for one): a worker must hold
  // none of them open.
  if (code == 0)
    code = ::posix_spawn_file_actions_addclosefrom_np(&actions.value, kChildStatusFd + 1);
  return code;
}

}  // namespace

std::string ChildExit::words() const {
  if (status) return fmt::format("exited with status {}", *status);
  return fmt::format("killed by signal {} ({})", signal, ::strsignal(signal));
}

Result<Child> Child::spawn(const Options& options) {
  const UniqueFd socket = high_copy(options.socket_fd);
  const UniqueFd status = high_copy(options.status_fd);
  if (!socket || !status) return system_error("dup", errno);
  FileActions actions;
  Attributes attributes;
  if (const int code = set_files(actions, socket.get(), status.get()))
    return system_error("file actions", code);
  if (const int code = reset_signals(attributes)) return system_error("attributes", code);

  std::vector<char*> argv;
  for (const std::string& argument : options.argv)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t pid = -1;
  if (const int code = ::posix_spawn(&pid, options.executable.c_str(), &actions.value,
                                     &attributes.value, argv.data(), environ))
    return system_error(options.executable.c_str(), code);
  // The pid cannot be recycled before we reap it.
  UniqueFd pidfd(::pidfd_open(pid, 0));
  if (!pidfd) {
    const int code = errno;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return system_error("pidfd_open", code);
  }
  ::fcntl(pidfd.get(), F_SETFD, FD_CLOEXEC);
  return Child(pid, std::move(pidfd));
}

Child& Child::operator=(Child&& other) noexcept {
  if (this != &other) {
    destroy();
    pid_ = other.pid_;
    pidfd_ = std::move(other.pidfd_);
  }
  return *this;
}

Child::~Child() { destroy(); }

void Child::destroy() {
  if (!pidfd_) return;
  kill(SIGKILL);
  // By pid, which is still ours: a pidfd that an event loop has made non-blocking would answer
  // EAGAIN.
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED) != 0 && errno == EINTR) {
  }
  pidfd_.reset();
}

void Child::kill(int signal) const {
  // ESRCH (it has ended) is the only failure that can happen, and what was wanted.
  if (pidfd_) ::pidfd_send_signal(pidfd_.get(), signal, nullptr, 0);
}

std::optional<ChildExit> Child::try_reap() {
  if (!pidfd_) return std::nullopt;
  siginfo_t info{};
  if (::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG) != 0 ||
      info.si_pid == 0)
    return std::nullopt;
  pidfd_.reset();
  ChildExit exit;
  if (info.si_code == CLD_EXITED)
    exit.status = info.si_status;
  else
    exit.signal = info.si_status;
  return exit;
}

std::optional<Duration> Child::cpu_time() const {
  clockid_t clock{};
  timespec used{};
  if (!pidfd_ || ::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &used) != 0)
    return std::nullopt;
  return Duration{static_cast<std::int64_t>(used.tv_sec) * 1'000'000'000 + used.tv_nsec};
}

}  // namespace infos
