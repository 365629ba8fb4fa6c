// SPDX-License-Identifier: Apache-2.0
// Worker processes of a test on one host, and what their daemons would do for them: carry letters
// between them and say who is gone. The child is the test program itself, run as
// `PROGRAM worker ...`.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/codec.h"
#include "daemon/control/codec_kv.h"
#include "daemon/control/messages.h"
#include "daemon/runtime/child.h"
#include "daemon/runtime/frame.h"
#include "daemon/runtime/status_page.h"
#include "daemon/runtime/worker_args.h"

namespace infos::test {

/// What became of a request at one worker.
struct Served {
  std::vector<TokenId> tokens;
  std::optional<SequenceEnd> end;
};

class PairedWorker {
 public:
  PairedWorker(WorkerRef ref, const std::string& source,
               const std::map<std::string, std::string>& options)
      : ref_(ref), page_(StatusPage::create().value()), frames_(ref.generation) {
    int pair[2];
    INFOS_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    ours_ = UniqueFd(pair[0]);
    const UniqueFd theirs(pair[1]);
    WorkerArgs args;
    args.socket_fd = kChildSocketFd;
    args.status_fd = kChildStatusFd;
    args.parent = ::getpid();
    args.generation = ref.generation;
    args.spec.worker = ref.worker;
    args.spec.model = "m";
    args.spec.source = source;
    args.spec.device = "cpu";
    args.spec.options = options;
    args.log_level = "warn";
    Child::Options start{"/proc/self/exe", to_argv(args), theirs.get(), page_.fd()};
    start.argv.insert(start.argv.begin(), "worker_pair");
    child_.emplace(Child::spawn(start).value());
  }

  const WorkerRef& ref() const { return ref_; }
  int fd() const { return ours_.get(); }
  bool is_up() const { return static_cast<bool>(ours_); }
  void signal(int number) { child_->kill(number); }

  void send(const ToWorker& message) {
    std::string frame;
    append_frame(frame, ref_.generation, encode(message));
    for (std::string_view rest = frame; ours_ && !rest.empty();) {
      const ssize_t put = ::send(ours_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
      if (put <= 0) return;
      rest.remove_prefix(static_cast<std::size_t>(put));
    }
  }

  /// What has come; blocks for more when there is nothing. Empty: the stream has ended.
  std::vector<FromWorker> receive() {
    std::vector<FromWorker> out;
    std::vector<char> buffer(64 << 10);
    const ssize_t got = ::recv(ours_.get(), buffer.data(), buffer.size(), 0);
    if (got <= 0) {
      ours_.reset();
      return out;
    }
    frames_.append({buffer.data(), static_cast<std::size_t>(got)});
    while (true) {
      auto frame = frames_.next();
      INFOS_CHECK(frame.ok());
      if (!frame->has_value()) return out;
      out.push_back(decode_from_worker(**frame).value());
    }
  }

  bool ready = false;
  std::map<RequestId, Served> served;
  std::vector<FetchStat> fetches;

 private:
  WorkerRef ref_;
  StatusPage page_;
  UniqueFd ours_;
  FrameReader frames_;
  std::optional<Child> child_;
};

/// The daemons' part. One thread.
class Workers {
 public:
  PairedWorker& add(std::uint64_t id, const std::string& source,
                    const std::map<std::string, std::string>& options) {
    workers_.push_back(std::make_unique<PairedWorker>(WorkerRef{{id}, {1}}, source, options));
    return *workers_.back();
  }

  /// Sees every letter before it is delivered; false: it is lost.
  std::function<bool(const KvLetter&, const KvMessage&)> on_letter;

  /// Carries words until `done`. False: all streams ended, or nothing came for half a minute.
  bool run_until(const std::function<bool()>& done) {
    while (!done()) {
      std::vector<pollfd> fds;
      for (const auto& w : workers_)
        if (w->is_up()) fds.push_back({w->fd(), POLLIN, 0});
      if (fds.empty() || ::poll(fds.data(), fds.size(), 30'000) <= 0) return false;
      for (const auto& w : workers_)
        for (const pollfd& fd : fds)
          if (w->is_up() && fd.fd == w->fd() && fd.revents != 0) hear(*w);
    }
    return true;
  }
  bool run_until_ready() {
    return run_until([this] {
      for (const auto& w : workers_)
        if (!w->ready) return false;
      return true;
    });
  }

 private:
  void hear(PairedWorker& from) {
    std::vector<FromWorker> said = from.receive();
    if (!from.is_up())
      for (const auto& w : workers_)
        if (w.get() != &from) w->send(PeerGone{from.ref()});
    for (FromWorker& message : said) {
      if (std::holds_alternative<WorkerReady>(message)) from.ready = true;
      if (auto* letter = std::get_if<KvLetter>(&message)) deliver(from, std::move(*letter));
      if (auto* report = std::get_if<StepReport>(&message)) take(from, *report);
    }
  }
  void deliver(const PairedWorker& from, KvLetter letter) {
    letter.from = from.ref();
    if (on_letter && !on_letter(letter, decode_kv_message(letter.body).value())) return;
    for (const auto& w : workers_)
      if (w->ref() == letter.to) w->send(letter);
  }
  static void take(PairedWorker& from, const StepReport& report) {
    for (const TokenOut& t : report.tokens) {
      std::vector<TokenId>& tokens = from.served[t.request].tokens;
      INFOS_CHECK(t.index == tokens.size());
      tokens.push_back(t.sampled.token);
    }
    for (const SequenceEnd& end : report.ended) from.served[end.request].end = end;
    for (const FetchStat& stat : report.fetches) from.fetches.push_back(stat);
  }

  std::vector<std::unique_ptr<PairedWorker>> workers_;
};

}  // namespace infos::test
