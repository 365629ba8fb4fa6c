// SPDX-License-Identifier: Apache-2.0
#include "topology/spec/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace infos {
namespace {

Error refuse(std::string message) { return {ErrorCode::invalid_argument, std::move(message)}; }

/// The node's word. Errors: it has none.
Result<std::string> word_of(const YamlNode& node, const std::string& want) {
  if (node.kind == YamlNode::Kind::scalar) return node.text;
  return refuse(fmt::format("saw {}, want {}", seen(node), want));
}

std::string number_text(double value) { return fmt::format("{}", value); }

const char* rule_type(TextRule rule) {
  switch (rule) {
    case TextRule::any:
      return "text";
    case TextRule::name:
      return "name";
    case TextRule::model_name:
      return "model name";
    case TextRule::place:
      return "node or node/device";
    case TextRule::path:
      return "path";
    case TextRule::address:
      return "host:port";
    case TextRule::url:
      return "URL";
  }
  return "text";
}

bool is_name(const std::string& text, std::string_view extra) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  if (text.empty() || text.size() > 128 || !plain(text.front())) return false;
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return plain(c) || extra.find(c) != std::string_view::npos; });
}

bool is_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || text.size() > 260) return false;
  const std::string port = text.substr(colon + 1);
  std::uint32_t n = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), n);
  if (error != std::errc{} || end != port.data() + port.size() || n == 0 || n > 65535) return false;
  const std::string host = text.substr(0, colon);
  const bool bracketed = host.front() == '[' && host.back() == ']';
  return bracketed || host.find_first_of(": /[]") == std::string::npos;
}

Scalar text_scalar(TextRule rule, std::string fallback,
                   std::function<void(std::string, const SpecPlace&)> set) {
  return {rule_type(rule), std::move(fallback),
          [rule, set](const YamlNode& node, const SpecPlace& place) -> Status {
            std::string word = INFOS_TRY(word_of(
                node, rule == TextRule::any ? "text" : fmt::format("a {}", rule_type(rule))));
            INFOS_TRY(check_text(word, rule));
            set(std::move(word), place);
            return {};
          }};
}

/// A value whose parser already says what is wrong and what is allowed.
template <typename T>
Scalar parsed_scalar(const char* type, std::string fallback, Result<T> (*parse)(std::string_view),
                     std::function<void(T)> set) {
  return {type, std::move(fallback),
          [type, parse, set](const YamlNode& node, const SpecPlace&) -> Status {
            const std::string word = INFOS_TRY(word_of(node, fmt::format("a {}", type)));
            set(INFOS_TRY(parse(word)));
            return {};
          }};
}

Scalar real_scalar(double low, double high, std::string fallback, std::function<void(double)> set) {
  const std::string type = fmt::format("number, {} to {}", low, high);
  return {type, std::move(fallback), [=](const YamlNode& node, const SpecPlace&) -> Status {
            const std::string word = INFOS_TRY(word_of(node, "a " + type));
            double value = 0;
            const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value,
                                                      std::chars_format::fixed);
            const bool whole_word =
                error == std::errc{} && end == word.data() + word.size() && !node.quoted;
            if (!whole_word || !std::isfinite(value) || value < low || value > high)
              return refuse(fmt::format("saw {}, want a {}", seen(node), type));
            set(value);
            return {};
          }};
}

}  // namespace

std::string seen(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null:
      return "nothing";
    case YamlNode::Kind::list:
      return "a list";
    case YamlNode::Kind::map:
      return "a map";
    case YamlNode::Kind::scalar:
      break;
  }
  std::string shown;
  for (const char c : node.text.substr(0, 64))
    shown += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  if (node.text.size() > 64) {
    while (!shown.empty() && (static_cast<unsigned char>(shown.back()) & 0xC0) == 0x80)
      shown.pop_back();
    if (!shown.empty() && static_cast<unsigned char>(shown.back()) >= 0xC0) shown.pop_back();
    shown += "...";
  }
  return node.quoted ? fmt::format("text '{}'", shown) : fmt::format("'{}'", shown);
}

std::string any_of(const std::vector<std::string>& words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i)
    out += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return out;
}

std::string nearest(const std::string& word, const std::vector<std::string>& words) {
  std::string best;
  std::size_t best_distance = 3;
  if (word.size() > 64) return best;
  for (const std::string& candidate : words) {
    std::vector<std::size_t> row(candidate.size() + 1);
    for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= word.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i;
      for (std::size_t j = 1; j < row.size(); ++j) {
        const std::size_t replaced = diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
      }
    }
    if (row.back() < best_distance && row.back() < candidate.size()) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

Status check_text(const std::string& text, TextRule rule) {
  YamlNode shown;
  shown.kind = YamlNode::Kind::scalar;
  shown.text = text;
  const auto want = [&](const char* allowed) {
    return Status(refuse(fmt::format("saw {}, want {}", seen(shown), allowed)));
  };
  switch (rule) {
    case TextRule::any:
      return text.size() <= 4096 ? Status() : want("at most 4096 bytes");
    case TextRule::name:
      return is_name(text, "-_.")
                 ? Status()
                 : want("1 to 128 letters, digits, '-', '_', '.', the first a letter or digit");
    case TextRule::model_name:
      return is_name(text, "-_./:@+")
                 ? Status()
                 : want("1 to 128 letters, digits, '-_./:@+', the first a letter or digit");
    case TextRule::place:
      return is_name(text, "-_./") ? Status() : want("the name of a node, or node/device");
    case TextRule::path:
      return !text.empty() && text.size() <= 4096 ? Status() : want("a path of 1 to 4096 bytes");
    case TextRule::address:
      return is_address(text) ? Status()
                              : want("host:port with port 1 to 65535, an IPv6 host in brackets");
    case TextRule::url:
      return (text.starts_with("http://") || text.starts_with("https://")) && text.size() <= 512 &&
                     text.size() > 8
                 ? Status()
                 : want("an http:// or https:// URL");
  }
  return {};
}

void Fields::text(const char* key, std::string& out, TextRule rule, const Note& note) {
  scalar(key, note, text_scalar(rule, out, [&out](std::string word, const SpecPlace&) {
           out = std::move(word);
         }));
}

void Fields::texts(const char* key, std::vector<std::string>& out, TextRule rule,
                   const Note& note) {
  scalars(key, note, text_scalar(rule, "", [&out](std::string word, const SpecPlace&) {
            out.push_back(std::move(word));
          }));
}

void Fields::reference(const char* key, SpecRef& out, TextRule rule, const Note& note) {
  scalar(key, note, text_scalar(rule, "", [&out](std::string word, const SpecPlace& place) {
           out = {std::move(word), place};
         }));
}

void Fields::references(const char* key, std::vector<SpecRef>& out, TextRule rule,
                        const Note& note) {
  scalars(key, note, text_scalar(rule, "", [&out](std::string word, const SpecPlace& place) {
            out.push_back({std::move(word), place});
          }));
}

void Fields::flag(const char* key, bool& out, const Note& note) {
  scalar(key, note,
         {"`true` or `false`", out ? "true" : "false",
          [&out](const YamlNode& node, const SpecPlace&) -> Status {
            const bool yes =
                node.kind == YamlNode::Kind::scalar && !node.quoted && node.text == "true";
            const bool no =
                node.kind == YamlNode::Kind::scalar && !node.quoted && node.text == "false";
            if (!yes && !no) return refuse(fmt::format("saw {}, want true or false", seen(node)));
            out = yes;
            return {};
          }});
}

void Fields::real(const char* key, double& out, double low, double high, const Note& note) {
  scalar(key, note,
         real_scalar(low, high, number_text(out), [&out](double value) { out = value; }));
}

void Fields::real(const char* key, std::optional<double>& out, double low, double high,
                  const Note& note) {
  scalar(key, note, real_scalar(low, high, out ? number_text(*out) : "", [&out](double value) {
           out = value;
         }));
}

void Fields::bytes(const char* key, std::optional<Bytes>& out, const Note& note) {
  scalar(key, note,
         parsed_scalar<Bytes>("size", out ? to_string(*out) : "", parse_bytes,
                              [&out](Bytes v) { out = v; }));
}

void Fields::duration(const char* key, Duration& out, const Note& note) {
  scalar(key, note,
         parsed_scalar<Duration>("duration", to_string(out), parse_duration,
                                 [&out](Duration v) { out = v; }));
}

void Fields::duration(const char* key, std::optional<Duration>& out, const Note& note) {
  const std::string fallback = out ? to_string(*out) : "";
  scalar(key, note,
         parsed_scalar<Duration>("duration", fallback, parse_duration,
                                 [&out](Duration v) { out = v; }));
}

void Fields::bandwidth(const char* key, std::optional<Bandwidth>& out, const Note& note) {
  const std::string fallback = out ? to_string(*out) : "";
  scalar(key, note,
         parsed_scalar<Bandwidth>("bandwidth", fallback, parse_bandwidth,
                                  [&out](Bandwidth v) { out = v; }));
}

void Fields::cores(const char* key, CoreList& out, const Note& note) {
  scalar(key, note,
         parsed_scalar<CoreList>("core list", to_string(out), parse_cores,
                                 [&out](CoreList v) { out = std::move(v); }));
}

void Fields::word(const char* key, std::string& out, std::vector<std::string> words,
                  const Note& note) {
  const std::string fallback = out;
  one_of(
      key, words, fallback, [&out, words](std::size_t i) { out = words[i]; }, note);
}

void Fields::whole(const char* key, std::uint64_t low, std::uint64_t high, std::string fallback,
                   std::function<void(std::uint64_t)> set, const Note& note) {
  const std::string type = fmt::format("whole number, {} to {}", low, high);
  scalar(key, note,
         {type, std::move(fallback), [=](const YamlNode& node, const SpecPlace&) -> Status {
            const std::string word = INFOS_TRY(word_of(node, "a " + type));
            std::uint64_t n = 0;
            const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), n);
            const bool whole_word =
                error == std::errc{} && end == word.data() + word.size() && !node.quoted;
            if (!whole_word || n < low || n > high)
              return refuse(fmt::format("saw {}, want a {}", seen(node), type));
            set(n);
            return {};
          }});
}

void Fields::one_of(const char* key, std::vector<std::string> words, std::string fallback,
                    std::function<void(std::size_t)> set, const Note& note) {
  std::vector<std::string> marked;
  for (const std::string& word : words) marked.push_back("`" + word + "`");
  scalar(
      key, note,
      {any_of(marked), std::move(fallback), [=](const YamlNode& node, const SpecPlace&) -> Status {
         for (std::size_t i = 0; i < words.size(); ++i) {
           if (node.kind != YamlNode::Kind::scalar || node.text != words[i]) continue;
           set(i);
           return {};
         }
         return refuse(fmt::format("saw {}, want {}", seen(node), any_of(words)));
       }});
}

}  // namespace infos
