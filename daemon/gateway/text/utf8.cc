// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/text/utf8.h"

#include <algorithm>

namespace infos::text {
namespace {

unsigned char byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

/// Bytes that a character with this first byte has, 0 when none begins so.
std::uint32_t length_from_first(unsigned char first) {
  if (first < 0x80) return 1;
  if (first < 0xC2) return 0;
  if (first < 0xE0) return 2;
  if (first < 0xF0) return 3;
  return first < 0xF5 ? 4 : 0;
}

/// Whether `second` may follow `first`: rules out overlong forms, surrogates and codes above
/// U+10FFFF.
bool second_fits(unsigned char first, unsigned char second) {
  if (first == 0xE0) return second >= 0xA0 && second <= 0xBF;
  if (first == 0xED) return second >= 0x80 && second <= 0x9F;
  if (first == 0xF0) return second >= 0x90 && second <= 0xBF;
  if (first == 0xF4) return second >= 0x80 && second <= 0x8F;
  return (second & 0xC0) == 0x80;
}

}  // namespace

Decoded decode_utf8(std::string_view text, std::size_t at) {
  const unsigned char first = byte_at(text, at);
  if (first < 0x80) return {first, 1, true};
  const std::uint32_t length = length_from_first(first);
  if (length == 0 || at + length > text.size() || !second_fits(first, byte_at(text, at + 1)))
    return {};
  char32_t code = first & (0xFFU >> (length + 1));
  for (std::uint32_t i = 1; i < length; ++i) {
    const unsigned char next = byte_at(text, at + i);
    if ((next & 0xC0) != 0x80) return {};
    code = (code << 6) | (next & 0x3FU);
  }
  return {code, length, true};
}

void append_utf8(std::string& out, char32_t code) {
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) code = kReplacement;
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (code >> 6)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (code >> 12)));
    out.push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else {
    out.push_back(static_cast<char>(0xF0 | (code >> 18)));
    out.push_back(static_cast<char>(0x80 | ((code >> 12) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  }
}

std::size_t unfinished_suffix(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const std::size_t at = text.size() - back;
    const unsigned char first = byte_at(text, at);
    if ((first & 0xC0) == 0x80) continue;  // a later byte of a character: look further back
    if (length_from_first(first) <= back) return 0;
    return back == 1 || second_fits(first, byte_at(text, at + 1)) ? back : 0;
  }
  return 0;
}

bool is_white_space(char32_t code) {
  return code == 0x20 || (code >= 0x09 && code <= 0x0D) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

std::vector<ValidRun> valid_runs(std::string_view text) {
  std::vector<ValidRun> runs;
  std::size_t begin = 0;
  bool valid = true;
  for (std::size_t at = 0; at < text.size();) {
    const Decoded decoded = decode_utf8(text, at);
    if (decoded.valid != valid) {
      if (at > begin) runs.push_back({text.substr(begin, at - begin), valid});
      begin = at;
      valid = decoded.valid;
    }
    at += decoded.length;
  }
  if (begin < text.size()) runs.push_back({text.substr(begin), valid});
  return runs;
}

std::string make_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Decoded decoded = decode_utf8(text, at);
    if (decoded.valid) {
      out.append(text.substr(at, decoded.length));
    } else {
      append_utf8(out, kReplacement);
    }
    at += decoded.length;
  }
  return out;
}

}  // namespace infos::text
