// SPDX-License-Identifier: Apache-2.0
// Goal: the commands work together with a real infosd: up serves, get and describe see it, chat
// answers, bench measures, apply changes it, Ctrl-C ends all of it. Method: the programs, a real
// small model, free ports, own sockets.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/cli/program.h"
#include "tests/support/data.h"

namespace infos {
namespace {

using test::run_infos;

constexpr const char* kModel = "models/stories260K-f32.gguf";

class Up : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "infos-up-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    socket_ = folder_ + "/admin.sock";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::vector<std::string> up(const std::vector<std::string>& more) const {
    std::vector<std::string> words{test::bin_path("infos"), "up",    "--port",    "0",
                                   "--admin-socket",        socket_, "--threads", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  /// Reads until the URL is said; "" when it ended before.
  static std::string wait_until_ready(test::Program& program) {
    const std::string start = "infos is ready: ";
    for (std::string line = program.line();; line = program.line()) {
      if (line.starts_with(start)) return line.substr(start.size());
      if (line.empty()) return "";
    }
  }

  std::string folder_, socket_;
};

TEST_F(Up, ServesAndEverySeparateCommandWorksOnIt) {
  INFOS_NEEDS_DATA(kModel);
  test::Program program(up({"--model", "stories=" + test::data_path(kModel)}),
                        test::Program::Errors::with_output);
  const std::string url = wait_until_ready(program);
  ASSERT_TRUE(url.starts_with("http://127.0.0.1:")) << url << program.rest();

  const auto models = run_infos({"get", "models", "--socket", socket_});
  EXPECT_EQ(models.code, 0) << models.output;
  EXPECT_NE(models.output.find("stories  yes"), std::string::npos) << models.output;
  EXPECT_NE(run_infos({"get", "workers", "--socket", socket_, "-o", "json"})
                .output.find("\"phase\": \"serving\""),
            std::string::npos);
  EXPECT_EQ(run_infos({"describe", "worker", "1", "--socket", socket_}).code, 0);
  EXPECT_NE(
      run_infos({"describe", "model", "stories", "--socket", socket_}).output.find("worker 1"),
      std::string::npos);
  const auto unknown = run_infos({"describe", "model", "nobody", "--socket", socket_});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_NE(unknown.output.find("there are: stories"), std::string::npos) << unknown.output;

  // The model's greedy continuation is known: models/stories260K.reference.txt.
  const auto chat = run_infos(
      {"chat", "--url", url, "--temperature", "0", "--max-tokens", "20", "Once upon a time"});
  EXPECT_EQ(chat.code, 0) << chat.output;
  EXPECT_NE(chat.output.find(", there was a little girl named Lily"), std::string::npos)
      << chat.output;
  const auto lines = run_infos(
      {"chat", "stories", "--url", url, "--temperature", "0", "--max-tokens", "20", "--complete"},
      "Once upon a time\n/new\nOnce upon a time\n/exit\n");
  EXPECT_EQ(lines.code, 0) << lines.output;
  const std::size_t first = lines.output.find("named Lily");
  EXPECT_NE(lines.output.find("named Lily", first + 1), std::string::npos) << lines.output;
  EXPECT_EQ(run_infos({"chat", "--url", url, "--model", "nobody", "hi"}).code, 1);

  const auto bench =
      run_infos({"bench", "--url", url, "-c", "4", "-n", "20", "--warm-up", "4", "--prompt-tokens",
                 "8:16", "--output-tokens", "10", "--slo-ttft", "1h", "-o", "json"});
  EXPECT_EQ(bench.code, 0) << bench.output;
  EXPECT_NE(bench.output.find("\"answered\": 16"), std::string::npos) << bench.output;
  EXPECT_NE(bench.output.find("\"output_tokens\": 160"), std::string::npos) << bench.output;
  EXPECT_NE(bench.output.find("\"met_slo\": 1"), std::string::npos) << bench.output;
  EXPECT_EQ(run_infos({"bench", "--url", url, "-r", "200", "-n", "10", "--prompt-tokens", "8",
                       "--output-tokens", "4"})
                .code,
            0);

  program.signal(SIGINT);
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(run_infos({"get", "models", "--socket", socket_}).code, 1);
}

TEST_F(Up, ApplyChangesWhatIsServed_AndErrorsChangeNothing) {
  INFOS_NEEDS_DATA(kModel);
  test::Program program(up({"--model", "one=" + test::data_path(kModel)}),
                        test::Program::Errors::with_output);
  ASSERT_NE(wait_until_ready(program), "");
  const std::string spec =
      "apiVersion: infos/v1\nkind: Model\nmetadata: {name: two}\nspec:\n  source: ";
  std::ofstream(folder_ + "/good.yaml")
      << spec << test::data_path(kModel) << "\n  engine: {threads: 1}\n";
  std::ofstream(folder_ + "/missing.yaml") << spec << "/nowhere.gguf\n";
  std::ofstream(folder_ + "/bad.yaml") << spec << "x\n  sorce: y\n";
  for (const char* name : {"bad", "missing"}) {
    const auto refused =
        run_infos({"apply", "-f", folder_ + "/" + name + ".yaml", "--socket", socket_});
    EXPECT_EQ(refused.code, 1) << refused.output;
    EXPECT_NE(refused.output.find("nothing was changed"), std::string::npos) << refused.output;
    EXPECT_NE(run_infos({"get", "models", "--socket", socket_}).output.find("one "),
              std::string::npos);
  }
  const auto applied = run_infos({"apply", "-f", folder_ + "/good.yaml", "--socket", socket_});
  EXPECT_EQ(applied.code, 0) << applied.output;
  const auto models = run_infos({"get", "models", "--socket", socket_});
  EXPECT_NE(models.output.find("two "), std::string::npos) << models.output;
  EXPECT_EQ(models.output.find("one "), std::string::npos) << models.output;
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 0);
}

TEST_F(Up, WhatCannotBeServed_EndsItWithTheReason) {
  test::Program program(up({"--model", "x=/nowhere.gguf"}), test::Program::Errors::with_output);
  const std::string output = program.rest();
  EXPECT_NE(program.wait(), 0);
  EXPECT_NE(output.find("/nowhere.gguf"), std::string::npos) << output;
}

TEST_F(Up, WorkersThatKeepEnding_AreNotWaitedForForEver) {
  INFOS_NEEDS_DATA(kModel);
  test::Program program(up({"--model", "x=" + test::data_path(kModel), "--kv-memory", "1kB"}),
                        test::Program::Errors::with_output);
  const std::string output = program.rest();
  EXPECT_EQ(program.wait(), 1) << output;
  EXPECT_NE(output.find("infos: model x: "), std::string::npos) << output;
}

TEST_F(Up, WithoutADemoModel_SaysWhereItLooked) {
  ::setenv("INFOS_DEMO_MODEL", "/nowhere/demo.gguf", 1);
  test::Program program(up({}), test::Program::Errors::with_output);
  const std::string output = program.rest();
  EXPECT_EQ(program.wait(), 1);
  EXPECT_NE(output.find("/nowhere/demo.gguf"), std::string::npos) << output;
  ::unsetenv("INFOS_DEMO_MODEL");
}

}  // namespace
}  // namespace infos
