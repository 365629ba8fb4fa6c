// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/answer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "topology/base/check.h"

namespace infos {

Answer::Answer(AnswerHead head, AnswerMode mode, std::shared_ptr<const Tokenizer> tokenizer,
               std::uint32_t choices_per_prompt, const std::vector<ChoiceStart>& starts,
               const std::vector<std::string>& stops)
    : tokenizer_(std::move(tokenizer)),
      writer_(std::move(head), *tokenizer_),
      mode_(mode),
      choices_per_prompt_(choices_per_prompt),
      open_(starts.size()) {
  INFOS_CHECK(choices_per_prompt > 0);
  const auto keep = writer_.head().top_logprobs >= 0 ? KeepLogprobs::yes : KeepLogprobs::no;
  choices_.reserve(starts.size());
  for (const ChoiceStart& start : starts) {
    choices_.push_back({ChoiceText(*tokenizer_, start.place, stops, keep), {}, 0, 0, false, false});
    choices_.back().text.ready_text = start.echo;
  }
}

bool Answer::deliver(std::uint32_t index, std::span<const SampledToken> tokens) {
  INFOS_CHECK(index < choices_.size());
  Choice& choice = choices_[index];
  if (choice.done || choice.text.stopped()) return false;
  begun_ = true;
  const bool stopped = choice.text.push(tokens);
  emit(index, choice);
  return stopped;
}

void Answer::finish(std::uint32_t index, const Finish& finish) {
  INFOS_CHECK(index < choices_.size());
  Choice& choice = choices_[index];
  if (choice.done) return;
  begun_ = true;
  choice.text.finish();
  choice.done = true;
  choice.prompt_tokens = finish.prompt_tokens;
  choice.cached_tokens = finish.cached_tokens;
  choice.result.reason = choice.text.stopped() ? FinishReason::stop : finish.reason;
  emit(index, choice);
  if (mode_ == AnswerMode::stream) writer_.finish(events_, index, choice.result.reason);
  --open_;
}

void Answer::emit(std::uint32_t index, Choice& choice) {
  std::string& text = choice.text.ready_text;
  std::vector<TokenEntry>& entries = choice.text.ready_entries;
  if (mode_ == AnswerMode::stream) {
    if (!choice.begun && writer_.head().api == Api::chat) writer_.role(events_, index);
    choice.begun = true;
    if (text.empty() && entries.empty()) return;
    writer_.text(events_, index, text, entries);
  } else {
    choice.result.text += text;
    std::move(entries.begin(), entries.end(), std::back_inserter(choice.result.entries));
  }
  text.clear();
  entries.clear();
}

void Answer::take_events(std::string& out) {
  out += events_;
  events_.clear();
}

void Answer::close(std::string& out) const {
  INFOS_CHECK(complete());
  if (writer_.head().include_usage) writer_.usage(out, usage());
  AnswerWriter::done(out);
}

std::string Answer::body() const {
  INFOS_CHECK(complete());
  std::vector<ChoiceResult> results;
  results.reserve(choices_.size());
  for (const Choice& choice : choices_) results.push_back(choice.result);
  return writer_.whole(results, usage());
}

Usage Answer::usage() const {
  Usage total;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    total.completion_tokens += choices_[i].text.tokens();
    if (i % choices_per_prompt_ != 0) continue;  // a prompt counts once, as its first choice saw it
    total.prompt_tokens += choices_[i].prompt_tokens;
    total.cached_tokens += choices_[i].cached_tokens;
  }
  return total;
}

}  // namespace infos
