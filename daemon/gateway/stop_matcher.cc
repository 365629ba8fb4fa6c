// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "topology/base/check.h"

namespace infos {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    INFOS_CHECK(!stop.empty());
    Pattern p;
    p.fallback.assign(stop.size(), 0);
    for (std::size_t i = 1, k = 0; i < stop.size(); ++i) {
      while (k > 0 && stop[i] != stop[k]) k = p.fallback[k - 1];
      if (stop[i] == stop[k]) ++k;
      p.fallback[i] = static_cast<std::uint32_t>(k);
    }
    p.text = std::move(stop);
    patterns_.push_back(std::move(p));
  }
}

bool StopMatcher::feed(std::string_view text, std::string& out) {
  if (stopped_) return true;
  if (patterns_.empty()) {
    out.append(text);
    passed_ += text.size();
    return false;
  }
  held_.append(text);
  const std::size_t start = held_.size() - text.size();
  std::size_t longest = 0;  // longest stop prefix that the input ends with
  for (std::size_t i = start; i < held_.size(); ++i) {
    const char c = held_[i];
    longest = 0;
    std::size_t complete = 0;
    for (Pattern& p : patterns_) {
      std::uint32_t& k = p.matched;
      while (k > 0 && p.text[k] != c) k = p.fallback[k - 1];
      if (p.text[k] == c) ++k;
      if (k == p.text.size()) {
        complete = std::max(complete, p.text.size());
        k = p.fallback[k - 1];
      }
      longest = std::max<std::size_t>(longest, k);
    }
    if (complete > 0) {
      const std::size_t keep = i + 1 - complete;
      out.append(held_, 0, keep);
      passed_ += keep;
      held_.clear();
      stopped_ = true;
      return true;
    }
  }
  if (text.empty()) return false;
  const std::size_t release = held_.size() - longest;
  out.append(held_, 0, release);
  passed_ += release;
  held_.erase(0, release);
  return false;
}

void StopMatcher::flush(std::string& out) {
  if (stopped_) return;
  out.append(held_);
  passed_ += held_.size();
  held_.clear();
  for (Pattern& p : patterns_) p.matched = 0;
}

}  // namespace infos
