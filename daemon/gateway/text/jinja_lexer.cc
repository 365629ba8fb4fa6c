// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/text/jinja_lexer.h"

#include <algorithm>
#include <array>

#include "daemon/gateway/text/utf8.h"

namespace infos::text::jinja {
namespace {

using Kind = Token::Kind;

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_begin(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name(char c) { return is_name_begin(c) || is_digit(c); }
int hex(char c) {
  return is_digit(c)            ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) INFOS_TRY(read_text_and_tag());
    push(Kind::end, "", at_);
    return std::move(tokens_);
  }

 private:
  Error error(std::size_t at, const std::string& what) const {
    return {ErrorCode::invalid_argument,
            "chat template " + place_of(source_, static_cast<std::uint32_t>(at)) + ": " + what};
  }
  bool here(std::string_view text) const { return source_.compare(at_, text.size(), text) == 0; }
  void push(Kind kind, std::string text, std::size_t offset) {
    tokens_.push_back({kind, std::move(text), static_cast<std::uint32_t>(offset)});
  }

  /// Position of the next "{{", "{%" or "{#", or the end.
  std::size_t next_tag() const {
    for (std::size_t at = source_.find('{', at_); at != std::string_view::npos;
         at = source_.find('{', at + 1))
      if (at + 1 < source_.size() &&
          (source_[at + 1] == '{' || source_[at + 1] == '%' || source_[at + 1] == '#'))
        return at;
    return source_.size();
  }

  /// Text before a tag, after the tag's own white space control and lstrip_blocks.
  void push_text(std::size_t end) {
    std::string_view text = source_.substr(at_, end - at_);
    if (end < source_.size()) {
      const char type = source_[end + 1];
      const char sign = end + 2 < source_.size() ? source_[end + 2] : ' ';
      if (sign == '-') {
        while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
      } else if (sign != '+' && type != '{') {
        const std::size_t newline = text.rfind('\n');
        const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
        const bool at_line_begin = newline != std::string_view::npos || line_starts_;
        if (at_line_begin &&
            std::all_of(text.begin() + static_cast<std::ptrdiff_t>(line), text.end(), is_space))
          text = text.substr(0, line);
      }
    }
    if (!text.empty()) push(Kind::text, std::string(text), at_);
    at_ = end;
  }

  /// After a tag's closing mark: '-' swallows all white space, a block or comment the next newline.
  void after_tag(char sign, char type) {
    const std::size_t before = at_;
    if (sign == '-') {
      while (at_ < source_.size() && is_space(source_[at_])) ++at_;
    } else if (sign != '+' && type != '{' && at_ < source_.size() && source_[at_] == '\n') {
      ++at_;
    }
    line_starts_ = at_ > before && source_[at_ - 1] == '\n';
  }

  Status read_text_and_tag() {
    push_text(next_tag());
    if (at_ == source_.size()) return {};
    const std::size_t begin = at_;
    const char type = source_[at_ + 1];
    at_ += 2;
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
    if (type == '#') return skip_comment(begin);
    if (type == '%' && is_raw_tag()) return read_raw(begin);
    push(type == '{' ? Kind::output_begin : Kind::block_begin, "", begin);
    return read_tag(begin, type);
  }

  Status skip_comment(std::size_t begin) {
    const std::size_t close = source_.find("#}", at_);
    if (close == std::string_view::npos)
      return error(begin, "the comment is not closed, want '#}'");
    const char sign = close > at_ ? source_[close - 1] : ' ';
    at_ = close + 2;
    after_tag(sign, '#');
    return {};
  }

  bool is_raw_tag() const {
    std::size_t at = at_;
    while (at < source_.size() && is_space(source_[at])) ++at;
    return source_.compare(at, 3, "raw") == 0 && at + 3 < source_.size() &&
           !is_name(source_[at + 3]);
  }

  Status read_raw(std::size_t begin) {
    const std::size_t open = source_.find("%}", at_);
    if (open == std::string_view::npos) return error(begin, "the tag is not closed, want '%}'");
    const char open_sign = source_[open - 1];
    at_ = open + 2;
    after_tag(open_sign, '%');
    for (std::size_t tag = source_.find("{%", at_); tag != std::string_view::npos;
         tag = source_.find("{%", tag + 2)) {
      std::size_t name = tag + 2;
      if (name < source_.size() && (source_[name] == '-' || source_[name] == '+')) ++name;
      while (name < source_.size() && is_space(source_[name])) ++name;
      if (source_.compare(name, 6, "endraw") != 0) continue;
      push_text(tag);
      const std::size_t close = source_.find("%}", name);
      if (close == std::string_view::npos) return error(tag, "the tag is not closed, want '%}'");
      at_ = close + 2;
      after_tag(source_[close - 1], '%');
      return {};
    }
    return error(begin, "'raw' is not closed, want 'endraw'");
  }

  Status read_tag(std::size_t begin, char type) {
    std::string brackets;  // '}}' closes the tag only outside of its own brackets
    while (true) {
      while (at_ < source_.size() && is_space(source_[at_])) ++at_;
      if (at_ >= source_.size())
        return error(begin, type == '{' ? "the tag is not closed, want '}}'"
                                        : "the tag is not closed, want '%}'");
      const std::string_view close = type == '{' ? "}}" : "%}";
      const bool sign = source_[at_] == '-' || source_[at_] == '+';
      if (brackets.empty() && source_.compare(at_ + (sign ? 1 : 0), 2, close) == 0) {
        push(type == '{' ? Kind::output_end : Kind::block_end, "", at_);
        const char mark = sign ? source_[at_] : ' ';
        at_ += sign ? 3 : 2;
        after_tag(mark, type);
        return {};
      }
      INFOS_TRY(read_token(brackets));
    }
  }

  Status read_token(std::string& brackets) {
    const std::size_t begin = at_;
    const char c = source_[at_];
    if (is_name_begin(c)) {
      while (at_ < source_.size() && is_name(source_[at_])) ++at_;
      push(Kind::name, std::string(source_.substr(begin, at_ - begin)), begin);
      return {};
    }
    if (is_digit(c)) return read_number();
    if (c == '\'' || c == '"') return read_string();
    static constexpr std::array<std::string_view, 24> kOperators = {
        "//", "**", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~",
        "<",  ">",  "=",  ".",  ",",  ":",  "|", "(", ")", "[", "]", "{"};
    for (const std::string_view op : kOperators) {
      if (!here(op)) continue;
      return read_operator(op, brackets);
    }
    if (c == '}') return read_operator("}", brackets);
    return error(begin, "the character '" + std::string(1, c) + "' has no meaning here");
  }

  Status read_operator(std::string_view op, std::string& brackets) {
    const char c = op[0];
    if (op.size() == 1 && (c == '(' || c == '[' || c == '{')) {
      brackets.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (op.size() == 1 && (c == ')' || c == ']' || c == '}')) {
      if (brackets.empty() || brackets.back() != c)
        return error(at_, "'" + std::string(op) + "' closes nothing");
      brackets.pop_back();
    }
    push(Kind::op, std::string(op), at_);
    at_ += op.size();
    return {};
  }

  Status read_number() {
    const std::size_t begin = at_;
    while (at_ < source_.size() && (is_digit(source_[at_]) || source_[at_] == '_')) ++at_;
    bool decimal = false;
    if (at_ + 1 < source_.size() && source_[at_] == '.' && is_digit(source_[at_ + 1])) {
      decimal = true;
      ++at_;
      while (at_ < source_.size() && is_digit(source_[at_])) ++at_;
    }
    if (at_ < source_.size() && (source_[at_] == 'e' || source_[at_] == 'E')) {
      std::size_t digits = at_ + 1;
      if (digits < source_.size() && (source_[digits] == '+' || source_[digits] == '-')) ++digits;
      if (digits < source_.size() && is_digit(source_[digits])) {
        decimal = true;
        at_ = digits;
        while (at_ < source_.size() && is_digit(source_[at_])) ++at_;
      }
    }
    std::string text(source_.substr(begin, at_ - begin));
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    if (text.size() > 40) return error(begin, "the number is too long");
    push(decimal ? Kind::decimal : Kind::integer, std::move(text), begin);
    return {};
  }

  Status read_string() {
    const std::size_t begin = at_;
    const char quote = source_[at_++];
    std::string out;
    while (at_ < source_.size() && source_[at_] != quote) {
      if (source_[at_] == '\\') {
        INFOS_TRY(read_escape(out));
      } else {
        out += source_[at_++];
      }
    }
    if (at_ >= source_.size()) return error(begin, "the string is not closed");
    ++at_;
    push(Kind::string, std::move(out), begin);
    return {};
  }

  Status read_escape(std::string& out) {
    const std::size_t begin = at_;
    if (at_ + 1 >= source_.size()) return error(begin, "the string is not closed");
    const char c = source_[at_ + 1];
    at_ += 2;
    static constexpr std::string_view kFrom = "ntr\\'\"bfv0a", kTo("\n\t\r\\'\"\b\f\v\0\a", 11);
    if (const std::size_t found = kFrom.find(c); found != std::string_view::npos) {
      out += kTo[found];
      return {};
    }
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits ==
        0) {  // Python keeps escapes that it does not know; a line end continues the string
      if (c != '\n') out.append({'\\', c});
      return {};
    }
    char32_t code = 0;
    for (std::size_t i = 0; i < digits; ++i, ++at_) {
      const int digit = at_ < source_.size() ? hex(source_[at_]) : -1;
      if (digit < 0)
        return error(begin, "the escape needs " + std::to_string(digits) + " hexadecimal digits");
      code = code * 16 + static_cast<char32_t>(digit);
    }
    append_utf8(out, code);
    return {};
  }

  std::string_view source_;
  std::size_t at_ = 0;
  bool line_starts_ = true;  ///< whether the position follows a newline that a tag swallowed, or
                             ///< begins the template
  std::vector<Token> tokens_;
};

}  // namespace

std::string place_of(std::string_view source, std::uint32_t offset) {
  std::size_t line = 1, column = 1;
  for (std::size_t i = 0; i < std::min<std::size_t>(offset, source.size()); ++i) {
    if (source[i] == '\n') {
      ++line;
      column = 1;
    } else {
      ++column;
    }
  }
  return std::to_string(line) + ":" + std::to_string(column);
}

std::string normalise_newlines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      out += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      out += text[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

Result<std::vector<Token>> tokenise(std::string_view source) { return Lexer(source).run(); }

}  // namespace infos::text::jinja
