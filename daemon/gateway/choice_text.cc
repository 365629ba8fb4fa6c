// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/choice_text.h"

#include <utility>

namespace infos {

ChoiceText::ChoiceText(const Tokenizer& tokenizer, Tokenizer::Place start,
                       const std::vector<std::string>& stops, KeepLogprobs logprobs)
    : detokenizer_(tokenizer, start), matcher_(stops), logprobs_(logprobs) {}

void ChoiceText::take(const std::string& text) {
  text_bytes_ += text.size();
  for (const char c : text) text_chars_ += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  matcher_.feed(text, ready_text);
}

bool ChoiceText::push(std::span<const SampledToken> tokens) {
  for (const SampledToken& sampled : tokens) {
    if (matcher_.stopped()) return true;
    ++tokens_;
    if (logprobs_ == KeepLogprobs::yes) waiting_.push_back({sampled, text_bytes_, text_chars_});
    take(detokenizer_.push(sampled.token));
  }
  if (logprobs_ == KeepLogprobs::yes) release_entries(matcher_.passed());
  if (matcher_.stopped()) waiting_.clear();  // their text was cut off
  return matcher_.stopped();
}

void ChoiceText::finish() {
  if (matcher_.stopped()) return;
  take(detokenizer_.flush());
  if (matcher_.stopped()) return release_entries(matcher_.passed());
  matcher_.flush(ready_text);
  release_entries(UINT64_MAX);
}

// An entry goes out with the first byte of its text; a token that only began a character, with that
// character.
void ChoiceText::release_entries(std::uint64_t below) {
  while (!waiting_.empty() && waiting_.front().text_bytes < below) {
    ready_entries.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

}  // namespace infos
