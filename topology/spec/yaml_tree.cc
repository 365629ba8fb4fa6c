// SPDX-License-Identifier: Apache-2.0
#include "topology/spec/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <exception>
#include <sstream>
#include <utility>

#include "topology/spec/spec.h"

namespace infos {
namespace {

/// Leaves the library's recursion from inside a handler; never crosses read_yaml.
struct Stop {
  YamlProblem problem;
};

std::uint32_t from_mark(int n) { return n < 0 ? 1 : static_cast<std::uint32_t>(n) + 1; }

[[noreturn]] void stop(const YAML::Mark& mark, std::string message) {
  throw Stop{{from_mark(mark.line), from_mark(mark.column), std::move(message)}};
}

/// Bytes of the UTF-8 character at `at`, 0 when it is malformed, overlong, a surrogate or beyond
/// U+10FFFF.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(at);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  const unsigned second = byte(at + 1);
  if (first == 0xE0 && second < 0xA0) return 0;
  if (first == 0xED && second > 0x9F) return 0;
  if (first == 0xF0 && second < 0x90) return 0;
  if (first == 0xF4 && second > 0x8F) return 0;
  return length;
}

/// What must hold before the library sees a byte.
std::optional<YamlProblem> scan(std::string_view text) {
  if (text.size() > kSpecBytesMax)
    return YamlProblem{
        1, 1, fmt::format("the file has {} bytes, want at most {}", text.size(), kSpecBytesMax)};
  std::uint32_t line = 1;
  std::size_t line_start = 0;
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto column = static_cast<std::uint32_t>(i - line_start + 1);
    if (c == '\t') return YamlProblem{line, column, "a tab character, want spaces"};
    const bool line_end = c == '\n' || (c == '\r' && i + 1 < text.size() && text[i + 1] == '\n');
    if ((c < 0x20 && !line_end) || c == 0x7F)
      return YamlProblem{line, column,
                         fmt::format("control character 0x{:02x}, want printable text", c)};
    const std::size_t length = utf8_length(text, i);
    if (length == 0)
      return YamlProblem{line, column, fmt::format("byte 0x{:02x} is not UTF-8 text", c)};
    if (text.substr(i, 3) == "\xEF\xBB\xBF")
      return YamlProblem{line, column, "a byte order mark, want plain UTF-8 text"};
    i += length;
    if (c == '\n') {
      ++line;
      line_start = i;
    }
  }
  return std::nullopt;
}

class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view text, YamlText& out) : text_(text), out_(out) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    // The library begins a new document at any token it cannot use, without ever passing it (a lone
    // ","): only a separator may begin the second one.
    const auto at = static_cast<std::size_t>(mark.pos < 0 ? 0 : mark.pos);
    if (documents_ > 0 && text_.substr(at, 3) != "---")
      stop(mark, fmt::format("saw '{}', want '---' before another document, or the end of the file",
                             text_.substr(at, text_.substr(at, 24).find('\n'))));
    if (++documents_ > kSpecDocumentsMax)
      stop(mark, fmt::format("more than {} documents in one file", kSpecDocumentsMax));
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    put(make(mark, YamlNode::Kind::null), mark);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    stop(mark, "an alias ('*'), want the value itself");
  }
  void OnAnchor(const YAML::Mark& mark, const std::string& name) override {
    stop(mark, fmt::format("an anchor ('&{}'), want the value itself where it is used",
                           name.substr(0, 64)));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    YamlNode node = make(mark, YamlNode::Kind::scalar);
    node.quoted = tag == "!";
    if (node.quoted) check_closed(mark);
    node.text = value;
    put(std::move(node), mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::list);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::map);
  }
  void OnMapEnd() override { close(); }

 private:
  YamlNode make(const YAML::Mark& mark, YamlNode::Kind kind) {
    if (++nodes_ > kSpecNodesMax)
      stop(mark, fmt::format("more than {} values in one file", kSpecNodesMax));
    YamlNode node;
    node.kind = kind;
    node.line = from_mark(mark.line);
    node.column = from_mark(mark.column);
    return node;
  }
  static void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0) stop(mark, "an anchor ('&'), want the value itself where it is used");
  }
  static void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!")
      stop(mark, fmt::format("a tag ('{}'), want a plain value", tag.substr(0, 64)));
  }
  /// The library takes the end of the file for the end of a quoted text.
  void check_closed(const YAML::Mark& mark) const {
    std::size_t at = static_cast<std::size_t>(mark.pos < 0 ? 0 : mark.pos);
    const char quote = at < text_.size() ? text_[at] : ' ';
    if (quote != '"' && quote != '\'') return;  // a block scalar
    for (++at; at < text_.size(); ++at) {
      if (quote == '"' && text_[at] == '\\') {
        ++at;
      } else if (text_[at] == quote) {
        if (quote == '"' || at + 1 >= text_.size() || text_[at + 1] != quote) return;
        ++at;
      }
    }
    stop(mark,
         fmt::format("a text that begins with {} and never ends, want another {}", quote, quote));
  }
  /// True when the innermost open container is a map that waits for a key.
  bool wants_key() const {
    return !open_.empty() && open_.back().kind == YamlNode::Kind::map &&
           open_.back().keys.size() == open_.back().values.size();
  }
  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            YamlNode::Kind kind) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (wants_key()) stop(mark, "a list or map as a key, want a word");
    if (open_.size() >= kSpecDepthMax)
      stop(mark, fmt::format("values nested deeper than {} levels", kSpecDepthMax));
    open_.push_back(make(mark, kind));
  }
  void close() {
    YamlNode node = std::move(open_.back());
    open_.pop_back();
    attach(std::move(node));
  }
  void put(YamlNode node, const YAML::Mark& mark) {
    if (!wants_key()) return attach(std::move(node));
    if (node.kind != YamlNode::Kind::scalar || node.text.empty())
      stop(mark, "an empty key, want a word");
    open_.back().keys.push_back({std::move(node.text), node.line, node.column});
  }
  void attach(YamlNode node) {
    if (open_.empty()) {
      out_.documents.push_back(std::move(node));
    } else {
      open_.back().values.push_back(std::move(node));
    }
  }

  std::string_view text_;
  YamlText& out_;
  std::vector<YamlNode> open_;
  std::size_t nodes_ = 0;
  std::size_t documents_ = 0;
};

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    const auto c = static_cast<unsigned char>(text[i]);
    if (length == 0) out += '?';
    if (length == 1) out += c < 0x20 || c == 0x7F ? ' ' : text[i];
    if (length > 1) out += text.substr(i, length);
    i += length == 0 ? 1 : length;
  }
  return out;
}

YamlText read_yaml(std::string_view text) {
  YamlText out;
  out.problem = scan(text);
  if (out.problem) return out;
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    TreeBuilder builder(text, out);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Stop& stopped) {
    out.problem = stopped.problem;
  } catch (const YAML::Exception& error) {
    out.problem = YamlProblem{from_mark(error.mark.line), from_mark(error.mark.column),
                              "not YAML: " + error.msg};
  } catch (const std::exception& error) {
    out.problem = YamlProblem{1, 1, std::string("not YAML: ") + error.what()};
  }
  return out;
}

}  // namespace infos
