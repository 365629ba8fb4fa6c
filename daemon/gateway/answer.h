// SPDX-License-Identifier: Apache-2.0
// One HTTP answer of one or more choices, from the core's deliveries to bytes: text, stop strings,
// logprobs, usage, in stream events or one body. Knows no socket and no core. One owner, any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/control/gateway_core.h"
#include "daemon/gateway/choice_text.h"
#include "daemon/gateway/openai_response.h"

namespace infos {

enum class AnswerMode { whole, stream };

/// How a choice begins.
struct ChoiceStart {
  std::string echo;  ///< text before the answer
  Tokenizer::Place place = Tokenizer::Place::first;
};

class Answer {
 public:
  Answer(AnswerHead head, AnswerMode mode, std::shared_ptr<const Tokenizer> tokenizer,
         std::uint32_t choices_per_prompt, const std::vector<ChoiceStart>& starts,
         const std::vector<std::string>& stops);

  /// Returns: true when this delivery completed a stop string (once per choice): the core must hear
  /// StopHit.
  bool deliver(std::uint32_t choice, std::span<const SampledToken> tokens);
  /// The choice is complete, by `finish` (not of reason cancelled or error). Repeats are ignored.
  void finish(std::uint32_t choice, const Finish& finish);
  bool complete() const { return open_ == 0; }
  /// True once something was delivered or finished.
  bool begun() const { return begun_; }
  AnswerMode mode() const { return mode_; }

  /// Stream: events made since the last call, appended to `out`.
  void take_events(std::string& out);
  /// Stream: the last events. Requires: complete().
  void close(std::string& out) const;
  /// Whole: the body. Requires: complete().
  std::string body() const;

  Usage usage() const;
  const AnswerHead& head() const { return writer_.head(); }

 private:
  struct Choice {
    ChoiceText text;
    ChoiceResult result;
    std::uint32_t prompt_tokens = 0;
    std::uint32_t cached_tokens = 0;
    bool begun = false;
    bool done = false;
  };
  void emit(std::uint32_t index, Choice& choice);

  std::shared_ptr<const Tokenizer> tokenizer_;
  AnswerWriter writer_;
  AnswerMode mode_;
  std::uint32_t choices_per_prompt_;
  std::vector<Choice> choices_;
  std::string events_;
  std::size_t open_;
  bool begun_ = false;
};

}  // namespace infos
