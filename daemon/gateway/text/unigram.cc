// SPDX-License-Identifier: Apache-2.0
// Unigram: the cut of the word whose tokens have the greatest sum of log probabilities (Viterbi).
// Among equal sums the one whose last token is longest wins. Source: Kudo 2018, "Subword
// Regularization".
#include <algorithm>
#include <limits>

#include "daemon/gateway/text/utf8.h"
#include "daemon/gateway/text/word_model.h"

namespace infos::text {
namespace {

constexpr double kUnknownPenalty = 10.0;  // below the least likely token, as SentencePiece has it

class Unigram final : public WordModel {
 public:
  Unigram(const Vocabulary& vocabulary, const std::vector<UnigramPiece>& pieces,
          const Fallback& fallback)
      : fallback_(fallback) {
    double least = 0;
    for (const UnigramPiece& piece : pieces) {
      least = std::min(least, piece.score);
      insert(vocabulary.at(piece.token).text, piece);
    }
    unknown_score_ = least - kUnknownPenalty;
  }

  void encode(std::string_view word, std::vector<TokenId>& out) const override {
    const std::vector<Best> best = search(word);
    std::vector<std::pair<std::size_t, std::size_t>> cut;  // (begin, end), last first
    for (std::size_t end = word.size(); end > 0; end = best[end].begin)
      cut.emplace_back(best[end].begin, end);
    bool after_unknown = false;
    for (auto part = cut.rbegin(); part != cut.rend(); ++part) {
      const TokenId token = best[part->second].token;
      if (token >= 0) {
        out.push_back(token);
        after_unknown = false;
      } else {
        after_unknown =
            fall_back(word.substr(part->first, part->second - part->first), after_unknown, out);
      }
    }
  }

 private:
  struct Best {
    double score = -std::numeric_limits<double>::infinity();
    std::size_t begin = 0;
    TokenId token = -1;  ///< -1: unknown character
  };
  struct Node {
    TokenId token = -1;
    double score = 0;
  };

  void insert(std::string_view text, const UnigramPiece& piece) {
    SymbolId node = 0;
    for (const char c : text) {
      const auto byte = static_cast<SymbolId>(static_cast<unsigned char>(c));
      const auto* edge = edges_.find(node, byte);
      if (edge) {
        node = edge->result;
        continue;
      }
      const auto next = static_cast<SymbolId>(nodes_.size());
      edges_.add(node, byte, 0, next);
      nodes_.emplace_back();
      node = next;
    }
    if (node != 0 && nodes_[static_cast<std::size_t>(node)].token < 0)
      nodes_[static_cast<std::size_t>(node)] = {piece.token, piece.score};
  }

  std::vector<Best> search(std::string_view word) const {
    std::vector<Best> best(word.size() + 1);
    best[0].score = 0;
    for (std::size_t begin = 0; begin < word.size();) {
      const std::uint32_t length = decode_utf8(word, begin).length;
      const double before = best[begin].score;
      bool character_covered = false;
      SymbolId node = 0;
      for (std::size_t at = begin; at < word.size(); ++at) {
        const auto* edge = edges_.find(node, static_cast<unsigned char>(word[at]));
        if (!edge) break;
        node = edge->result;
        const Node& reached = nodes_[static_cast<std::size_t>(node)];
        if (reached.token < 0) continue;
        offer(best[at + 1], {before + reached.score, begin, reached.token});
        character_covered |= at + 1 == begin + length;
      }
      if (!character_covered) offer(best[begin + length], {before + unknown_score_, begin, -1});
      begin += length;
    }
    return best;
  }

  static void offer(Best& place, const Best& candidate) {
    if (candidate.score > place.score) place = candidate;
  }

  bool fall_back(std::string_view bytes, bool after_unknown, std::vector<TokenId>& out) const {
    bool covered = fallback_.use_bytes;
    for (const char c : bytes)
      covered = covered && fallback_.bytes[static_cast<unsigned char>(c)] >= 0;
    if (covered) {
      for (const char c : bytes) out.push_back(fallback_.bytes[static_cast<unsigned char>(c)]);
      return false;
    }
    if (fallback_.unknown >= 0 && !(after_unknown && fallback_.fuse_unknown))
      out.push_back(fallback_.unknown);
    return true;
  }

  Fallback fallback_;
  PairMap edges_;  ///< (node, byte) -> node
  std::vector<Node> nodes_{1};
  double unknown_score_ = 0;
};

}  // namespace

std::unique_ptr<WordModel> make_unigram(const Vocabulary& vocabulary,
                                        const std::vector<UnigramPiece>& pieces,
                                        const Fallback& fallback) {
  return std::make_unique<Unigram>(vocabulary, pieces, fallback);
}

}  // namespace infos::text
