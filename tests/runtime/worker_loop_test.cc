// SPDX-License-Identifier: Apache-2.0
// Goal: a worker's loop carries requests to the engine and tokens back, in order, and ends when it
// is told to or left alone. Method: the real core, a fake engine, a socketpair, frames by hand.
#include "daemon/runtime/worker_loop.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "daemon/control/codec.h"
#include "daemon/runtime/frame.h"
#include "tests/runtime/fake_engine.h"
#include "tests/runtime/folder.h"

namespace infos {
namespace {

constexpr Generation kGeneration{4};

class WorkerLoopTest : public testing::Test {
 protected:
  void SetUp() override {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    ours_ = UniqueFd(pair[0]);
    channel_.emplace(UniqueFd(pair[1]), kGeneration);
  }
  void start() {
    loop_ = std::thread([this] {
      WorkerLoopOptions options;
      options.generation = kGeneration;
      options.model = "m";
      options.core.kv_blocks = engine.kv_blocks();
      options.core.block_tokens = engine.block_tokens();
      options.core.max_context = engine.max_context();
      end = channel_->run(engine, options, page, recording.get());
    });
    const FromWorker first = receive();
    ASSERT_TRUE(std::holds_alternative<WorkerReady>(first));
    EXPECT_EQ(std::get<WorkerReady>(first).model, "m");
    EXPECT_EQ(std::get<WorkerReady>(first).device, "fake");
  }
  void TearDown() override {
    ours_.reset();
    if (loop_.joinable()) loop_.join();
  }
  void join() { loop_.join(); }
  void hang_up() { ours_.reset(); }

  void send_raw(const std::string& bytes) {
    ASSERT_EQ(::send(ours_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void send(const ToWorker& message) {
    std::string frame;
    append_frame(frame, kGeneration, encode(message));
    send_raw(frame);
  }
  void submit(std::uint64_t request, std::size_t prompt, std::uint32_t max_new) {
    Submit wish;
    wish.request = RequestId{request};
    wish.attempt = Attempt{1};
    for (std::size_t i = 0; i < prompt; ++i)
      wish.tokens.push_back(static_cast<TokenId>(i + request));
    wish.prompt_tokens = static_cast<std::uint32_t>(prompt);
    wish.max_new_tokens = max_new;
    send(wish);
  }
  FromWorker receive() {
    while (true) {
      auto frame = frames_.next();
      EXPECT_TRUE(frame.ok());
      if (frame->has_value()) return decode_from_worker(**frame).value();
      char buffer[4096];
      const ssize_t got = ::recv(ours_.get(), buffer, sizeof buffer, 0);
      if (got <= 0) return WorkerReady{"the stream ended"};
      frames_.append({buffer, static_cast<std::size_t>(got)});
    }
  }
  /// Reads until `count` sequences have ended.
  void collect(std::size_t count) {
    while (ended.size() < count) {
      FromWorker message = receive();
      ASSERT_TRUE(std::holds_alternative<StepReport>(message));
      for (const TokenOut& token : std::get<StepReport>(message).tokens) {
        ASSERT_EQ(token.index, tokens[token.request].size());
        tokens[token.request].push_back(token.sampled.token);
      }
      for (const SequenceEnd& end_of : std::get<StepReport>(message).ended)
        ended[end_of.request] = end_of;
    }
  }

  StatusPage page = StatusPage::create().value();
  test::FakeEngine engine;
  std::unique_ptr<RecordingFile> recording;
  std::optional<WorkerLoopEnd> end;
  std::map<RequestId, std::vector<TokenId>> tokens;
  std::map<RequestId, SequenceEnd> ended;

 private:
  UniqueFd ours_;
  std::optional<WorkerChannel> channel_;
  FrameReader frames_{kGeneration};
  std::thread loop_;
};

TEST_F(WorkerLoopTest, ManySequences_GetTheirTokensInOrder) {
  start();
  for (std::uint64_t request = 1; request <= 20; ++request) submit(request, 3 * request, 10);
  collect(20);
  for (std::uint64_t request = 1; request <= 20; ++request) {
    std::vector<TokenId> want;
    for (std::size_t i = 0; i < 10; ++i) want.push_back(test::fake_token(3 * request + i));
    EXPECT_EQ(tokens[RequestId{request}], want);
    EXPECT_EQ(ended[RequestId{request}].reason, FinishReason::length);
  }
  EXPECT_GT(page->steps.load(), 0u);
  EXPECT_EQ(page->kv_blocks_total.load(), engine.kv_blocks());
}

// The step itself must end: a step over a long prompt may take seconds.
TEST_F(WorkerLoopTest, CancelOfAllOfARunningStep_GivesTheStepUpAndFreesTheBlocks) {
  engine.endless = true;
  start();
  submit(1, 500, 10);
  engine.wait_for_endless_step();
  send(Cancel{RequestId{1}, Attempt{1}});
  collect(1);
  EXPECT_EQ(ended[RequestId{1}].reason, FinishReason::cancelled);
  EXPECT_EQ(page->kv_blocks_used.load(), 0u);
  engine.endless = false;
  submit(2, 5, 10);
  collect(2);
  EXPECT_EQ(ended[RequestId{2}].reason, FinishReason::length);
  EXPECT_EQ(tokens[RequestId{2}].size(), 10u);
}

TEST_F(WorkerLoopTest, CancelOfPartOfARunningStep_LetsTheOthersGoOn) {
  engine.endless = true;
  start();
  submit(1, 5, 10);
  engine.wait_for_endless_step();
  submit(2, 5, 10);
  submit(3, 5, 10);
  send(Cancel{RequestId{1}, Attempt{1}});
  collect(1);
  engine.wait_for_endless_step();  // of requests 2 and 3
  send(Cancel{RequestId{2}, Attempt{1}});
  engine.endless = false;
  send(Cancel{RequestId{3}, Attempt{1}});
  collect(3);
  EXPECT_EQ(engine.steps, 2u) << "the step was given up before all of its requests were cancelled";
  EXPECT_EQ(ended[RequestId{2}].reason, FinishReason::cancelled);
  EXPECT_EQ(ended[RequestId{3}].reason, FinishReason::cancelled);
}

TEST_F(WorkerLoopTest, Drain_EndsAfterTheLastToken) {
  start();
  submit(1, 5, 50);
  send(Drain{});
  collect(1);
  join();
  EXPECT_EQ(end, WorkerLoopEnd::drained);
  EXPECT_EQ(tokens[RequestId{1}].size(), 50u);
  EXPECT_EQ(engine.open_sequences(), 0u);
  EXPECT_EQ(page.phase(), WorkerPhase::draining);
}

TEST_F(WorkerLoopTest, ClosedSocket_EndsTheLoopInTheMiddleOfWork) {
  start();
  submit(1, 5, 2000);
  receive();
  hang_up();
  join();
  EXPECT_EQ(end, WorkerLoopEnd::supervisor_gone);
}

TEST_F(WorkerLoopTest, FailedStep_EndsItsSequencesWithTheReasonAndServesOn) {
  engine.failing = true;
  start();
  submit(1, 5, 50);
  collect(1);
  EXPECT_EQ(ended[RequestId{1}].reason, FinishReason::error);
  EXPECT_NE(ended[RequestId{1}].message.find("the fake device failed"), std::string::npos)
      << ended[RequestId{1}].message;
  engine.failing = false;
  submit(2, 5, 5);
  collect(2);
  EXPECT_EQ(ended[RequestId{2}].reason, FinishReason::length);
}

TEST_F(WorkerLoopTest, Recording_ReplaysToTheSameHashes) {
  test::Folder folder;
  recording = RecordingFile::create(folder / "r").value();
  start();
  for (std::uint64_t request = 1; request <= 5; ++request) submit(request, 40 * request, 30);
  collect(5);
  send(Drain{});
  join();
  recording.reset();
  std::ifstream file(folder / "r", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const ReplayReport report = replay(bytes).value();
  EXPECT_TRUE(report.matches);
  EXPECT_FALSE(report.torn);
  ASSERT_EQ(report.cores.size(), 1u);
  EXPECT_EQ(report.cores[0].core, CoreKind::worker);
  EXPECT_EQ(report.cores[0].compared, 1u);
  EXPECT_GE(report.events, 5u + engine.steps);
}

TEST_F(WorkerLoopTest, WordsWithoutSense_EndTheLoop) {
  start();
  send_raw(std::string(16, '\xff'));
  join();
  EXPECT_EQ(end, WorkerLoopEnd::protocol_error);
}

TEST_F(WorkerLoopTest, MessageOfAnotherGeneration_EndsTheLoop) {
  start();
  std::string frame;
  append_frame(frame, Generation{kGeneration.value + 1}, encode(ToWorker(Drain{})));
  send_raw(frame);
  join();
  EXPECT_EQ(end, WorkerLoopEnd::protocol_error);
}

}  // namespace
}  // namespace infos
