// SPDX-License-Identifier: Apache-2.0
#include "simulator/world/ledger.h"

#include <algorithm>

#include "daemon/control/finish_word.h"
#include "simulator/world/answer.h"
#include "topology/base/check.h"

namespace infos {
namespace {

std::string about(RequestId request, const std::string& what) {
  return "request " + std::to_string(request.value) + " " + what;
}

}  // namespace

void Ledger::asked(Time now, const Arrive& arrive) {
  INFOS_CHECK(arrive.request.value == entries_.size() + 1);
  Entry entry;
  entry.asked = now;
  entry.deadline = arrive.deadline;
  entry.chain = chain_of(arrive.prompt);
  entry.seed = arrive.sampling.seed;
  entry.prompt_tokens = static_cast<std::uint32_t>(arrive.prompt.size());
  entry.max_new_tokens = arrive.max_new_tokens;
  if (!arrive.stop_tokens.empty()) {
    stop_tokens_.push_back(arrive.stop_tokens);
    entry.stop_token_at = static_cast<std::uint32_t>(stop_tokens_.size());
  }
  entries_.push_back(entry);
  ++open_;
}

bool Ledger::is_stop(const Entry& entry, TokenId token) const {
  if (entry.stop_token_at == 0) return false;
  const std::vector<TokenId>& stops = stop_tokens_[entry.stop_token_at - 1];
  return std::ranges::find(stops, token) != stops.end();
}

std::string Ledger::told(Time now, const Deliver& effect) {
  if (effect.request.value == 0 || effect.request.value > entries_.size())
    return about(effect.request, "does not exist but got tokens");
  Entry& entry = at(effect.request);
  if (entry.ended) return about(effect.request, "got tokens after its last word");
  if (effect.tokens.empty()) return about(effect.request, "got an empty delivery");
  for (const SampledToken& token : effect.tokens) {
    const TokenId due = draw(entry.chain, entry.seed);
    const auto wrong = [&](const std::string& what) {
      return about(effect.request, "token " + std::to_string(entry.delivered) + " is " +
                                       std::to_string(token.token) + ": " + what);
    };
    if (token.token != due) return wrong("must be " + std::to_string(due));
    if (is_stop(entry, due)) return wrong("a stop token was delivered");
    if (entry.delivered >= entry.max_new_tokens) return wrong("more than was asked for");
    if (entry.delivered == 0)
      first_token.add(now - entry.asked);
    else
      inter_token.add(now - entry.last_token);
    entry.last_token = now;
    entry.chain = chain_next(entry.chain, due);
    ++entry.delivered;
    ++tokens;
  }
  hash = chain_next(hash ^ entry.chain, static_cast<TokenId>(effect.request.value));
  return "";
}

std::string Ledger::end(Entry& entry, const std::string& outcome) {
  entry.ended = true;
  --open_;
  ++outcomes[outcome];
  hash = chain_next(hash ^ entry.chain, static_cast<TokenId>(outcome.size()));
  return "";
}

std::string Ledger::told(Time now, const Finish& effect) {
  if (effect.request.value == 0 || effect.request.value > entries_.size())
    return about(effect.request, "does not exist but was finished");
  Entry& entry = at(effect.request);
  const auto wrong = [&](const std::string& what) {
    return about(effect.request, std::string("finished with '") + to_string(effect.reason) + "' (" +
                                     effect.message + ") " + what);
  };
  if (entry.ended) return wrong("after its last word");
  if (effect.completion_tokens != entry.delivered) return wrong("and a wrong count of tokens");
  if (effect.prompt_tokens != entry.prompt_tokens)
    return wrong("and a wrong count of prompt tokens");
  if (effect.attempts > gateway_.max_attempts) return wrong("after too many attempts");
  const bool context_full = entry.prompt_tokens + entry.delivered >= max_context_;
  switch (effect.reason) {
    case FinishReason::none:
      return wrong("which says nothing");
    case FinishReason::stop:
      if (!entry.stopped && !is_stop(entry, draw(entry.chain, entry.seed)))
        return wrong("where no stop token is due");
      break;
    case FinishReason::length:
      if (entry.delivered != entry.max_new_tokens && !context_full)
        return wrong("before its length");
      break;
    case FinishReason::cancelled:
      if (!entry.gone) return wrong("but the client is there");
      break;
    case FinishReason::prefilled:
      return wrong("with half a request");
    case FinishReason::error:
      if (effect.attempts < gateway_.max_attempts && now < entry.deadline &&
          now - entry.asked < gateway_.queue_timeout) {
        return wrong("too early to give up");
      }
      break;
  }
  retries += effect.attempts - 1;
  prompt_tokens += effect.prompt_tokens;
  cached_tokens += effect.cached_tokens;
  whole_answer.add(now - entry.asked);
  return end(entry, to_string(effect.reason));
}

std::string Ledger::told(Time, const Reject& effect) {
  if (effect.request.value == 0 || effect.request.value > entries_.size())
    return about(effect.request, "does not exist but was refused");
  Entry& entry = at(effect.request);
  if (entry.ended) return about(effect.request, "was refused after its last word");
  if (entry.delivered > 0) return about(effect.request, "was refused in the middle of its answer");
  if (effect.message.empty() || effect.code.empty())
    return about(effect.request, "was refused without a reason");
  return end(entry, "rejected-" + std::to_string(effect.http_status));
}

std::string Ledger::first_open() const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i].ended)
      return "request " + std::to_string(i + 1) + " (" + std::to_string(entries_[i].delivered) +
             " tokens delivered)";
  }
  return "none";
}

}  // namespace infos
