// SPDX-License-Identifier: Apache-2.0
// A worker process for the supervisor's tests: serves with the fake engine, or misbehaves as its
// spec's source says.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "daemon/runtime/worker_args.h"
#include "daemon/runtime/worker_exit.h"
#include "daemon/runtime/worker_loop.h"
#include "tests/runtime/fake_engine.h"

namespace infos {
namespace {

int serve(const WorkerArgs& args, StatusPage& page) {
  WorkerChannel channel(UniqueFd(args.socket_fd), args.generation);
  test::FakeEngine engine;
  WorkerLoopOptions options;
  options.generation = args.generation;
  options.model = args.spec.model;
  options.beat_interval = milliseconds(5);
  options.core.kv_blocks = engine.kv_blocks();
  options.core.block_tokens = engine.block_tokens();
  options.core.max_context = engine.max_context();
  return channel.run(engine, options, page, nullptr) == WorkerLoopEnd::protocol_error
             ? kExitTransient
             : 0;
}

/// Reads and forgets everything that it is told, for ever.
int deaf(int socket) {
  char buffer[4096];
  while (::recv(socket, buffer, sizeof buffer, 0) > 0) {
  }
  return 0;
}

int run(const std::vector<std::string>& argv) {
  const WorkerArgs args = parse_worker_args(argv).value();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != args.parent) return 0;
  StatusPage page = StatusPage::open(UniqueFd(args.status_fd)).value();
  if (args.spec.source == "serve") return serve(args, page);
  if (args.spec.source == "deaf") return deaf(args.socket_fd);
  if (args.spec.source == "crash") return 3;
  if (args.spec.source == "permanent") {
    page.set_failure("weights.gguf: tensor 'x' is missing");
    return kExitPermanent;
  }
  if (args.spec.source == "garbage") {
    const std::string words(64, '\xee');
    if (::send(args.socket_fd, words.data(), words.size(), MSG_NOSIGNAL) < 0) return 4;
    return deaf(args.socket_fd);
  }
  return 5;
}

}  // namespace
}  // namespace infos

int main(int argc, char** argv) {
  return infos::run(std::vector<std::string>(argv + 1, argv + argc));
}
