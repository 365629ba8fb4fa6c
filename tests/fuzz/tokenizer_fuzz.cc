// SPDX-License-Identifier: Apache-2.0
// Fuzz target: any bytes as tokenizer.json, then any text through the tokenizer that came of it.
// The input is "tokenizer.json NUL text". What loads must take any text, keep ids in range, and
// stream the same as at once.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "daemon/gateway/text/utf8.h"
#include "daemon/gateway/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = input.find('\0');
  infos::TokenizerSource source;
  source.tokenizer_json = std::string(input.substr(0, cut));
  const std::string_view text = cut == std::string_view::npos
                                    ? std::string_view("Hello \xFF world 12")
                                    : input.substr(cut + 1);
  const auto tokenizer = infos::make_tokenizer(source);
  if (!tokenizer.ok()) return 0;
  const infos::Tokenizer& t = **tokenizer;
  infos::Detokenizer stream(t);
  std::string streamed, bytes;
  auto place = infos::Tokenizer::Place::first;
  for (const infos::TokenId token :
       t.encode(text, infos::Tokenizer::Specials::parse, infos::Tokenizer::AddBos::if_model_does)) {
    if (token < 0 || static_cast<std::size_t>(token) >= t.vocabulary()) std::abort();
    streamed += stream.push(token);
    bytes += t.piece(token, place);
    if (!t.is_control(token)) place = infos::Tokenizer::Place::later;
  }
  streamed += stream.flush();
  if (streamed != infos::text::make_valid_utf8(bytes)) std::abort();
  return 0;
}
