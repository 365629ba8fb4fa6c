// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/text/vocabulary.h"

namespace infos::text {
namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

void Vocabulary::set(TokenId id, Token token) {
  INFOS_CHECK(id >= 0);
  const auto index = static_cast<std::size_t>(id);
  if (index >= tokens_.size()) tokens_.resize(index + 1);
  ids_.try_emplace(token.text, id);
  tokens_[index] = std::move(token);
}

TokenId Vocabulary::find(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? -1 : found->second;
}

void AddedTokens::add(AddedToken token) {
  INFOS_CHECK(!token.text.empty());
  INFOS_CHECK(token.text.size() <= kAddedTokenBytesMax);
  std::uint32_t node = 0;
  for (const char c : token.text) {
    const auto byte = static_cast<unsigned char>(c);
    const auto [place, fresh] =
        nodes_[node].next.try_emplace(byte, static_cast<std::uint32_t>(nodes_.size()));
    const std::uint32_t next = place->second;
    if (fresh) nodes_.emplace_back();  // may move the nodes: `place` is dead from here
    if (node == 0) first_[byte] = next;
    node = next;
  }
  if (nodes_[node].token >= 0) return;  // the same text twice: the first keeps it
  nodes_[node].token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(std::move(token));
}

const AddedToken* AddedTokens::match(std::string_view text, std::size_t at,
                                     Tokenizer::Specials specials) const {
  const AddedToken* longest = nullptr;
  std::uint32_t node = first_[static_cast<unsigned char>(text[at])];
  while (node != 0) {
    if (nodes_[node].token >= 0) {
      const AddedToken& token = tokens_[static_cast<std::size_t>(nodes_[node].token)];
      if (specials == Tokenizer::Specials::parse || token.kind == AddedToken::Class::user_defined)
        longest = &token;
    }
    if (++at == text.size()) break;
    const auto next = nodes_[node].next.find(static_cast<unsigned char>(text[at]));
    node = next == nodes_[node].next.end() ? 0 : next->second;
  }
  return longest;
}

std::vector<Fragment> AddedTokens::cut(std::string_view text, Tokenizer::Specials specials) const {
  std::vector<Fragment> out;
  std::size_t plain = 0;  // begin of the plain text not yet given out
  for (std::size_t at = 0; at < text.size() && !tokens_.empty();) {
    const AddedToken* token = match(text, at, specials);
    if (!token) {
      ++at;
      continue;
    }
    std::size_t end = at;
    if (token->left == AddedToken::Strip::yes)
      while (end > plain && is_space(text[end - 1])) --end;
    if (end > plain) out.push_back({text.substr(plain, end - plain), -1});
    out.push_back({text.substr(at, token->text.size()), token->id});
    at += token->text.size();
    if (token->right == AddedToken::Strip::yes)
      while (at < text.size() && is_space(text[at])) ++at;
    plain = at;
  }
  if (plain < text.size()) out.push_back({text.substr(plain), -1});
  return out;
}

}  // namespace infos::text
