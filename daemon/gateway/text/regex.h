// SPDX-License-Identifier: Apache-2.0
// A compiled regular expression with Unicode classes (PCRE2, UTF and UCP, just-in-time compiled
// where the machine allows). Bounded: a search that needs too many steps gives up and says so.
// Immutable after compile; any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "topology/base/result.h"

namespace infos::text {

class Regex {
 public:
  /// Errors: unsupported, with PCRE2's message and the offset in the pattern.
  static Result<Regex> compile(std::string_view pattern);

  enum class Outcome { found, absent, gave_up };
  struct Match {
    Outcome outcome = Outcome::absent;
    std::size_t begin = 0, end = 0;
  };
  /// The first match at or after `from`. Requires: `subject` is valid UTF-8 and `from` the start of
  /// a character in it.
  Match find(std::string_view subject, std::size_t from) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code>
      code_;  // shared: copies of a pipeline step are cheap, the program is immutable
};

}  // namespace infos::text
