// SPDX-License-Identifier: Apache-2.0
// infosd: the daemon of one node. `infosd worker` (hidden) is a worker process. Main owns the one
// event loop and turns signals into an orderly end: the first drains, the second ends at once.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "daemon/infosd/node.h"
#include "daemon/infosd/options.h"
#include "daemon/infosd/worker_main.h"
#include "topology/base/log.h"

namespace infos {
namespace {

namespace asio = boost::asio;

class Daemon {
 public:
  explicit Daemon(InfosdOptions options)
      : signals_(io_, SIGINT, SIGTERM), node_(std::make_unique<Node>(io_, std::move(options))) {}

  int run() {
    wait_for_signal();
    const Status started = node_->start();
    if (!started.ok()) {
      std::fprintf(stderr, "infosd: %s\n", started.error().message.c_str());
      return 1;
    }
    node_->on_shut_down_wish([this] { shut_down(); });
    std::printf("%s\n", node_->ready_line().c_str());
    std::fflush(stdout);
    io_.run();
    node_.reset();
    return status_;
  }

 private:
  void wait_for_signal() {
    signals_.async_wait([this](boost::system::error_code error, int signal) {
      if (error) return;
      if (ending_) {
        log_warn("infosd", "a second signal: ends at once", {{"signal", signal}});
        status_ = 128 + signal;
        return io_.stop();
      }
      shut_down();
      wait_for_signal();
    });
  }

  void shut_down() {
    if (ending_) return;
    ending_ = true;
    node_->shut_down([this] { io_.stop(); });
  }

  asio::io_context io_{1};
  asio::signal_set signals_;
  std::unique_ptr<Node> node_;
  bool ending_ = false;
  int status_ = 0;
};

int serve(int argc, char** argv) {
  auto options = parse_infosd_options(argc, argv);
  if (!options.ok()) {
    std::fprintf(stderr, "infosd: %s\n", options.error().message.c_str());
    return 2;
  }
  if (options->ask == InfosdOptions::Ask::help) return std::fputs(infosd_help().c_str(), stdout), 0;
  if (options->ask == InfosdOptions::Ask::version) return std::puts("infosd " INFOS_VERSION), 0;
  log_configure(options->log_level, options->log_format);
  ::signal(SIGPIPE, SIG_IGN);
  return Daemon(*std::move(options)).run();
}

}  // namespace
}  // namespace infos

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "worker")
    return infos::worker_main(std::vector<std::string>(argv + 1, argv + argc));
  return infos::serve(argc, argv);
}
