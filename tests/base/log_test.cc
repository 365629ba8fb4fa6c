// SPDX-License-Identifier: Apache-2.0
// Goal: one event is one line, whatever its fields hold, in both formats. Method: capture stderr.
#include "topology/base/log.h"

#include <gtest/gtest.h>

namespace infos {
namespace {

std::string capture(LogFormat format) {
  log_configure(LogLevel::info, format);
  testing::internal::CaptureStderr();
  log_info("test", "hello", {{"plain", "value"}, {"number", 7}, {"hostile", "a \"b\"\n{c=d}"}});
  log_debug("test", "below the level");
  std::string line = testing::internal::GetCapturedStderr();
  log_configure(LogLevel::info, LogFormat::text);
  return line;
}

TEST(Log, Text_IsOneLineOfKeyValue) {
  const std::string line = capture(LogFormat::text);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_NE(line.find("info  test: hello plain=value number=7 hostile=\"a \\\"b\\\"\\u000a{c=d}\""),
            std::string::npos)
      << line;
}

TEST(Log, Json_EscapesAndKeepsNumbers) {
  const std::string line = capture(LogFormat::json);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_NE(line.find("\"number\":7"), std::string::npos) << line;
  EXPECT_NE(line.find("\\u000a"), std::string::npos) << line;
}

TEST(Log, ParseLevel_RefusesUnknownWords) {
  EXPECT_EQ(parse_log_level("warn").value(), LogLevel::warn);
  EXPECT_NE(parse_log_level("loud").error().message.find("want debug"), std::string::npos);
}

}  // namespace
}  // namespace infos
