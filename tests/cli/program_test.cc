// SPDX-License-Identifier: Apache-2.0
// Goal: the command line keeps its promises: help, exit codes, completion, all errors of a spec.
// Method: runs the program; help is a golden file (INFOS_UPDATE_GOLDEN=1 writes it anew).
#include "tests/cli/program.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "daemon/cli/command.h"
#include "tests/support/data.h"
#include "topology/spec/spec.h"

namespace infos {
namespace {

using test::run_infos;

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> words_of(const std::string& name) {
  const std::size_t space = name.find(' ');
  if (space == std::string::npos) return {name};
  return {name.substr(0, space), name.substr(space + 1)};
}

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "infos-cli-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

TEST(Program, Help_OfEveryCommand_IsTheGoldenText) {
  std::string all = run_infos({"--help"}).output;
  for (const cli::Command& command : cli::commands()) {
    std::vector<std::string> words = words_of(command.name);
    words.emplace_back("--help");
    const auto ran = run_infos(words);
    EXPECT_EQ(ran.code, 0) << command.name;
    all += "\n================ " + std::string(command.name) + "\n" + ran.output;
  }
  const std::string path = INFOS_SOURCE_DIR "/tests/cli/golden/help.txt";
  if (std::getenv("INFOS_UPDATE_GOLDEN")) std::ofstream(path) << all;
  EXPECT_EQ(all, read(path)) << "INFOS_UPDATE_GOLDEN=1 writes it anew";
}

TEST(Program, WrongUse_ExitsWithTwoAndOneSentence) {
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"frobnicate"},
      {"get"},
      {"get", "models", "workers"},
      {"get", "nonsense"},
      {"get", "models", "-o", "xml"},
      {"get", "models", "--nonsense"},
      {"describe", "model"},
      {"describe", "table", "x"},
      {"apply"},
      {"model"},
      {"model", "frobnicate"},
      {"model", "inspect"},
      {"model", "synth"},
      {"model", "synth", "--shape", "nonsense", "-o", "x"},
      {"model", "synth", "--shape", "qwen2.5-0.5b", "--dtype", "f12", "-o", "x"},
      {"plugin"},
      {"plugin", "check"},
      {"completion", "tcsh"},
      {"up", "--port", "70000"},
      {"up", "--port", "x"},
      {"up", "word"},
      {"chat", "--url", "ftp://x"},
      {"chat", "--max-tokens", "0"},
      {"chat", "--temperature", "hot"},
      {"bench", "--rate", "-1"},
      {"bench", "--rate", "1", "-c", "2"},
      {"bench", "--rate", "1", "--trace", "x"},
      {"bench", "--prompt-tokens", "5:4"},
      {"bench", "--duration", "10"},
      {"bench", "--slo-ttft", "fast"},
      {"bench", "--requests", "0"},
      {"bench", "--url", "http://"},
      {"doctor", "--port", "0"},
      {"simulate", "--fuzz", "--replay", "x"},
      {"simulate", "--fuzz", "--record", "x"},
      {"simulate", "--seed", "-1"},
      {"bench", "--help=yes"}};
  for (const auto& words : cases) {
    const auto ran = run_infos(words);
    std::string line;
    for (const std::string& word : words) line += " " + word;
    EXPECT_EQ(ran.code, 2) << "infos" << line << "\n" << ran.output;
    EXPECT_FALSE(ran.output.empty()) << line;
  }
}

TEST(Program, Help_OfTheFirstOfTwoWords_ListsTheSecond) {
  const auto model = run_infos({"model", "--help"});
  EXPECT_EQ(model.code, 0);
  EXPECT_NE(model.output.find("model synth"), std::string::npos) << model.output;
  EXPECT_EQ(model.output.find("plugin check"), std::string::npos) << model.output;
  EXPECT_EQ(run_infos({"help", "plugin", "check"}).output,
            run_infos({"plugin", "check", "--help"}).output);
}

TEST(Program, OptionsAreNotGuessed) { EXPECT_EQ(run_infos({"version", "--out", "json"}).code, 2); }

TEST(Program, Version_SaysIt) {
  const auto text = run_infos({"version"});
  EXPECT_EQ(text.code, 0);
  EXPECT_TRUE(text.output.starts_with("infos ")) << text.output;
  EXPECT_EQ(run_infos({"--version"}).output, text.output);
  EXPECT_NE(run_infos({"version", "-o", "json"}).output.find("\"version\""), std::string::npos);
}

TEST(Program, Apply_SaysAllErrorsWithTheirPlaces_AndNeedsNoDaemonForIt) {
  for (const char* name : {"references", "values_model", "unknown_and_double_keys"}) {
    const std::string path =
        std::string(INFOS_SOURCE_DIR "/tests/spec/golden/bad/") + name + ".yaml";
    const std::vector<SpecFile> files{{path, read(path)}};
    const auto ran = run_infos({"apply", "--check", "-f", path});
    EXPECT_EQ(ran.code, 1);
    EXPECT_TRUE(ran.output.starts_with(parse_spec(files).error_text())) << ran.output;
    EXPECT_NE(ran.output.find("nothing was changed"), std::string::npos);
  }
  const std::string good = INFOS_SOURCE_DIR "/tests/spec/golden/good/design.yaml";
  EXPECT_EQ(run_infos({"apply", "--check", good}).code, 0);
  EXPECT_EQ(run_infos({"apply", "--check", "-f", "-"}, read(good)).code, 0);
  EXPECT_EQ(run_infos({"apply", "--check", "-f", "/nowhere.yaml"}).code, 1);
}

TEST(Program, WithoutADaemon_CommandsFailWithAdvice) {
  const TempDir dir;
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"get", "models", "--socket", dir / "none.sock"},
        {"describe", "worker", "1", "--socket", dir / "none.sock"}}) {
    const auto ran = run_infos(words);
    EXPECT_EQ(ran.code, 1);
    EXPECT_NE(ran.output.find("infos up"), std::string::npos) << ran.output;
  }
}

TEST(Program, GetDeviceKinds_AsTableAndJson) {
  const auto table = run_infos({"get", "device-kinds"});
  EXPECT_EQ(table.code, 0);
  EXPECT_NE(table.output.find("h100-sxm"), std::string::npos);
  const auto json = run_infos({"get", "device-kinds", "-o", "json"});
  EXPECT_EQ(json.code, 0);
  EXPECT_NE(json.output.find("\"memory_bytes\": 85899345920"), std::string::npos);
}

TEST(Program, Completion_KnowsEveryCommandAndIsAScript) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto ran = run_infos({"completion", shell});
    EXPECT_EQ(ran.code, 0);
    for (const cli::Command& command : cli::commands()) {
      if (command.listed == cli::Command::Listed::no) continue;
      for (const std::string& word : words_of(command.name))
        EXPECT_NE(ran.output.find(word), std::string::npos) << shell << word;
    }
  }
  // The bash script, driven as bash would: after "infos get -" come get's options, after "infos
  // model " second words.
  const TempDir dir;
  std::ofstream(dir / "script")
      << run_infos({"completion", "bash"}).output
      << "try() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _infos; echo \"${COMPREPLY[*]}\"; "
         "}\n"
         "try infos mod\ntry infos model ''\ntry infos get --out\ntry infos get --output json w\n";
  test::Program bash({"/bin/bash", dir / "script"}, test::Program::Errors::with_output);
  EXPECT_EQ(bash.line(), "model");
  EXPECT_EQ(bash.line(), "inspect synth");
  EXPECT_EQ(bash.line(), "--output");
  EXPECT_EQ(bash.line(), "workers");
}

TEST(Program, ModelInspect_OfARealFile) {
  INFOS_NEEDS_DATA("models/stories260K-f32.gguf");
  const auto ran =
      run_infos({"model", "inspect", test::data_path("models/stories260K-f32.gguf"), "--tensors"});
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_NE(ran.output.find("blk.4.ffn_down.weight"), std::string::npos) << ran.output;
  EXPECT_NE(
      run_infos({"model", "inspect", test::data_path("models/stories260K-f32.gguf"), "-o", "json"})
          .output.find("\"parameters\""),
      std::string::npos);
  const auto missing = run_infos({"model", "inspect", "/nowhere.gguf"});
  EXPECT_EQ(missing.code, 1);
  EXPECT_NE(missing.output.find("/nowhere.gguf"), std::string::npos);
}

TEST(Program, Simulate_SameSeedSameHash_AndItsRecordingReplays) {
  const TempDir dir;
  const std::vector<std::string> words{"simulate",  "--requests", "50",  "--record",
                                       dir / "run", "-o",         "json"};
  const auto once = run_infos(words);
  EXPECT_EQ(once.code, 0) << once.output;
  EXPECT_EQ(run_infos(words).output, once.output);
  const auto replayed = run_infos({"simulate", "--replay", dir / "run"});
  EXPECT_EQ(replayed.code, 0) << replayed.output;
  EXPECT_EQ(run_infos({"simulate", "--fuzz", "--seeds", "3", "--requests", "10"}).code, 0);
  std::ofstream(dir / "bad") << "no recording";
  EXPECT_EQ(run_infos({"simulate", "--replay", dir / "bad"}).code, 1);
}

TEST(Configs, EveryExample_HasNoErrors) {
  std::size_t files = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(INFOS_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    const std::vector<SpecFile> given{{entry.path().string(), read(entry.path().string())}};
    EXPECT_EQ(parse_spec(given).error_text(), "");
    ++files;
  }
  EXPECT_GE(files, 3U);
}

}  // namespace
}  // namespace infos
