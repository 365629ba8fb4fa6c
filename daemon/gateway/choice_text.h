// SPDX-License-Identifier: Apache-2.0
// The text of one choice of an answer: tokens in, text out that is whole UTF-8 and free of stop
// strings, with the logprobs of the tokens whose text has come out. Decides nothing about how it is
// rendered. Any thread, one owner.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "daemon/gateway/stop_matcher.h"
#include "daemon/gateway/tokenizer.h"
#include "topology/model/sampling.h"

namespace infos {

/// A token of an answer, for logprobs.
struct TokenEntry {
  SampledToken sampled;
  std::uint64_t text_bytes = 0;  ///< of the choice's text before it
  std::uint64_t text_chars = 0;  ///< the same in Unicode code points
};

enum class KeepLogprobs { no, yes };

class ChoiceText {
 public:
  /// `tokenizer` must outlive this. `start`: whether the text goes on after the prompt's, or is one
  /// of its own.
  ChoiceText(const Tokenizer& tokenizer, Tokenizer::Place start,
             const std::vector<std::string>& stops, KeepLogprobs logprobs);

  /// Takes tokens in order; text and entries that are certain now are appended to `ready_text` and
  /// `ready_entries`. Returns: true when a stop string is complete; what follows is ignored.
  bool push(std::span<const SampledToken> tokens);
  /// The answer ended by itself: everything held back comes out.
  void finish();

  /// Tokens taken until the answer was complete.
  std::uint32_t tokens() const { return tokens_; }
  bool stopped() const { return matcher_.stopped(); }

  std::string ready_text;                 ///< the caller takes and clears
  std::vector<TokenEntry> ready_entries;  ///< the caller takes and clears

 private:
  void take(const std::string& text);
  void release_entries(std::uint64_t below);

  Detokenizer detokenizer_;
  StopMatcher matcher_;
  KeepLogprobs logprobs_;
  std::deque<TokenEntry> waiting_;  ///< entries whose text is held back
  std::uint64_t text_bytes_ = 0;    ///< of text that came from the detokenizer
  std::uint64_t text_chars_ = 0;
  std::uint32_t tokens_ = 0;
};

}  // namespace infos
