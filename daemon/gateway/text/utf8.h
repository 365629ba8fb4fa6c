// SPDX-License-Identifier: Apache-2.0
// UTF-8 by hand: decoding that never fails (a bad byte is reported as one), encoding, and the
// search for unfinished characters at the end of a stream. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace infos::text {

constexpr char32_t kReplacement = 0xFFFD;

/// One step of decoding. A byte that cannot begin or continue a character is `valid == false`,
/// `length == 1`.
struct Decoded {
  char32_t code = kReplacement;
  std::uint32_t length = 1;  ///< bytes
  bool valid = false;
};

/// Strict: surrogates, overlong forms and codes above U+10FFFF are invalid. Requires: at <
/// text.size().
Decoded decode_utf8(std::string_view text, std::size_t at);

/// Surrogates and codes above U+10FFFF become U+FFFD.
void append_utf8(std::string& out, char32_t code);

/// How many bytes at the end of `text` are the beginning of a character that more bytes could still
/// finish: 0 to 3.
std::size_t unfinished_suffix(std::string_view text);

/// Unicode's White_Space property.
bool is_white_space(char32_t code);

/// A maximal stretch of `text` that is all valid UTF-8, or all bytes that belong to no character.
struct ValidRun {
  std::string_view text;
  bool valid = true;
};
/// Cuts `text` into such stretches, in order, none empty.
std::vector<ValidRun> valid_runs(std::string_view text);

/// `text` with every byte that belongs to no character replaced by U+FFFD.
std::string make_valid_utf8(std::string_view text);

}  // namespace infos::text
