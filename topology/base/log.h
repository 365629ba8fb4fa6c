// SPDX-License-Identifier: Apache-2.0
// The logger: one line per event on stderr, as key=value (default) or JSON. Any thread; a line is
// written whole. Whoever first decides that something is an error logs it; those above only pass it
// on.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "topology/base/result.h"

namespace infos {

enum class LogLevel { debug, info, warn, error, off };
enum class LogFormat { text, json };

/// One key and its printed value.
struct LogField {
  std::string_view key;
  std::string value;
  bool is_number = false;

  LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
  LogField(std::string_view k, const char* v) : key(k), value(v) {}
  LogField(std::string_view k, const std::string& v) : key(k), value(v) {}
  template <std::integral I>
  LogField(std::string_view k, I v) : key(k), value(std::to_string(v)), is_number(true) {}
  LogField(std::string_view k, double v);
};

/// Process-wide; call before threads start.
void log_configure(LogLevel level, LogFormat format);
/// Errors: invalid_argument with the allowed words.
Result<LogLevel> parse_log_level(std::string_view word);

/// `component` is the unit that speaks ("gateway"), `message` a fixed sentence; what varies goes
/// into fields.
void log_line(LogLevel level, std::string_view component, std::string_view message,
              std::initializer_list<LogField> fields = {});

inline void log_debug(std::string_view c, std::string_view m,
                      std::initializer_list<LogField> f = {}) {
  log_line(LogLevel::debug, c, m, f);
}
inline void log_info(std::string_view c, std::string_view m,
                     std::initializer_list<LogField> f = {}) {
  log_line(LogLevel::info, c, m, f);
}
inline void log_warn(std::string_view c, std::string_view m,
                     std::initializer_list<LogField> f = {}) {
  log_line(LogLevel::warn, c, m, f);
}
inline void log_error(std::string_view c, std::string_view m,
                      std::initializer_list<LogField> f = {}) {
  log_line(LogLevel::error, c, m, f);
}

}  // namespace infos
