// SPDX-License-Identifier: Apache-2.0
#include "transports/bench/perftest.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "transports/bench/bench_peer.h"

namespace infos::bench {
namespace {

constexpr const char* kTool = "ucx_perftest";

bool installed() {
  std::istringstream path(std::getenv("PATH") != nullptr ? std::getenv("PATH") : "/usr/bin");
  for (std::string folder; std::getline(path, folder, ':');)
    if (access((folder + "/" + kTool).c_str(), X_OK) == 0) return true;
  return false;
}

/// A port that was free just now.
int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool ok = bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(fd);
  return ok ? ntohs(address.sin_port) : 0;
}

pid_t start(std::vector<std::string> words, const std::string& transports, int output) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setenv("UCX_TLS", transports.c_str(), 1);
  setenv("UCX_LOG_LEVEL", "error", 1);
  setenv("UCX_NET_DEVICES", "all", 1);
  const int null = open("/dev/null", O_RDWR);
  dup2(null, 0);
  dup2(output >= 0 ? output : null, 1);
  dup2(null, 2);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(kTool, arguments.data());
  _exit(127);
}

/// The last line that the tool prints with -f: iterations, latencies (3), bandwidths (2) in MB/s
/// of 2^20, rates (2).
Result<double> rate_in(const std::string& text) {
  std::istringstream lines(text);
  double rate = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<double> numbers;
    for (double number = 0; words >> number;) numbers.push_back(number);
    if (numbers.size() >= 6) rate = numbers[numbers.size() - 3] * 1048576;
  }
  if (rate <= 0) return Error{ErrorCode::io, std::string(kTool) + " gave no figure"};
  return rate;
}

}  // namespace

Result<double> perftest_rate(const PerftestOptions& options) {
  if (!installed()) return Error{ErrorCode::not_found, std::string(kTool) + " is not installed"};
  const std::string port = std::to_string(free_port());
  const pid_t server = start({kTool, "-p", port}, options.transports, -1);
  std::array<int, 2> out{};
  INFOS_CHECK(pipe2(out.data(), O_CLOEXEC) == 0);
  std::string text;
  for (int attempt = 0; attempt < 20 && text.empty(); ++attempt) {  // until the server listens
    poll(nullptr, 0, 100);
    const pid_t client = start(
        {kTool, "127.0.0.1", "-p", port, "-t", options.test, "-s", std::to_string(options.bytes),
         "-n", std::to_string(options.iterations), "-w", "2", "-f"},
        options.transports, out[1]);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    const double limit = seconds_now() + 60;
    int status = 0;
    std::array<char, 4096> buffer{};
    bool running = true;
    while (running && seconds_now() < limit) {
      running = waitpid(client, &status, WNOHANG) == 0;
      pollfd wait{out[0], POLLIN, 0};
      if (running) poll(&wait, 1, 20);
      for (ssize_t got = 0; (got = read(out[0], buffer.data(), buffer.size())) > 0;)
        text.append(buffer.data(), static_cast<std::size_t>(got));
    }
    if (running) {
      kill(client, SIGKILL);
      waitpid(client, nullptr, 0);
      break;
    }
    if (status != 0) text.clear();
  }
  close(out[0]);
  close(out[1]);
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  return rate_in(text);
}

}  // namespace infos::bench
