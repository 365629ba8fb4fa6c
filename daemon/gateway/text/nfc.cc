// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/text/nfc.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <unordered_map>
#include <vector>

#include "daemon/gateway/text/utf8.h"

namespace infos::text {
namespace {

struct Decomposition {
  std::uint32_t code, first, second;
  std::uint32_t composes;
};
struct ClassRange {
  std::uint32_t first, last;
  std::uint8_t value;
};
#include "daemon/gateway/text/nfc_tables.inc"

// Hangul syllables are computed. Source: Unicode Standard, section 3.12.
constexpr char32_t kS = 0xAC00, kL = 0x1100, kV = 0x1161, kT = 0x11A7;
constexpr char32_t kLCount = 19, kVCount = 21, kTCount = 28;
constexpr char32_t kSCount = kLCount * kVCount * kTCount;
constexpr char32_t kFirstInteresting = 0x300;  // below it every text is in form C already

struct Char {
  char32_t code;
  std::uint8_t order;  ///< canonical combining class
};

std::uint8_t class_of(char32_t code) {
  if (code < kFirstInteresting) return 0;
  const auto* range = std::upper_bound(std::begin(kClassRanges), std::end(kClassRanges), code,
                                       [](char32_t c, const ClassRange& r) { return c < r.first; });
  if (range == std::begin(kClassRanges)) return 0;
  --range;
  return code <= range->last ? range->value : 0;
}

void decompose(char32_t code, std::vector<Char>& out) {
  if (code >= kS && code < kS + kSCount) {
    const char32_t index = code - kS;
    out.push_back({kL + index / (kVCount * kTCount), 0});
    out.push_back({kV + index % (kVCount * kTCount) / kTCount, 0});
    if (index % kTCount != 0) out.push_back({kT + index % kTCount, 0});
    return;
  }
  const auto* found =
      std::lower_bound(std::begin(kDecompositions), std::end(kDecompositions), code,
                       [](const Decomposition& d, char32_t c) { return d.code < c; });
  if (code < 0xC0 || found == std::end(kDecompositions) || found->code != code) {
    out.push_back({code, class_of(code)});
    return;
  }
  decompose(found->first, out);  // the table is finite and acyclic: at most four deep
  if (found->second != 0) decompose(found->second, out);
}

/// 0 when the pair does not compose.
char32_t compose(char32_t first, char32_t second) {
  if (first >= kL && first < kL + kLCount && second >= kV && second < kV + kVCount)
    return kS + ((first - kL) * kVCount + (second - kV)) * kTCount;
  if (first >= kS && first < kS + kSCount && (first - kS) % kTCount == 0 && second > kT &&
      second < kT + kTCount)
    return first + (second - kT);
  static const auto kPairs = [] {
    std::unordered_map<std::uint64_t, char32_t> pairs;
    for (const Decomposition& d : kDecompositions)
      if (d.composes) pairs.emplace((std::uint64_t{d.first} << 32) | d.second, d.code);
    return pairs;
  }();
  const auto found = kPairs.find((std::uint64_t{first} << 32) | second);
  return found == kPairs.end() ? 0 : found->second;
}

/// Canonical order, then composition, of one stretch of valid text.
void finish(std::vector<Char>& chars, std::string& out) {
  for (auto begin = chars.begin(); begin != chars.end();) {
    if (begin->order == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, chars.end(), [](const Char& c) { return c.order == 0; });
    std::stable_sort(begin, end, [](const Char& a, const Char& b) { return a.order < b.order; });
    begin = end;
  }
  std::size_t starter = chars.size();  // index in the output part of `chars`, or none yet
  std::size_t kept = 0;
  int last_order = -1;  // class of the last character kept after the starter, -1: none between
  for (const Char c : chars) {
    const bool blocked = last_order != -1 && last_order >= c.order;
    if (starter != chars.size() && !blocked) {
      if (const char32_t joined = compose(chars[starter].code, c.code)) {
        chars[starter].code = joined;
        continue;
      }
    }
    if (c.order == 0) {
      starter = kept;
      last_order = -1;
    } else {
      last_order = c.order;
    }
    chars[kept++] = c;
  }
  for (std::size_t i = 0; i < kept; ++i) append_utf8(out, chars[i].code);
  chars.clear();
}

bool surely_normal(std::string_view text) {
  // U+0300 is CC 80 in UTF-8: every character below it has a smaller first byte.
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0xCC;
  });
}

}  // namespace

std::string to_nfc(std::string_view text) {
  if (surely_normal(text)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  std::vector<Char> chars;
  for (const ValidRun& run : valid_runs(text)) {
    if (!run.valid) {
      out.append(run.text);
      continue;
    }
    for (std::size_t at = 0; at < run.text.size();) {
      const Decoded decoded = decode_utf8(run.text, at);
      decompose(decoded.code, chars);
      at += decoded.length;
    }
    finish(chars, out);
  }
  return out;
}

}  // namespace infos::text
