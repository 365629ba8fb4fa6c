// SPDX-License-Identifier: Apache-2.0
// Goal: worker processes are started, watched, replaced and ended as AgentCore wishes, and nothing
// of them is left behind. Method: real processes (fake_worker), killed and stopped from outside;
// the event loop is turned until a condition holds.
#include "daemon/runtime/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include <boost/asio/io_context.hpp>

#include "daemon/runtime/unique_fd.h"
#include "tests/runtime/fake_engine.h"

extern "C" {
#include <sys/pidfd.h>
}

namespace infos {
namespace {

using testing::HasSubstr;

struct Listener final : WorkerListener {
  void worker_up(WorkerId worker, Generation generation, const WorkerReady& ready) override {
    up[worker] = generation;
    models[worker] = ready.model;
  }
  void worker_down(WorkerId worker, Generation generation, const std::string& why) override {
    EXPECT_EQ(up[worker], generation);
    up.erase(worker);
    downs.push_back(why);
  }
  void worker_said(WorkerId, Generation, StepReport report) override {
    for (const TokenOut& token : report.tokens)
      tokens[token.request].push_back(token.sampled.token);
    for (const SequenceEnd& end : report.ended) ended.insert(end.request);
  }
  std::map<WorkerId, Generation> up;
  std::map<WorkerId, std::string> models;
  std::vector<std::string> downs;
  std::map<RequestId, std::vector<TokenId>> tokens;
  std::set<RequestId> ended;
};

WorkerSpec spec(std::uint64_t worker, const std::string& behaviour) {
  return WorkerSpec{WorkerId{worker}, "m" + std::to_string(worker), behaviour, "cpu", {}};
}

SupervisorOptions quick_options() {
  SupervisorOptions options;
  options.executable = INFOS_FAKE_WORKER;
  options.agent.backoff_first = milliseconds(1);
  options.agent.backoff_max = milliseconds(4);
  options.log_level = "warn";
  return options;
}

struct Stage {
  explicit Stage(const SupervisorOptions& options = quick_options())
      : supervisor(io, options, listener) {}

  /// Turns the loop until it holds. A condition that never holds is the test's time limit.
  void until(const std::function<bool()>& holds) {
    while (!holds())
      ASSERT_GT(io.run_one_for(std::chrono::seconds(60)), 0u) << "nothing happens any more";
  }
  bool serves(std::uint64_t worker, std::uint32_t generation) const {
    const auto found = listener.up.find(WorkerId{worker});
    return found != listener.up.end() && found->second == Generation{generation};
  }
  void stop() {
    bool stopped = false;
    supervisor.stop([&] { stopped = true; });
    until([&] { return stopped; });
  }
  std::int64_t pid() const { return supervisor.workers().at(0).pid; }
  void submit(std::uint64_t request, std::uint32_t max_new) {
    Submit wish;
    wish.request = RequestId{request};
    wish.attempt = Attempt{1};
    wish.tokens = {1, 2, 3};
    wish.prompt_tokens = 3;
    wish.max_new_tokens = max_new;
    supervisor.send({WorkerId{1}, listener.up.at(WorkerId{1}), wish});
  }

  boost::asio::io_context io;
  Listener listener;
  Supervisor supervisor;
};

std::set<std::string> descriptors(std::int64_t pid) {
  std::set<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd"))
    names.insert(entry.path().filename());
  return names;
}

std::vector<TokenId> expected_tokens(std::size_t count) {
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(test::fake_token(3 + i));
  return tokens;
}

TEST(Supervisor, Workers_ServeAndAnswer) {
  Stage run;
  run.supervisor.set_desired({spec(1, "serve"), spec(2, "serve")});
  run.until([&] { return run.serves(1, 1) && run.serves(2, 1); });
  EXPECT_EQ(run.listener.models[WorkerId{2}], "m2");
  run.submit(9, 30);
  run.until([&] { return run.listener.ended.contains(RequestId{9}); });
  EXPECT_EQ(run.listener.tokens[RequestId{9}], expected_tokens(30));
  const std::vector<WorkerRow> rows = run.supervisor.workers();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].status.phase, "serving");
  EXPECT_EQ(rows[0].phase, WorkerPhase::serving);
  EXPECT_GT(rows[0].steps, 0u);
  run.stop();
  EXPECT_TRUE(run.listener.up.empty());
}

TEST(Supervisor, Stop_LetsRunningSequencesEnd) {
  Stage run;
  run.supervisor.set_desired({spec(1, "serve")});
  run.until([&] { return run.serves(1, 1); });
  run.submit(1, 500);
  run.stop();
  EXPECT_EQ(run.listener.tokens[RequestId{1}], expected_tokens(500));
}

TEST(Supervisor, KilledWorker_ComesBackAsTheNextGeneration) {
  Stage run;
  run.supervisor.set_desired({spec(1, "serve")});
  run.until([&] { return run.serves(1, 1); });
  ::kill(static_cast<pid_t>(run.pid()), SIGKILL);
  run.until([&] { return run.serves(1, 2); });
  EXPECT_EQ(run.listener.downs.size(), 1u);
  EXPECT_THAT(run.supervisor.workers().at(0).status.last_exit, HasSubstr("killed by signal 9"));
  EXPECT_EQ(run.supervisor.workers().at(0).status.restarts, 1u);
}

TEST(Supervisor, PermanentFailure_IsNotTriedAgainAndSaysWhy) {
  Stage run;
  run.supervisor.set_desired({spec(1, "permanent")});
  run.until([&] { return run.supervisor.workers().at(0).status.phase == "failed"; });
  const WorkerRow row = run.supervisor.workers().at(0);
  EXPECT_THAT(row.status.last_exit, HasSubstr("weights.gguf: tensor 'x' is missing"));
  EXPECT_EQ(row.pid, 0);
  EXPECT_EQ(row.status.restarts, 0u);
}

TEST(Supervisor, MissingExecutable_IsTriedAgainNotFatal) {
  SupervisorOptions options = quick_options();
  options.executable = "/nonexistent/infosd";
  Stage run(options);
  run.supervisor.set_desired({spec(1, "serve")});
  run.until([&] { return run.supervisor.workers().at(0).status.restarts >= 3; });
  EXPECT_THAT(run.supervisor.workers().at(0).status.last_exit,
              HasSubstr("No such file or directory"));
}

TEST(Supervisor, StoppedWorker_IsKilledAfterTheSilenceLimit) {
  SupervisorOptions options = quick_options();
  options.agent.silence_limit = milliseconds(100);
  Stage run(options);
  run.supervisor.set_desired({spec(1, "serve")});
  run.until([&] { return run.serves(1, 1); });
  ::kill(static_cast<pid_t>(run.pid()), SIGSTOP);
  run.until([&] { return run.serves(1, 2); });
  EXPECT_EQ(run.listener.downs.size(), 1u);
}

TEST(Supervisor, IgnoredDrain_IsKilled) {
  SupervisorOptions options = quick_options();
  options.agent.stop_timeout = milliseconds(20);
  Stage run(options);
  run.supervisor.set_desired({spec(1, "deaf")});
  run.until([&] { return run.pid() != 0; });
  run.stop();
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
}

TEST(Supervisor, WordsWithoutSense_EndTheWorker) {
  Stage run;
  run.supervisor.set_desired({spec(1, "garbage")});
  run.until([&] { return run.supervisor.workers().at(0).status.restarts >= 2; });
  EXPECT_THAT(run.supervisor.workers().at(0).status.last_exit, HasSubstr("killed by signal 9"));
}

TEST(Supervisor, Worker_InheritsItsTwoDescriptorsOnly) {
  const UniqueFd leaky(::dup(STDIN_FILENO));  // without CLOEXEC, as libraries do
  ASSERT_TRUE(leaky);
  Stage run;
  run.supervisor.set_desired({spec(1, "serve")});
  run.until([&] { return run.serves(1, 1); });
  EXPECT_EQ(descriptors(run.pid()), (std::set<std::string>{"0", "1", "2", "3", "4"}));
}

TEST(Supervisor, FiftyRestarts_LeaveNoDescriptorAndNoZombie) {
  Stage run;
  run.supervisor.set_desired({spec(1, "serve")});
  run.until([&] { return run.serves(1, 1); });
  const std::size_t before = descriptors(::getpid()).size();
  for (std::uint32_t generation = 1; generation <= 50; ++generation) {
    ::kill(static_cast<pid_t>(run.pid()), SIGKILL);
    run.until([&] { return run.serves(1, generation + 1); });
  }
  EXPECT_EQ(descriptors(::getpid()).size(), before);
  run.stop();
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
}

TEST(Supervisor, Destroyed_LeavesNoProcess) {
  {
    Stage run;
    run.supervisor.set_desired({spec(1, "serve"), spec(2, "deaf")});
    run.until([&] { return run.serves(1, 1); });
  }
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
}

TEST(Supervisor, KilledSupervisor_TakesItsWorkersAlong) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    Stage run;
    run.supervisor.set_desired({spec(1, "serve")});
    while (!run.serves(1, 1)) run.io.run_one();
    const std::int64_t worker = run.pid();
    if (::write(pipe_fds[1], &worker, sizeof worker) != sizeof worker) ::_exit(1);
    run.io.run();
    ::_exit(0);
  }
  std::int64_t worker = 0;
  ASSERT_EQ(::read(pipe_fds[0], &worker, sizeof worker), 8);
  const UniqueFd watch(::pidfd_open(static_cast<pid_t>(worker), 0));
  ASSERT_TRUE(watch);
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  pollfd ended{watch.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 60'000), 1) << "worker " << worker << " outlives its supervisor";
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
}

}  // namespace
}  // namespace infos
