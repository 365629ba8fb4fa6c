// SPDX-License-Identifier: Apache-2.0
#include "topology/base/log.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace infos {
namespace {

std::atomic<LogLevel> g_level{LogLevel::info};
std::atomic<LogFormat> g_format{LogFormat::text};

const char* level_word(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warn:
      return "warn";
    case LogLevel::error:
      return "error";
    case LogLevel::off:
      return "off";
  }
  return "?";
}

/// Appends `text` as a JSON string; control bytes and quotes escaped, so that one event stays one
/// line.
void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

bool is_plain(std::string_view text) {
  if (text.empty()) return false;
  for (const char c : text)
    if (static_cast<unsigned char>(c) <= 0x20 || c == '"' || c == '=' || c == '\\') return false;
  return true;
}

std::string timestamp() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  gmtime_r(&now.tv_sec, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     now.tv_nsec / 1000);
}

}  // namespace

LogField::LogField(std::string_view k, double v)
    : key(k), value(fmt::format("{}", v)), is_number(true) {}

void log_configure(LogLevel level, LogFormat format) {
  g_level = level;
  g_format = format;
}

Result<LogLevel> parse_log_level(std::string_view word) {
  for (const LogLevel level :
       {LogLevel::debug, LogLevel::info, LogLevel::warn, LogLevel::error, LogLevel::off})
    if (word == level_word(level)) return level;
  return Error{
      ErrorCode::invalid_argument,
      fmt::format("log level '{}': want debug, info, warn, error or off", word.substr(0, 32))};
}

void log_line(LogLevel level, std::string_view component, std::string_view message,
              std::initializer_list<LogField> fields) {
  if (level < g_level.load(std::memory_order_relaxed)) return;
  std::string line;
  if (g_format.load(std::memory_order_relaxed) == LogFormat::json) {
    line = fmt::format("{{\"time\":\"{}\",\"level\":\"{}\",\"component\":", timestamp(),
                       level_word(level));
    append_quoted(line, component);
    line += ",\"message\":";
    append_quoted(line, message);
    for (const LogField& field : fields) {
      line += ',';
      append_quoted(line, field.key);
      line += ':';
      if (field.is_number && field.value.find_first_of("ni") == std::string::npos)
        line += field.value;
      else
        append_quoted(line, field.value);
    }
    line += "}\n";
  } else {
    line = fmt::format("{} {:5} {}: {}", timestamp(), level_word(level), component, message);
    for (const LogField& field : fields) {
      line += fmt::format(" {}=", field.key);
      if (is_plain(field.value))
        line += field.value;
      else
        append_quoted(line, field.value);
    }
    line += '\n';
  }
  // One write per line: lines of several threads and processes do not mix. A lost log line is not
  // an error.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace infos
