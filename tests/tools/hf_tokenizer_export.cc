// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/hf_tokenizer_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace infos::test {
namespace {

using Vocabulary = TokenizerSource::Gguf;

struct Merge {
  std::string left, right;
  float score = 0;
  std::int32_t left_id = 0, right_id = 0;
};

/// Every way to make a piece out of two pieces, best score first: SentencePiece joins the pair
/// whose result scores best.
std::vector<Merge> merges_of(const Vocabulary& vocabulary) {
  std::unordered_map<std::string, std::int32_t> ids;
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i)
    if (vocabulary.types[i] == 1) ids.emplace(vocabulary.tokens[i], static_cast<std::int32_t>(i));
  std::vector<Merge> merges;
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.types[i] != 1) continue;
    const std::string& piece = vocabulary.tokens[i];
    for (std::size_t cut = 1; cut < piece.size(); ++cut) {
      const auto left = ids.find(piece.substr(0, cut)), right = ids.find(piece.substr(cut));
      if (left != ids.end() && right != ids.end())
        merges.push_back(
            {left->first, right->first, vocabulary.scores[i], left->second, right->second});
    }
  }
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    if (a.score != b.score) return a.score > b.score;
    return std::pair(a.left_id, a.right_id) < std::pair(b.left_id, b.right_id);
  });
  return merges;
}

std::string added_tokens(const Vocabulary& vocabulary) {
  std::string out;
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::int32_t type = vocabulary.types[i];
    if (type != 2 && type != 3 && type != 4) continue;
    out += fmt::format(
        R"({}{{"id":{},"content":{},"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":{}}})",
        out.empty() ? "" : ",", i, json_quote(vocabulary.tokens[i]), type == 4 ? "false" : "true");
  }
  return out;
}

std::string post_processor(const Vocabulary& vocabulary) {
  if (!vocabulary.add_bos || vocabulary.bos < 0) return "null";
  const std::string bos = json_quote(vocabulary.tokens[vocabulary.bos]);
  return fmt::format(
      R"({{"type":"TemplateProcessing","single":[{{"SpecialToken":{{"id":{0},"type_id":0}}}},{{"Sequence":{{"id":"A","type_id":0}}}}],)"
      R"("pair":[{{"SpecialToken":{{"id":{0},"type_id":0}}}},{{"Sequence":{{"id":"A","type_id":0}}}},)"
      R"({{"SpecialToken":{{"id":{0},"type_id":1}}}},{{"Sequence":{{"id":"B","type_id":1}}}}],)"
      R"("special_tokens":{{{0}:{{"id":{0},"ids":[{1}],"tokens":[{0}]}}}}}})",
      bos, vocabulary.bos);
}

std::string model(const Vocabulary& vocabulary) {
  std::string vocab, merges;
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i)
    vocab += fmt::format("{}{}:{}", i ? "," : "", json_quote(vocabulary.tokens[i]), i);
  for (const auto& merge : merges_of(vocabulary))
    merges +=
        fmt::format("{}{}", merges.empty() ? "" : ",", json_quote(merge.left + " " + merge.right));
  const std::string unknown =
      vocabulary.unknown >= 0 ? json_quote(vocabulary.tokens[vocabulary.unknown]) : "null";
  return fmt::format(
      R"({{"type":"BPE","dropout":null,"unk_token":{},"continuing_subword_prefix":null,"end_of_word_suffix":null,)"
      R"("fuse_unk":true,"byte_fallback":true,"vocab":{{{}}},"merges":[{}]}})",
      unknown, vocab, merges);
}

}  // namespace

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += fmt::format("\\{}", c);
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out + "\"";
}

Result<std::string> tokenizer_json_of(const Vocabulary& vocabulary) {
  if (vocabulary.model != "llama")
    return Error{ErrorCode::unsupported,
                 fmt::format("tokenizer model is \"{}\": want llama", vocabulary.model)};
  const char* prepend = vocabulary.add_space_prefix ? R"({"type":"Prepend","prepend":"▁"},)" : "";
  const char* strip =
      vocabulary.add_space_prefix ? R"(,{"type":"Strip","content":" ","start":1,"stop":0})" : "";
  return fmt::format(
      R"({{"version":"1.0","truncation":null,"padding":null,"added_tokens":[{}],)"
      R"("normalizer":{{"type":"Sequence","normalizers":[{}{{"type":"Replace","pattern":{{"String":" "}},"content":"▁"}}]}},)"
      R"("pre_tokenizer":null,"post_processor":{},)"
      R"("decoder":{{"type":"Sequence","decoders":[{{"type":"Replace","pattern":{{"String":"▁"}},"content":" "}},)"
      R"({{"type":"ByteFallback"}},{{"type":"Fuse"}}{}]}},"model":{}}})",
      added_tokens(vocabulary), prepend, post_processor(vocabulary), strip, model(vocabulary));
}

}  // namespace infos::test
