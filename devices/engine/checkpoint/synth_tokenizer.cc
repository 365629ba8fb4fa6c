// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "devices/engine/checkpoint/synth.h"

namespace infos {
namespace {

constexpr std::int32_t kNormal = 1, kControl = 3;

/// UTF-8 of a code point below 0x800.
std::string utf8(std::uint32_t code) {
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))};
}

/// The visible stand-in of a byte in byte-level vocabularies: printable Latin-1 as itself, the
/// others from U+0100 on. Source: the byte alphabet of GPT-2's tokenizer.
std::string byte_letter(int byte) {
  const auto visible = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  if (visible(byte)) return utf8(static_cast<std::uint32_t>(byte));
  std::uint32_t code = 0x100;
  for (int b = 0; b < byte; ++b) code += visible(b) ? 0 : 1;
  return utf8(code);
}

/// Joins that make a few English words; each makes a new token out of two that are there before it.
constexpr std::pair<const char*, const char*> kMerges[] = {
    {" ", "t"},  {"h", "e"},   {" ", "a"},  {"i", "n"}, {" t", "he"}, {"e", "r"},  {"o", "n"},
    {" ", "s"},  {"r", "e"},   {"a", "t"},  {" ", "w"}, {"o", "r"},   {"e", "n"},  {" ", "c"},
    {"i", "t"},  {"i", "s"},   {"a", "n"},  {" ", "o"}, {"e", "s"},   {"in", "g"}, {"o", "u"},
    {" a", "n"}, {" an", "d"}, {" t", "o"}, {"l", "l"}, {"he", "r"},
};

std::string in_letters(std::string_view text) {
  std::string out;
  for (const char c : text) out += byte_letter(static_cast<unsigned char>(c));
  return out;
}

constexpr const char* kChatTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + "
    "'\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

}  // namespace

TokenizerSource synth_tokenizer(ModelFamily family, std::uint32_t vocab) {
  INFOS_CHECK(vocab >= 320);
  const bool is_qwen = family == ModelFamily::qwen2 || family == ModelFamily::qwen3;
  TokenizerSource::Gguf gguf;
  gguf.model = "gpt2";
  gguf.pre = is_qwen ? "qwen2" : "llama-bpe";
  gguf.add_space_prefix = false;
  const auto add = [&](std::string text, std::int32_t type) {
    gguf.tokens.push_back(std::move(text));
    gguf.types.push_back(type);
    return static_cast<std::int32_t>(gguf.tokens.size() - 1);
  };
  for (int byte = 0; byte < 256; ++byte) add(byte_letter(byte), kNormal);
  for (const auto& [left, right] : kMerges) {
    gguf.merges.push_back(in_letters(left) + " " + in_letters(right));
    add(in_letters(left) + in_letters(right), kNormal);
  }
  const std::int32_t end_of_text = add(is_qwen ? "<|endoftext|>" : "<|end_of_text|>", kControl);
  add("<|im_start|>", kControl);
  gguf.eos = add("<|im_end|>", kControl);
  gguf.padding = end_of_text;
  if (!is_qwen) {
    gguf.bos = add("<|begin_of_text|>", kControl);
    gguf.add_bos = true;
  }
  while (gguf.tokens.size() < vocab)
    add(in_letters(fmt::format(" w{}", gguf.tokens.size())), kNormal);
  TokenizerSource source;
  source.chat_template = kChatTemplate;
  source.eos_token = gguf.tokens[gguf.eos];
  if (gguf.bos >= 0) source.bos_token = gguf.tokens[gguf.bos];
  source.add_bos = gguf.add_bos;
  source.gguf = std::move(gguf);
  return source;
}

}  // namespace infos
