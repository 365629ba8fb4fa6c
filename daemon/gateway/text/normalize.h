// SPDX-License-Identifier: Apache-2.0
// What happens to plain text before it is cut into words: a list of rewriting steps. Bytes that are
// not UTF-8 pass through every step unchanged. Immutable after load; any thread.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/gateway/text/regex.h"

namespace infos::text {

struct PrependStep {
  std::string text;
};
struct ReplaceStep {
  std::string from;  ///< not empty
  std::string to;
};
struct ReplaceRegexStep {
  Regex from;
  std::string to;
};
struct StripStep {
  enum class Side { left, right, both } side = Side::both;
};
/// Unicode normalisation form C, Unicode 14.
struct NfcStep {};

using NormalizeStep = std::variant<PrependStep, ReplaceStep, ReplaceRegexStep, StripStep, NfcStep>;

class Normalizer {
 public:
  void add(NormalizeStep step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }
  /// An empty text stays empty.
  std::string apply(std::string_view text) const;

 private:
  std::vector<NormalizeStep> steps_;
};

}  // namespace infos::text
