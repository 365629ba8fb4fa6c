// SPDX-License-Identifier: Apache-2.0
// Goal: a recording is whole on disk at its end, and a disk that fails or is slow ends the
// recording, not the service. Method: a real file, /dev/full, and a buffer that is too small.
#include "daemon/runtime/recording_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/runtime/folder.h"

namespace infos {
namespace {

void record_ticks(RecordingFile& file, int count) {
  AgentCore core{AgentConfig{}};
  for (int i = 1; i <= count; ++i) {
    AgentEffects effects;
    const AgentEvent event = AgentTick{};
    core.step(Time{i}, event, effects);
    file.step(0, Time{i}, event, effects);
  }
}

TEST(RecordingFile, ClosedFile_HoldsEveryStepAndReplays) {
  test::Folder folder;
  {
    RecordingOptions options;
    options.hashes_every = 100;
    const auto file = RecordingFile::create(folder / "r", options).value();
    file->start(0, AgentConfig{});
    record_ticks(*file, 1000);
    EXPECT_TRUE(file->is_on());
  }
  std::ifstream in(folder / "r", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const ReplayReport report = replay(bytes).value();
  EXPECT_TRUE(report.matches);
  EXPECT_EQ(report.events, 1000u);
  EXPECT_EQ(report.cores.at(0).compared, 11u);
}

TEST(RecordingFile, FullDisk_TurnsItOff) {
  RecordingOptions options;
  options.flush_interval = milliseconds(1);
  const auto file = RecordingFile::create("/dev/full", options).value();
  file->start(0, AgentConfig{});
  while (file->is_on()) record_ticks(*file, 1);
}

TEST(RecordingFile, SlowDisk_TurnsItOffAtTheBound) {
  test::Folder folder;
  RecordingOptions options;
  options.flush_interval = seconds(3600);  // nothing is written before the end
  options.buffer_bytes_max = 1000;
  const auto file = RecordingFile::create(folder / "r", options).value();
  file->start(0, AgentConfig{});
  EXPECT_TRUE(file->is_on());
  record_ticks(*file, 1000);
  EXPECT_FALSE(file->is_on());
}

TEST(RecordingFile, FolderThatIsNotThere_IsNamed) {
  const auto file = RecordingFile::create("/nonexistent/r");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().message, "recording /nonexistent/r: No such file or directory");
}

}  // namespace
}  // namespace infos
