// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/worker_process.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

#include "daemon/control/codec.h"
#include "daemon/runtime/worker_exit.h"
#include "topology/base/log.h"

namespace infos {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::size_t kReadBytes = 64u << 10;

Error system_error(const char* what) {
  return Error{ErrorCode::io, fmt::format("start of a worker: {}: {}", what, ::strerror(errno))};
}

}  // namespace

Result<std::shared_ptr<WorkerProcess>> WorkerProcess::start(asio::io_context& io,
                                                            const std::string& executable,
                                                            WorkerArgs args, Duration step_limit,
                                                            Callbacks callbacks) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return system_error("socketpair");
  UniqueFd ours(pair[0]);
  const UniqueFd theirs(pair[1]);
  StatusPage page = INFOS_TRY(StatusPage::create());
  args.socket_fd = kChildSocketFd;
  args.status_fd = kChildStatusFd;
  args.parent = ::getpid();
  Child::Options options{executable, {"infosd"}, theirs.get(), page.fd()};
  for (std::string& argument : to_argv(args)) options.argv.push_back(std::move(argument));
  Child child = INFOS_TRY(Child::spawn(options));
  UniqueFd watch(::fcntl(child.pidfd(), F_DUPFD_CLOEXEC, 0));
  if (!watch) return system_error("dup of the pidfd");
  std::shared_ptr<WorkerProcess> process(
      new WorkerProcess(io, std::move(child), std::move(ours), std::move(watch), std::move(page),
                        args.generation, step_limit, std::move(callbacks)));
  process->read_more();
  process->watch_end();
  return process;
}

WorkerProcess::WorkerProcess(asio::io_context& io, Child child, UniqueFd socket, UniqueFd watch,
                             StatusPage page, Generation generation, Duration step_limit,
                             Callbacks callbacks)
    : child_(std::move(child)),
      socket_(io),
      watch_(io, watch.release()),
      page_(std::move(page)),
      generation_(generation),
      frames_(generation),
      progress_(step_limit),
      callbacks_(std::move(callbacks)),
      read_buffer_(kReadBytes, '\0') {
  socket_.assign(asio::local::stream_protocol(), socket.release());
  socket_.non_blocking(true);
}

WorkerProcess::~WorkerProcess() = default;

void WorkerProcess::abandon() {
  callbacks_ = {};
  over_ = true;
  error_code ignored;
  socket_.close(ignored);
  watch_.close(ignored);
  child_.destroy();
}

void WorkerProcess::kill() { child_.kill(SIGKILL); }

bool WorkerProcess::moved(Time now) {
  const infos_status_page& page = *page_;
  ProgressSample sample;
  sample.beat = page.beat.load(std::memory_order_relaxed);
  sample.steps = page.steps.load(std::memory_order_relaxed);
  sample.loaded_bytes = page.loaded_bytes.load(std::memory_order_relaxed);
  sample.step_started.ns =
      static_cast<std::int64_t>(page.step_started_ns.load(std::memory_order_relaxed));
  sample.cpu_time = child_.cpu_time().value_or(Duration{0});
  return progress_.moved(now, sample);
}

// ---- reading ----

void WorkerProcess::read_more() {
  socket_.async_read_some(asio::buffer(read_buffer_),
                          [self = shared_from_this()](error_code error, std::size_t got) {
                            // The end of the stream is no news by itself: the pidfd tells the end
                            // of the process.
                            if (error || self->over_) return;
                            if (self->take(std::string_view(self->read_buffer_).substr(0, got)))
                              self->read_more();
                          });
}

/// False when the stream is useless.
bool WorkerProcess::take(std::string_view bytes) {
  frames_.append(bytes);
  while (callbacks_.said) {
    auto frame = frames_.next();
    if (frame.ok() && !frame->has_value()) return true;
    auto message =
        frame.ok() ? decode_from_worker(**frame) : Result<FromWorker>(std::move(frame).error());
    if (!message.ok()) {
      log_error("supervisor", "a worker's words make no sense; it is killed",
                {{"pid", child_.pid()}, {"why", message.error().message}});
      over_ = true;
      kill();
      return false;
    }
    callbacks_.said(*std::move(message));
  }
  return false;
}

// ---- writing ----

void WorkerProcess::send(const ToWorker& message, std::size_t unsent_bytes_max) {
  if (over_ || deaf_) return;
  append_frame(unsent_, generation_, encode(message));
  if (unsent_.size() > unsent_bytes_max) {
    log_error("supervisor", "a worker does not read what it is told; it is killed",
              {{"pid", child_.pid()}, {"unsent_bytes", unsent_.size()}});
    over_ = true;
    kill();
    return;
  }
  if (sending_.empty()) write_more();
}

void WorkerProcess::write_more() {
  sending_.swap(unsent_);
  asio::async_write(socket_, asio::buffer(sending_),
                    [self = shared_from_this()](error_code error, std::size_t) {
                      self->sending_.clear();
                      if (error)
                        self->deaf_ = true;
                      else if (!self->unsent_.empty())
                        self->write_more();
                    });
}

// ---- the end ----

void WorkerProcess::watch_end() {
  watch_.async_wait(asio::posix::stream_descriptor::wait_read,
                    [self = shared_from_this()](error_code error) {
                      if (!error) self->finish();
                    });
}

/// The process has ended: what it said before counts, then its end is told.
void WorkerProcess::finish() {
  const std::optional<ChildExit> exit = child_.try_reap();
  if (!exit) return watch_end();
  while (!over_) {
    error_code error;
    const std::size_t got = socket_.read_some(asio::buffer(read_buffer_), error);
    if (error || !take(std::string_view(read_buffer_).substr(0, got))) break;
  }
  over_ = true;
  error_code ignored;
  socket_.close(ignored);
  watch_.close(ignored);
  std::string how = exit->words();
  if (const std::string failure = page_.failure(); !failure.empty()) how += ": " + failure;
  const auto exited = std::move(callbacks_.exited);
  callbacks_ = {};
  if (exited) exited({std::move(how), exit->status == kExitPermanent});
}

}  // namespace infos
