// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/text/normalize.h"

#include "daemon/gateway/text/nfc.h"
#include "daemon/gateway/text/utf8.h"

namespace infos::text {
namespace {

std::string replace_all(std::string_view text, const ReplaceStep& step) {
  std::string out;
  out.reserve(text.size());
  std::size_t at = 0;
  for (std::size_t hit = text.find(step.from); hit != std::string_view::npos;
       hit = text.find(step.from, at)) {
    out.append(text.substr(at, hit - at)).append(step.to);
    at = hit + step.from.size();
  }
  out.append(text.substr(at));
  return out;
}

/// Replaces within one stretch of valid UTF-8.
void replace_in_valid(std::string_view text, const ReplaceRegexStep& step, std::string& out) {
  std::size_t copied = 0;
  for (std::size_t from = 0; from <= text.size();) {
    const Regex::Match match = step.from.find(text, from);
    if (match.outcome != Regex::Outcome::found) break;
    out.append(text.substr(copied, match.begin - copied)).append(step.to);
    copied = match.end;
    from = match.end;
    if (match.end == match.begin)
      from += match.end < text.size() ? decode_utf8(text, match.end).length : 1;
  }
  out.append(text.substr(copied));
}

std::string replace_regex(std::string_view text, const ReplaceRegexStep& step) {
  std::string out;
  for (const ValidRun& run : valid_runs(text)) {
    if (run.valid) {
      replace_in_valid(run.text, step, out);
    } else {
      out.append(run.text);
    }
  }
  return out;
}

std::string strip(std::string_view text, const StripStep& step) {
  std::size_t begin = 0;
  std::size_t last_end = 0;  // after the last character that is not white
  bool seen = false;
  for (std::size_t at = 0; at < text.size();) {
    const Decoded decoded = decode_utf8(text, at);
    if (!decoded.valid || !is_white_space(decoded.code)) {
      if (!seen) begin = at;
      seen = true;
      last_end = at + decoded.length;
    }
    at += decoded.length;
  }
  if (!seen) return {};
  const std::size_t from = step.side == StripStep::Side::right ? 0 : begin;
  const std::size_t to = step.side == StripStep::Side::left ? text.size() : last_end;
  return std::string(text.substr(from, to - from));
}

struct Apply {
  std::string_view text;
  std::string operator()(const PrependStep& step) const {
    return text.empty() ? std::string() : step.text + std::string(text);
  }
  std::string operator()(const ReplaceStep& step) const { return replace_all(text, step); }
  std::string operator()(const ReplaceRegexStep& step) const { return replace_regex(text, step); }
  std::string operator()(const StripStep& step) const { return strip(text, step); }
  std::string operator()(const NfcStep&) const { return to_nfc(text); }
};

}  // namespace

std::string Normalizer::apply(std::string_view text) const {
  std::string current(text);
  for (const NormalizeStep& step : steps_) current = std::visit(Apply{current}, step);
  return current;
}

}  // namespace infos::text
