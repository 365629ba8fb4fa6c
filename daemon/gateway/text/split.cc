// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/text/split.h"

#include "daemon/gateway/text/utf8.h"

namespace infos::text {
namespace {

using Range = Words::Range;

struct Stretch {
  Range range;
  bool is_match = false;
};

/// Matches and what lies between them, over one stretch of valid UTF-8 that begins at `base` of the
/// buffer.
void find_matches(const Regex& pattern, std::string_view text, std::size_t base,
                  std::vector<Stretch>& out) {
  std::size_t done = 0;
  for (std::size_t from = 0; from < text.size();) {
    const Regex::Match match = pattern.find(text, from);
    if (match.outcome != Regex::Outcome::found)
      break;  // gave up: what is left stays one word, so the cost stays bounded
    if (match.end == match.begin) {
      if (match.end >= text.size()) break;
      from = match.end + decode_utf8(text, match.end).length;
      continue;
    }
    if (match.begin > done) out.push_back({{base + done, base + match.begin}, false});
    out.push_back({{base + match.begin, base + match.end}, true});
    done = from = match.end;
  }
  if (done < text.size()) out.push_back({{base + done, base + text.size()}, false});
}

/// Turns matches and gaps into words.
void assemble(const std::vector<Stretch>& stretches, RegexSplit::Behavior behavior,
              std::vector<Range>& out) {
  using Behavior = RegexSplit::Behavior;
  bool glue = false;  // the stretch before may take this one in
  bool was_match = false;
  for (const Stretch& stretch : stretches) {
    if (behavior == Behavior::removed && stretch.is_match) continue;
    bool join = false;
    if (behavior == Behavior::merged_with_previous) join = glue && stretch.is_match && !was_match;
    if (behavior == Behavior::merged_with_next) join = glue && was_match && !stretch.is_match;
    if (behavior == Behavior::contiguous) join = glue && was_match == stretch.is_match;
    if (join) {
      out.back().end = stretch.range.end;
    } else {
      out.push_back(stretch.range);
    }
    glue = true;
    was_match = stretch.is_match;
  }
}

class Cutter {
 public:
  Cutter(Words& words, Splitter::At at) : words_(words), at_(at) {}

  void operator()(const RegexSplit& step) {
    std::vector<Range> next;
    next.reserve(words_.ranges.size() * 2);
    std::vector<Stretch> stretches;
    const auto flush = [&] {
      if (step.invert == RegexSplit::Invert::yes)
        for (Stretch& stretch : stretches) stretch.is_match = !stretch.is_match;
      assemble(stretches, step.behavior, next);
      stretches.clear();
    };
    for (const Range& range : words_.ranges) {
      std::size_t base = range.begin;
      for (const ValidRun& run :
           valid_runs(words_.text.substr(range.begin, range.end - range.begin))) {
        if (run.valid) {
          find_matches(step.pattern, run.text, base, stretches);
          flush();
        } else {
          next.push_back({base, base + run.text.size()});
        }
        base += run.text.size();
      }
    }
    words_.ranges = std::move(next);
  }

  void operator()(const MetaspaceStep& step) {
    using Prepend = MetaspaceStep::Prepend;
    std::string text;
    std::vector<Range> next;
    for (const Range& range : words_.ranges) {
      std::size_t begin = text.size();
      const std::string_view word = words_.text.substr(range.begin, range.end - range.begin);
      const bool at_begin = at_ == Splitter::At::text_begin && range.begin == 0;
      const bool has_one = word.starts_with(' ') || word.starts_with(step.replacement);
      if (!has_one &&
          (step.prepend == Prepend::always || (step.prepend == Prepend::first && at_begin)))
        text += step.replacement;
      for (std::size_t i = 0; i < word.size();) {
        const bool plain_space = word[i] == ' ';
        const bool replaced =
            plain_space || word.compare(i, step.replacement.size(), step.replacement) == 0;
        if (replaced && step.cut == MetaspaceStep::Cut::yes && text.size() > begin) {
          next.push_back({begin, text.size()});
          begin = text.size();
        }
        if (replaced) {
          text += step.replacement;
        } else {
          text += word[i];
        }
        i += replaced && !plain_space ? step.replacement.size() : 1;
      }
      if (text.size() > begin) next.push_back({begin, text.size()});
    }
    adopt(std::move(text), std::move(next));
  }

  void operator()(const PrefixSpaceStep&) {
    std::string text;
    std::vector<Range> next;
    for (const Range& range : words_.ranges) {
      const std::size_t begin = text.size();
      if (words_.text[range.begin] != ' ') text += ' ';
      text.append(words_.text.substr(range.begin, range.end - range.begin));
      next.push_back({begin, text.size()});
    }
    adopt(std::move(text), std::move(next));
  }

 private:
  void adopt(std::string text, std::vector<Range> ranges) {
    words_.owned = std::move(text);
    words_.text = words_.owned;
    words_.ranges = std::move(ranges);
  }
  Words& words_;
  Splitter::At at_;
};

}  // namespace

void Splitter::cut(std::string_view text, At at, Words& out) const {
  out.text = text;
  out.ranges.clear();
  if (text.empty()) return;
  out.ranges.push_back({0, text.size()});
  Cutter cutter(out, at);
  for (const SplitStep& step : steps_) std::visit(cutter, step);
}

}  // namespace infos::text
