// SPDX-License-Identifier: Apache-2.0
#include "transports/bench/bench_peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <sstream>

namespace infos::bench {
namespace {

constexpr double kSpinSeconds = 50e-6;

[[noreturn]] void serve(const MakeTransport& make, std::uint64_t bytes, int from, int to) {
  const auto say = [&](const std::string& text) {
    if (write(to, text.data(), text.size()) < 0) _exit(1);
    close(to);
  };
  {
    auto made = make();
    std::span<std::byte> memory;
    const auto region = made.ok() ? (*made)->allocate(bytes, memory) : made.error();
    if (!region.ok()) {
      say("!" + region.error().message);
      _exit(1);
    }
    Transport& transport = **made;
    std::memset(memory.data(), 0x5A, memory.size());
    const auto read = transport.grant(*region, 0, bytes, Access::read);
    const auto write = transport.grant(*region, 0, bytes, Access::write);
    if (!read.ok() || !write.ok()) _exit(1);
    say(transport.address() + "\n" + transport.key(*read) + "\n" + transport.key(*write) + "\n");
    while (true) {
      if (transport.progress() > 0 || !transport.arm()) continue;
      std::array<pollfd, 2> waits{pollfd{transport.wait_fd(), POLLIN, 0}, {from, POLLIN, 0}};
      poll(waits.data(), waits.size(), 5);
      if (waits[1].revents != 0) break;
    }
  }
  _exit(0);
}

}  // namespace

Result<std::unique_ptr<BenchPeer>> BenchPeer::start(const MakeTransport& make,
                                                    std::uint64_t bytes) {
  std::array<int, 2> in{}, out{};
  INFOS_CHECK(pipe2(in.data(), O_CLOEXEC) == 0);
  INFOS_CHECK(pipe2(out.data(), O_CLOEXEC) == 0);
  std::unique_ptr<BenchPeer> peer(new BenchPeer);
  const pid_t parent = getpid();
  peer->pid_ = fork();
  if (peer->pid_ < 0) return Error{ErrorCode::resource_exhausted, "cannot fork"};
  if (peer->pid_ == 0) {
    close(in[1]);
    close(out[0]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    serve(make, bytes, in[0], out[1]);
  }
  close(in[0]);
  close(out[1]);
  peer->to_ = in[1];
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = read(out[0], buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(got));
  close(out[0]);
  if (text.starts_with('!')) return Error{ErrorCode::unavailable, text.substr(1)};
  std::istringstream lines(text);
  if (!std::getline(lines, peer->address_) || !std::getline(lines, peer->read_key_) ||
      !std::getline(lines, peer->write_key_))
    return Error{ErrorCode::unavailable, "the peer process did not come up"};
  return peer;
}

BenchPeer::~BenchPeer() {
  if (to_ >= 0) close(to_);
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_seconds(pid_t pid) {
  clockid_t clock{};
  timespec used{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

bool wait_until(Transport& transport, Spin spin, const std::function<bool()>& done) {
  const double spin_seconds = spin == Spin::brief ? kSpinSeconds : 0;
  const double limit = seconds_now() + 60;
  double spin_until = seconds_now() + spin_seconds;
  while (!done()) {
    const double now = seconds_now();
    if (transport.progress() > 0) {
      spin_until = now + spin_seconds;
      continue;
    }
    if (now > limit) return false;
    if (now < spin_until || !transport.arm()) continue;
    pollfd wait{transport.wait_fd(), POLLIN, 0};
    poll(&wait, 1, 5);
    spin_until = seconds_now() + spin_seconds;
  }
  return true;
}

}  // namespace infos::bench
