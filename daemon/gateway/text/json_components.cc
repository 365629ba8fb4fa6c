// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/text/json_components.h"

#include "daemon/gateway/text/text_tokenizer.h"

namespace infos::text {
namespace {

using Flag = JsonPlace::Flag;

constexpr std::string_view kNormalizers = "Sequence, Prepend, Replace, Strip, NFC";
constexpr std::string_view kPreTokenizers =
    "Sequence, ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit";
constexpr std::string_view kDecoders =
    "Sequence, ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip";
constexpr std::string_view kProcessors = "Sequence, ByteLevel, TemplateProcessing";
constexpr std::string_view kBehaviors =
    "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous";
constexpr std::size_t kStepsMax = 64;

/// The components of `place`: those of a Sequence (which may be nested), or it alone.
Status flatten(const JsonPlace& place, std::string_view list_name, std::vector<JsonPlace>& out) {
  const std::string_view type = INFOS_TRY(INFOS_TRY(place.member("type")).string());
  if (type != "Sequence") {
    out.push_back(place);
    if (out.size() > kStepsMax)
      return place.corrupt("more than " + std::to_string(kStepsMax) + " components");
    return {};
  }
  for (const JsonPlace& item : INFOS_TRY(INFOS_TRY(place.member(list_name)).items()))
    INFOS_TRY(flatten(item, list_name, out));
  return {};
}

Result<std::vector<JsonPlace>> components(const JsonPlace& root, std::string_view name,
                                          std::string_view list_name) {
  std::vector<JsonPlace> out;
  if (const auto place = root.find(name)) INFOS_TRY(flatten(*place, list_name, out));
  return out;
}

Result<std::string_view> type_of(const JsonPlace& place) {
  return INFOS_TRY(place.member("type")).string();
}

/// PCRE2's spelling of a pattern that is to be taken as it stands.
std::string quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = static_cast<unsigned char>(c) >= 0x80 || (c >= '0' && c <= '9') ||
                       (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == ' ';
    if (!plain) out += '\\';
    out += c;
  }
  return out;
}

struct Pattern {
  std::string text;
  bool is_regex = false;
};

Result<Pattern> pattern_of(const JsonPlace& place) {
  const JsonPlace pattern = INFOS_TRY(place.member("pattern"));
  if (pattern.is_string()) return Pattern{std::string(INFOS_TRY(pattern.string())), false};
  if (const auto text = pattern.find("String"))
    return Pattern{std::string(INFOS_TRY(text->string())), false};
  if (const auto text = pattern.find("Regex"))
    return Pattern{std::string(INFOS_TRY(text->string())), true};
  return pattern.corrupt("want {\"String\": text} or {\"Regex\": pattern}");
}

Result<Regex> compile_at(const JsonPlace& place, std::string_view pattern) {
  auto regex = Regex::compile(pattern);
  if (!regex.ok()) return place.error(regex.error().code, regex.error().message);
  return regex;
}

Result<NormalizeStep> normalize_step(const JsonPlace& place) {
  const std::string_view type = INFOS_TRY(type_of(place));
  if (type == "NFC") return NormalizeStep(NfcStep{});
  if (type == "Prepend")
    return NormalizeStep(
        PrependStep{std::string(INFOS_TRY(INFOS_TRY(place.member("prepend")).string()))});
  if (type == "Replace") {
    const Pattern pattern = INFOS_TRY(pattern_of(place));
    std::string content(INFOS_TRY(INFOS_TRY(place.member("content")).string()));
    if (pattern.text.empty()) return place.corrupt("the pattern is empty");
    if (pattern.is_regex)
      return NormalizeStep(
          ReplaceRegexStep{INFOS_TRY(compile_at(place, pattern.text)), std::move(content)});
    return NormalizeStep(ReplaceStep{pattern.text, std::move(content)});
  }
  if (type == "Strip") {
    const bool left = INFOS_TRY(place.flag_or("strip_left", Flag::yes)) == Flag::yes;
    const bool right = INFOS_TRY(place.flag_or("strip_right", Flag::yes)) == Flag::yes;
    if (left && right) return NormalizeStep(StripStep{StripStep::Side::both});
    if (left || right)
      return NormalizeStep(StripStep{left ? StripStep::Side::left : StripStep::Side::right});
    return place.corrupt("strip_left and strip_right are both false");
  }
  return place.unsupported(type, kNormalizers);
}

Result<RegexSplit::Behavior> behavior_of(const JsonPlace& place, std::string_view otherwise) {
  using Behavior = RegexSplit::Behavior;
  const std::string_view name = INFOS_TRY(place.string_or("behavior", otherwise));
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  return place.unsupported(name, kBehaviors);
}

Result<SplitStep> metaspace_step(const JsonPlace& place) {
  MetaspaceStep step;
  step.replacement = std::string(INFOS_TRY(place.string_or("replacement", "\u2581")));
  if (step.replacement.empty()) return place.corrupt("the replacement is empty");
  const bool prefix =
      INFOS_TRY(place.flag_or("add_prefix_space", Flag::yes)) == Flag::yes;  // the older spelling
  const std::string_view scheme =
      INFOS_TRY(place.string_or("prepend_scheme", prefix ? "always" : "never"));
  if (scheme == "first") {
    step.prepend = MetaspaceStep::Prepend::first;
  } else if (scheme == "never") {
    step.prepend = MetaspaceStep::Prepend::never;
  } else if (scheme != "always") {
    return place.unsupported(scheme, "always, first, never");
  }
  if (INFOS_TRY(place.flag_or("split", Flag::yes)) == Flag::no) step.cut = MetaspaceStep::Cut::no;
  return SplitStep(std::move(step));
}

Result<SplitStep> split_step(const JsonPlace& place, std::string_view type) {
  using Behavior = RegexSplit::Behavior;
  const auto regex = [&](std::string_view pattern, Behavior behavior,
                         RegexSplit::Invert invert) -> Result<SplitStep> {
    return SplitStep(RegexSplit{INFOS_TRY(compile_at(place, pattern)), behavior, invert});
  };
  constexpr auto kKeep = RegexSplit::Invert::no;
  if (type == "Split") {
    const Pattern pattern = INFOS_TRY(pattern_of(place));
    if (pattern.text.empty()) return place.corrupt("the pattern is empty");
    const auto invert =
        INFOS_TRY(place.flag_or("invert", Flag::no)) == Flag::yes ? RegexSplit::Invert::yes : kKeep;
    return regex(pattern.is_regex ? pattern.text : quoted(pattern.text),
                 INFOS_TRY(behavior_of(place, "Isolated")), invert);
  }
  if (type == "Digits") {
    const bool each = INFOS_TRY(place.flag_or("individual_digits", Flag::no)) == Flag::yes;
    return regex(each ? "\\p{N}" : "\\p{N}+", Behavior::isolated, kKeep);
  }
  if (type == "Punctuation")
    return regex("[!-/:-@\\[-`{-~\\p{P}]", INFOS_TRY(behavior_of(place, "Isolated")), kKeep);
  if (type == "Whitespace")
    return regex("\\w+|[^\\w\\s]+", Behavior::removed, RegexSplit::Invert::yes);
  if (type == "WhitespaceSplit") return regex("\\s+", Behavior::removed, kKeep);
  if (type == "Metaspace") return metaspace_step(place);
  return place.unsupported(type, kPreTokenizers);
}

Status decode_step(const JsonPlace& place, bool fused, Decoding& out) {
  const std::string_view type = INFOS_TRY(type_of(place));
  if (type == "ByteLevel") {
    out.byte_level = true;
  } else if (type == "ByteFallback") {
    out.byte_fallback = true;
  } else if (type == "Metaspace") {
    const std::string_view replacement = INFOS_TRY(place.string_or("replacement", "\u2581"));
    const bool prefix = INFOS_TRY(place.flag_or("add_prefix_space", Flag::yes)) == Flag::yes;
    const std::string_view scheme =
        INFOS_TRY(place.string_or("prepend_scheme", prefix ? "always" : "never"));
    if (replacement.empty()) return place.corrupt("the replacement is empty");
    out.replacements.emplace_back(replacement, " ");
    if (scheme != "never") out.strip_first_spaces = 1;
  } else if (type == "Replace") {
    const Pattern pattern = INFOS_TRY(pattern_of(place));
    if (pattern.is_regex) return place.unsupported("Replace with a Regex", "Replace with a String");
    if (pattern.text.empty()) return place.corrupt("the pattern is empty");
    out.replacements.emplace_back(
        pattern.text, std::string(INFOS_TRY(INFOS_TRY(place.member("content")).string())));
  } else if (type == "Strip") {
    const std::int64_t start = INFOS_TRY(INFOS_TRY(place.member("start")).integer());
    const std::int64_t stop = INFOS_TRY(INFOS_TRY(place.member("stop")).integer());
    const std::string_view content = INFOS_TRY(INFOS_TRY(place.member("content")).string());
    if (!fused || content != " " || stop != 0 || start < 0 || start > 16)
      return place.unsupported("Strip of this kind",
                               "after Fuse, content ' ', start 0 to 16, stop 0");
    out.strip_first_spaces = static_cast<std::size_t>(start);
  } else if (type != "Fuse") {
    return place.unsupported(type, kDecoders);
  }
  return {};
}

Result<std::vector<TokenId>> template_prefix(const JsonPlace& place) {
  std::vector<TokenId> out;
  for (const JsonPlace& item : INFOS_TRY(INFOS_TRY(place.member("single")).items())) {
    if (item.find("Sequence")) break;
    const JsonPlace special = INFOS_TRY(item.member("SpecialToken"));
    const std::string_view name = INFOS_TRY(INFOS_TRY(special.member("id")).string());
    const JsonPlace known = INFOS_TRY(INFOS_TRY(place.member("special_tokens")).member(name));
    for (const JsonPlace& id : INFOS_TRY(INFOS_TRY(known.member("ids")).items())) {
      const std::int64_t value = INFOS_TRY(id.integer());
      if (value < 0 || value >= static_cast<std::int64_t>(kVocabularyMax))
        return id.corrupt(std::to_string(value) + " is no token");
      out.push_back(static_cast<TokenId>(value));
      if (out.size() > kStepsMax)
        return place.corrupt("more than " + std::to_string(kStepsMax) + " tokens before the text");
    }
  }
  return out;
}

}  // namespace

Status read_normalizer(const JsonPlace& root, Normalizer& out) {
  for (const JsonPlace& place : INFOS_TRY(components(root, "normalizer", "normalizers")))
    out.add(INFOS_TRY(normalize_step(place)));
  return {};
}

Result<PreTokenizing> read_pre_tokenizer(const JsonPlace& root) {
  PreTokenizing out;
  for (const JsonPlace& place : INFOS_TRY(components(root, "pre_tokenizer", "pretokenizers"))) {
    const std::string_view type = INFOS_TRY(type_of(place));
    if (out.byte_level) return place.unsupported(type, "nothing after ByteLevel");
    if (type != "ByteLevel") {
      out.splitter.add(INFOS_TRY(split_step(place, type)));
      continue;
    }
    out.byte_level = true;
    if (INFOS_TRY(place.flag_or("add_prefix_space", Flag::yes)) == Flag::yes)
      out.splitter.add(PrefixSpaceStep{});
    if (INFOS_TRY(place.flag_or("use_regex", Flag::yes)) == Flag::yes)
      out.splitter.add(RegexSplit{INFOS_TRY(compile_at(place, kGpt2Pattern))});
  }
  return out;
}

std::string Decoding::bytes_of(std::string_view token) const {
  if (byte_level) return bytes_of_alphabet(token).value_or(std::string(token));
  if (byte_fallback)
    if (const int byte = byte_of_name(token); byte >= 0)
      return std::string(1, static_cast<char>(byte));
  std::string out(token);
  Normalizer replace;
  for (const auto& [from, to] : replacements) replace.add(ReplaceStep{from, to});
  return replace.apply(out);
}

Result<Decoding> read_decoder(const JsonPlace& root, const PreTokenizing& pre) {
  Decoding out;
  const std::vector<JsonPlace> places = INFOS_TRY(components(root, "decoder", "decoders"));
  if (places.empty() && !pre.byte_level)
    return root.error(ErrorCode::unsupported,
                      "the decoder is missing; supported: " + std::string(kDecoders));
  if (places.empty()) out.byte_level = true;
  bool fused = false;
  for (const JsonPlace& place : places) {
    INFOS_TRY(decode_step(place, fused, out));
    fused |= INFOS_TRY(type_of(place)) == "Fuse";
  }
  if (out.byte_level != pre.byte_level)
    return root.error(ErrorCode::unsupported,
                      "ByteLevel must be in both of pre_tokenizer and decoder, or in none");
  return out;
}

Result<std::vector<TokenId>> read_prefix(const JsonPlace& root) {
  std::vector<TokenId> out;
  for (const JsonPlace& place : INFOS_TRY(components(root, "post_processor", "processors"))) {
    const std::string_view type = INFOS_TRY(type_of(place));
    if (type == "ByteLevel") continue;
    if (type != "TemplateProcessing") return place.unsupported(type, kProcessors);
    const std::vector<TokenId> before = INFOS_TRY(template_prefix(place));
    out.insert(out.begin(), before.begin(), before.end());
  }
  return out;
}

}  // namespace infos::text
