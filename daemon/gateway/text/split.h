// SPDX-License-Identifier: Apache-2.0
// Cuts normalised text into the words that the word model sees: a list of steps, each refining the
// cut of the one before. Bytes that are not UTF-8 become words of their own. Immutable after load;
// any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/gateway/text/regex.h"

namespace infos::text {

/// Cuts at matches of a regular expression.
struct RegexSplit {
  Regex pattern;
  /// What becomes of a match: its own word, dropped, glued to the neighbour, or glued to
  /// neighbouring matches.
  enum class Behavior {
    isolated,
    removed,
    merged_with_previous,
    merged_with_next,
    contiguous
  } behavior = Behavior::isolated;
  enum class Invert {
    no,
    yes
  } invert = Invert::no;  ///< yes: what matches and what does not change places
};

/// Spaces become `replacement`, one is put in front, and the text may be cut before each.
struct MetaspaceStep {
  std::string replacement = "\u2581";
  enum class Prepend { always, first, never } prepend = Prepend::always;
  enum class Cut { no, yes } cut = Cut::yes;
};

/// Puts a space before each word that does not begin with one.
struct PrefixSpaceStep {};

using SplitStep = std::variant<RegexSplit, MetaspaceStep, PrefixSpaceStep>;

/// Words as ranges of one buffer.
struct Words {
  std::string_view text;  ///< the input, or `owned` once a step rewrote it
  std::string owned;
  struct Range {
    std::size_t begin = 0, end = 0;
  };
  std::vector<Range> ranges;
};

class Splitter {
 public:
  void add(SplitStep step) { steps_.push_back(std::move(step)); }
  enum class At { text_begin, later };
  /// `text` must outlive the result. `at` says whether it is the beginning of the whole input.
  void cut(std::string_view text, At at, Words& out) const;

 private:
  std::vector<SplitStep> steps_;
};

/// The steps behind a GGUF pre-tokenizer name.
struct PreTokenizer {
  Splitter splitter;
  bool ignore_merges = false;  ///< a word that is a token is that token
};
/// Errors: unsupported, with the names that are known.
Result<PreTokenizer> make_pre_tokenizer(std::string_view name);

/// GPT-2's pattern, which is also that of the ByteLevel component of tokenizer.json.
extern const std::string_view kGpt2Pattern;

}  // namespace infos::text
