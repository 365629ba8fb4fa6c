// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/text/jinja_parser.h"

#include <algorithm>
#include <charconv>

namespace infos::text::jinja {

const Token& TokenStream::peek(std::size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

Token TokenStream::take() {
  Token token = peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenStream::is_op(std::string_view op, std::size_t ahead) const {
  return peek(ahead).kind == Token::Kind::op && peek(ahead).text == op;
}
bool TokenStream::is_name(std::string_view name, std::size_t ahead) const {
  return peek(ahead).kind == Token::Kind::name && peek(ahead).text == name;
}
bool TokenStream::accept_op(std::string_view op) {
  if (!is_op(op)) return false;
  take();
  return true;
}
bool TokenStream::accept_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}
Status TokenStream::expect_op(std::string_view op) {
  if (accept_op(op)) return {};
  return error(ErrorCode::invalid_argument, "found " + seen() + ", want '" + std::string(op) + "'");
}
Status TokenStream::expect_name(std::string_view name) {
  if (accept_name(name)) return {};
  return error(ErrorCode::invalid_argument,
               "found " + seen() + ", want '" + std::string(name) + "'");
}
Result<std::string> TokenStream::take_name(std::string_view what) {
  if (is(Token::Kind::name)) return take().text;
  return error(ErrorCode::invalid_argument, "found " + seen() + ", want " + std::string(what));
}

Error TokenStream::error_at(std::uint32_t offset, ErrorCode code,
                            const std::string& message) const {
  return {code, "chat template " + place_of(source_, offset) + ": " + message};
}

std::string TokenStream::seen() const {
  switch (peek().kind) {
    case Token::Kind::text:
      return "text";
    case Token::Kind::output_begin:
      return "'{{'";
    case Token::Kind::output_end:
      return "'}}'";
    case Token::Kind::block_begin:
      return "'{%'";
    case Token::Kind::block_end:
      return "'%}'";
    case Token::Kind::end:
      return "the end of the template";
    default:
      return "'" + peek().text.substr(0, 40) + "'";
  }
}

ExpressionPtr ExpressionParser::make(Kind kind, std::uint32_t offset, std::string text) {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->offset = offset;
  node->text = std::move(text);
  return node;
}

Result<ExpressionPtr> ExpressionParser::finish(ExpressionPtr node) {
  for (const auto& part : node->parts)
    if (part) node->depth = std::max(node->depth, part->depth + 1);
  for (const auto& argument : node->arguments)
    node->depth = std::max(node->depth, argument.value->depth + 1);
  // Chains (a + b + c, x.y.z) nest without brackets: they may be four times as deep.
  if (node->depth > depth_max_ * 4)
    return tokens_.error_at(
        node->offset, ErrorCode::resource_exhausted,
        "the expression is nested deeper than " + std::to_string(depth_max_ * 4));
  return node;
}

Result<ExpressionPtr> ExpressionParser::binary(std::uint32_t offset, std::string op,
                                               ExpressionPtr left, ExpressionPtr right) {
  ExpressionPtr node = make(Kind::binary, offset, std::move(op));
  node->parts.push_back(std::move(left));
  node->parts.push_back(std::move(right));
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::parse(Commas commas) {
  const std::uint32_t offset = tokens_.peek().offset;
  ExpressionPtr first = INFOS_TRY(parse_choice());
  if (commas == Commas::no || !tokens_.is_op(",")) return first;
  ExpressionPtr list = make(Kind::list, offset);
  list->parts.push_back(std::move(first));
  while (tokens_.accept_op(",")) {
    if (tokens_.is(Token::Kind::block_end) || tokens_.is(Token::Kind::output_end)) break;
    list->parts.push_back(INFOS_TRY(parse_choice()));
  }
  return finish(std::move(list));
}

Result<ExpressionPtr> ExpressionParser::parse_without_choice() { return parse_or(); }

Result<ExpressionPtr> ExpressionParser::parse_choice() {
  if (++level_ > depth_max_)
    return tokens_.error(ErrorCode::resource_exhausted,
                         "brackets are nested deeper than " + std::to_string(depth_max_));
  ExpressionPtr value = INFOS_TRY(parse_or());
  while (tokens_.is_name("if")) {
    ExpressionPtr node = make(Kind::choice, tokens_.take().offset);
    node->parts.push_back(std::move(value));
    node->parts.push_back(INFOS_TRY(parse_or()));
    node->parts.push_back(tokens_.accept_name("else") ? INFOS_TRY(parse_choice()) : nullptr);
    value = INFOS_TRY(finish(std::move(node)));
  }
  --level_;
  return value;
}

Result<ExpressionPtr> ExpressionParser::parse_or() {
  ExpressionPtr left = INFOS_TRY(parse_and());
  while (tokens_.is_name("or")) {
    const std::uint32_t offset = tokens_.take().offset;
    left = INFOS_TRY(binary(offset, "or", std::move(left), INFOS_TRY(parse_and())));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_and() {
  ExpressionPtr left = INFOS_TRY(parse_not());
  while (tokens_.is_name("and")) {
    const std::uint32_t offset = tokens_.take().offset;
    left = INFOS_TRY(binary(offset, "and", std::move(left), INFOS_TRY(parse_not())));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_not() {
  std::vector<std::uint32_t> offsets;
  while (tokens_.is_name("not")) offsets.push_back(tokens_.take().offset);
  ExpressionPtr value = INFOS_TRY(parse_compare());
  for (; !offsets.empty(); offsets.pop_back()) {
    ExpressionPtr node = make(Kind::unary, offsets.back(), "not");
    node->parts.push_back(std::move(value));
    value = INFOS_TRY(finish(std::move(node)));
  }
  return value;
}

Result<ExpressionPtr> ExpressionParser::parse_compare() {
  const auto next_operator = [&]() -> std::string {
    for (const char* op : {"==", "!=", "<=", ">=", "<", ">"})
      if (tokens_.is_op(op)) return op;
    if (tokens_.is_name("in")) return "in";
    return tokens_.is_name("not") && tokens_.is_name("in", 1) ? "not in" : "";
  };
  ExpressionPtr left = INFOS_TRY(parse_sum());
  std::string op = next_operator();
  if (op.empty()) return left;
  ExpressionPtr node = make(Kind::compare, tokens_.peek().offset);
  node->parts.push_back(std::move(left));
  for (; !op.empty(); op = next_operator()) {
    if (op == "not in") tokens_.take();
    tokens_.take();
    node->operators.push_back(std::move(op));
    node->parts.push_back(INFOS_TRY(parse_sum()));
  }
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::parse_sum() {
  ExpressionPtr left = INFOS_TRY(parse_concat());
  while (tokens_.is_op("+") || tokens_.is_op("-")) {
    Token op = tokens_.take();
    left = INFOS_TRY(
        binary(op.offset, std::move(op.text), std::move(left), INFOS_TRY(parse_concat())));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_concat() {
  ExpressionPtr first = INFOS_TRY(parse_product());
  if (!tokens_.is_op("~")) return first;
  ExpressionPtr node = make(Kind::concat, tokens_.peek().offset);
  node->parts.push_back(std::move(first));
  while (tokens_.accept_op("~")) node->parts.push_back(INFOS_TRY(parse_product()));
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::parse_product() {
  ExpressionPtr left = INFOS_TRY(parse_power());
  while (tokens_.is_op("*") || tokens_.is_op("/") || tokens_.is_op("//") || tokens_.is_op("%")) {
    Token op = tokens_.take();
    left =
        INFOS_TRY(binary(op.offset, std::move(op.text), std::move(left), INFOS_TRY(parse_power())));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_power() {
  ExpressionPtr left = INFOS_TRY(parse_unary(Filters::yes));
  while (tokens_.is_op("**")) {
    const std::uint32_t offset = tokens_.take().offset;
    left = INFOS_TRY(binary(offset, "**", std::move(left), INFOS_TRY(parse_unary(Filters::yes))));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_unary(Filters filters) {
  std::vector<Token> signs;
  while (tokens_.is_op("-") || tokens_.is_op("+")) signs.push_back(tokens_.take());
  ExpressionPtr value = INFOS_TRY(parse_postfix(INFOS_TRY(parse_primary())));
  for (; !signs.empty(); signs.pop_back()) {
    ExpressionPtr node = make(Kind::unary, signs.back().offset, signs.back().text);
    node->parts.push_back(std::move(value));
    value = INFOS_TRY(finish(std::move(node)));
  }
  return filters == Filters::yes ? parse_filters_and_tests(std::move(value))
                                 : Result<ExpressionPtr>(std::move(value));
}

Result<ExpressionPtr> ExpressionParser::parse_primary() {
  const Token& next = tokens_.peek();
  if (next.kind == Token::Kind::name) {
    ExpressionPtr node = make(Kind::constant, next.offset);
    const std::string name = tokens_.take().text;
    if (name == "true" || name == "True") {
      node->constant = Value::boolean(true);
    } else if (name == "false" || name == "False") {
      node->constant = Value::boolean(false);
    } else if (name != "none" && name != "None") {
      node->kind = Kind::name;
      node->text = name;
    }
    return node;
  }
  if (next.kind == Token::Kind::string) {
    ExpressionPtr node = make(Kind::constant, next.offset);
    std::string text;
    while (tokens_.is(Token::Kind::string))
      text += tokens_.take().text;  // neighbours join, as in Python
    node->constant = Value::string(std::move(text));
    return node;
  }
  if (next.kind == Token::Kind::integer || next.kind == Token::Kind::decimal) return parse_number();
  if (tokens_.is_op("(") || tokens_.is_op("[")) return parse_brackets();
  if (tokens_.is_op("{")) return parse_dict();
  return tokens_.error(ErrorCode::invalid_argument,
                       "found " + tokens_.seen() + ", want an expression");
}

Result<ExpressionPtr> ExpressionParser::parse_number() {
  const Token token = tokens_.take();
  ExpressionPtr node = make(Kind::constant, token.offset);
  const char* end = token.text.data() + token.text.size();
  std::errc code{};
  if (token.kind == Token::Kind::integer) {
    std::int64_t value = 0;
    code = std::from_chars(token.text.data(), end, value).ec;
    node->constant = Value::integer(value);
  } else {
    double value = 0;
    code = std::from_chars(token.text.data(), end, value).ec;
    node->constant = Value::of(value);
  }
  if (code != std::errc{})
    return tokens_.error_at(token.offset, ErrorCode::invalid_argument,
                            "the number " + token.text + " is out of range");
  return node;
}

Result<ExpressionPtr> ExpressionParser::parse_brackets() {
  const Token open = tokens_.take();
  const std::string close = open.text == "(" ? ")" : "]";
  ExpressionPtr list = make(Kind::list, open.offset);
  bool comma = false;
  while (!tokens_.is_op(close)) {
    list->parts.push_back(INFOS_TRY(parse_choice()));
    if (!tokens_.is_op(",")) break;
    tokens_.take();
    comma = true;
  }
  INFOS_TRY(tokens_.expect_op(close));
  if (open.text == "(" && !comma && list->parts.size() == 1) return std::move(list->parts[0]);
  return finish(std::move(list));
}

Result<ExpressionPtr> ExpressionParser::parse_dict() {
  ExpressionPtr dict = make(Kind::dict, tokens_.take().offset);
  while (!tokens_.is_op("}")) {
    dict->parts.push_back(INFOS_TRY(parse_choice()));
    INFOS_TRY(tokens_.expect_op(":"));
    dict->parts.push_back(INFOS_TRY(parse_choice()));
    if (!tokens_.accept_op(",")) break;
  }
  INFOS_TRY(tokens_.expect_op("}"));
  return finish(std::move(dict));
}

Result<ExpressionPtr> ExpressionParser::parse_postfix(ExpressionPtr base) {
  while (true) {
    const std::uint32_t offset = tokens_.peek().offset;
    if (tokens_.accept_op(".")) {
      ExpressionPtr node = make(Kind::attribute, offset);
      if (tokens_.is(Token::Kind::integer)) {  // x.0 is x[0]
        node->kind = Kind::subscript;
        node->parts.push_back(std::move(base));
        node->parts.push_back(INFOS_TRY(parse_number()));
      } else {
        node->text = INFOS_TRY(tokens_.take_name("the name of an attribute"));
        node->parts.push_back(std::move(base));
      }
      base = INFOS_TRY(finish(std::move(node)));
    } else if (tokens_.is_op("[")) {
      base = INFOS_TRY(parse_subscript(std::move(base)));
    } else if (tokens_.accept_op("(")) {
      ExpressionPtr node = make(Kind::call, offset);
      node->arguments = INFOS_TRY(parse_arguments());
      node->parts.push_back(std::move(base));
      base = INFOS_TRY(finish(std::move(node)));
    } else {
      return base;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::parse_subscript(ExpressionPtr base) {
  ExpressionPtr node = make(Kind::subscript, tokens_.take().offset);
  node->parts.push_back(std::move(base));
  std::vector<ExpressionPtr> bounds;
  std::size_t colons = 0;
  bounds.push_back(tokens_.is_op(":") ? nullptr : INFOS_TRY(parse_choice()));
  while (colons < 2 && tokens_.accept_op(":")) {
    ++colons;
    bounds.push_back(tokens_.is_op(":") || tokens_.is_op("]") ? nullptr
                                                              : INFOS_TRY(parse_choice()));
  }
  INFOS_TRY(tokens_.expect_op("]"));
  if (colons > 0) {
    node->kind = Kind::slice;
    bounds.resize(3);
  }
  for (auto& bound : bounds) node->parts.push_back(std::move(bound));
  return finish(std::move(node));
}

Result<std::vector<Argument>> ExpressionParser::parse_arguments() {
  std::vector<Argument> out;
  while (!tokens_.is_op(")")) {
    if (tokens_.is_op("*") || tokens_.is_op("**"))
      return tokens_.error(ErrorCode::unsupported,
                           "'" + tokens_.peek().text + "' before an argument is not supported");
    Argument argument;
    if (tokens_.is(Token::Kind::name) && tokens_.is_op("=", 1)) {
      argument.name = tokens_.take().text;
      tokens_.take();
    } else if (!out.empty() && !out.back().name.empty()) {
      return tokens_.error(ErrorCode::invalid_argument,
                           "an argument by position follows one by name");
    }
    argument.value = INFOS_TRY(parse_choice());
    out.push_back(std::move(argument));
    if (!tokens_.accept_op(",")) break;
  }
  INFOS_TRY(tokens_.expect_op(")"));
  return out;
}

Result<ExpressionPtr> ExpressionParser::parse_filters_and_tests(ExpressionPtr base) {
  while (true) {
    const std::uint32_t offset = tokens_.peek().offset;
    if (tokens_.accept_op("|")) {
      ExpressionPtr node =
          make(Kind::filter, offset, INFOS_TRY(tokens_.take_name("the name of a filter")));
      if (tokens_.accept_op("(")) node->arguments = INFOS_TRY(parse_arguments());
      node->parts.push_back(std::move(base));
      base = INFOS_TRY(finish(std::move(node)));
    } else if (tokens_.accept_name("is")) {
      base = INFOS_TRY(parse_test(std::move(base), offset));
    } else {
      return base;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::parse_test(ExpressionPtr base, std::uint32_t offset) {
  const bool negated = tokens_.accept_name("not");
  ExpressionPtr node = make(Kind::test, offset);
  if (tokens_.is_op("==") || tokens_.is_op("!=")) {
    node->text = tokens_.take().text;
  } else {
    node->text = INFOS_TRY(tokens_.take_name("the name of a test"));
  }
  node->parts.push_back(std::move(base));
  const Token& next = tokens_.peek();
  const bool value_begins =
      next.kind == Token::Kind::string || next.kind == Token::Kind::integer ||
      next.kind == Token::Kind::decimal || tokens_.is_op("[") || tokens_.is_op("{") ||
      (next.kind == Token::Kind::name && next.text != "else" && next.text != "or" &&
       next.text != "and" && next.text != "is" && next.text != "if" && next.text != "not" &&
       next.text != "in" && next.text != "recursive");
  if (tokens_.accept_op("(")) {
    node->arguments = INFOS_TRY(parse_arguments());
  } else if (value_begins) {
    Argument argument;
    argument.value = INFOS_TRY(parse_postfix(INFOS_TRY(parse_primary())));
    node->arguments.push_back(std::move(argument));
  }
  ExpressionPtr test = INFOS_TRY(finish(std::move(node)));
  if (!negated) return test;
  ExpressionPtr outer = make(Kind::unary, offset, "not");
  outer->parts.push_back(std::move(test));
  return finish(std::move(outer));
}

}  // namespace infos::text::jinja
