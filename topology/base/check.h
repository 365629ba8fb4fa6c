// SPDX-License-Identifier: Apache-2.0
// Always-on assertions about our own code. A failed check is a bug: it prints the place and aborts,
// in release too. Never used on input from outside; that is what Result is for.
#pragma once

namespace infos {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}

/// Aborts with file and line when `condition` is false. One condition each.
#define INFOS_CHECK(condition)                               \
  do {                                                       \
    if (!(condition)) [[unlikely]]                           \
      ::infos::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
