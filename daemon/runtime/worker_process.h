// SPDX-License-Identifier: Apache-2.0
// One running worker process as the supervisor holds it: the child, its socket and its status page.
// Carries whole messages both ways and says when the process has ended, last words first. Runs on
// its io_context's thread. Never restarts.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "daemon/control/messages.h"
#include "daemon/runtime/child.h"
#include "daemon/runtime/frame.h"
#include "daemon/runtime/progress_watch.h"
#include "daemon/runtime/status_page.h"
#include "daemon/runtime/worker_args.h"

namespace infos {

/// How a process ended.
struct WorkerEnd {
  std::string how;         ///< in words, with what it gave as its reason
  bool permanent = false;  ///< trying again is pointless
};

/// Shared with the io_context's handlers, which end at unknown times.
class WorkerProcess : public std::enable_shared_from_this<WorkerProcess> {
 public:
  struct Callbacks {
    std::function<void(FromWorker)> said;
    std::function<void(WorkerEnd)> exited;  ///< once; nothing comes after it
  };
  /// `args` without descriptors and parent. Errors: io, resource_exhausted.
  static Result<std::shared_ptr<WorkerProcess>> start(boost::asio::io_context& io,
                                                      const std::string& executable,
                                                      WorkerArgs args, Duration step_limit,
                                                      Callbacks callbacks);
  ~WorkerProcess();

  void send(const ToWorker& message, std::size_t unsent_bytes_max);
  void kill();
  /// True when it moved since the last call.
  bool moved(Time now);
  /// No callback comes any more; kills and reaps.
  void abandon();

  pid_t pid() const { return child_.pid(); }
  const StatusPage& page() const { return page_; }

 private:
  WorkerProcess(boost::asio::io_context& io, Child child, UniqueFd socket, UniqueFd watch,
                StatusPage page, Generation generation, Duration step_limit, Callbacks callbacks);
  void read_more();
  void write_more();
  void watch_end();
  bool take(std::string_view bytes);
  void finish();

  Child child_;
  boost::asio::local::stream_protocol::socket socket_;
  boost::asio::posix::stream_descriptor watch_;
  StatusPage page_;
  Generation generation_;
  FrameReader frames_;
  ProgressWatch progress_;
  Callbacks callbacks_;
  std::string read_buffer_;
  std::string unsent_;   ///< waits for the write under way
  std::string sending_;  ///< empty: no write is under way
  bool deaf_ = false;    ///< it has closed its socket: what is sent is lost
  bool over_ = false;    ///< what it says is useless or ended
};

}  // namespace infos
