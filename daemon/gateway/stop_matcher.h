// SPDX-License-Identifier: Apache-2.0
// Finds stop strings in text that comes in pieces, and holds back what could still become one. Byte
// by byte: where the pieces are cut makes no difference. Decides only where text ends; any thread,
// one owner.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace infos {

class StopMatcher {
 public:
  /// Empty stop strings are not allowed (CHECKed); no stop strings: everything passes through.
  explicit StopMatcher(std::vector<std::string> stops);

  /// Takes the next text and appends to `out` what is now certain to be part of the answer.
  /// Returns: true when a stop string is complete; it and everything after it is dropped, later
  /// text too. Of several stop strings the one that is complete first wins, the longest of those
  /// complete at the same byte.
  bool feed(std::string_view text, std::string& out);
  /// The answer ended otherwise: appends what was held back.
  void flush(std::string& out);

  bool stopped() const { return stopped_; }
  /// Bytes passed out so far.
  std::uint64_t passed() const { return passed_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<std::uint32_t> fallback;  ///< KMP: longest border of text[0..i]
    std::uint32_t matched = 0;            ///< how much of `text` the input ends with
  };
  std::vector<Pattern> patterns_;
  std::string held_;
  std::uint64_t passed_ = 0;
  bool stopped_ = false;
};

}  // namespace infos
