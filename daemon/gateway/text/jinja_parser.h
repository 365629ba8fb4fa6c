// SPDX-License-Identifier: Apache-2.0
// Parses the expressions of a template by recursive descent. One template on one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/gateway/text/jinja_ast.h"
#include "daemon/gateway/text/jinja_lexer.h"

namespace infos::text::jinja {

/// The tokens and the place in them, with complaints that say where.
class TokenStream {
 public:
  TokenStream(std::string_view source, std::vector<Token> tokens)
      : source_(source), tokens_(std::move(tokens)) {}
  const Token& peek(std::size_t ahead = 0) const;
  Token take();
  bool is(Token::Kind kind) const { return peek().kind == kind; }
  bool is_op(std::string_view op, std::size_t ahead = 0) const;
  bool is_name(std::string_view name, std::size_t ahead = 0) const;
  /// Takes the operator or name when it is next.
  bool accept_op(std::string_view op);
  bool accept_name(std::string_view name);
  Status expect_op(std::string_view op);
  Status expect_name(std::string_view name);
  Result<std::string> take_name(std::string_view what);
  Error error(ErrorCode code, const std::string& message) const {
    return error_at(peek().offset, code, message);
  }
  Error error_at(std::uint32_t offset, ErrorCode code, const std::string& message) const;
  /// What is next, for messages.
  std::string seen() const;

 private:
  std::string_view source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

class ExpressionParser {
 public:
  ExpressionParser(TokenStream& tokens, std::uint32_t depth_max)
      : tokens_(tokens), depth_max_(depth_max) {}
  /// A whole expression; `a, b` without brackets is a list where `commas` allows it.
  enum class Commas { no, yes };
  Result<ExpressionPtr> parse(Commas commas);
  /// `or` and below: what a `for ... in` takes before its `if`.
  Result<ExpressionPtr> parse_without_choice();
  /// `(a, b=c)`, after the opening bracket.
  Result<std::vector<Argument>> parse_arguments();

 private:
  using Kind = Expression::Kind;
  Result<ExpressionPtr> parse_choice();
  Result<ExpressionPtr> parse_or();
  Result<ExpressionPtr> parse_and();
  Result<ExpressionPtr> parse_not();
  Result<ExpressionPtr> parse_compare();
  Result<ExpressionPtr> parse_sum();
  Result<ExpressionPtr> parse_concat();
  Result<ExpressionPtr> parse_product();
  Result<ExpressionPtr> parse_power();
  enum class Filters { no, yes };
  Result<ExpressionPtr> parse_unary(Filters filters);
  Result<ExpressionPtr> parse_primary();
  Result<ExpressionPtr> parse_number();
  Result<ExpressionPtr> parse_brackets();
  Result<ExpressionPtr> parse_dict();
  Result<ExpressionPtr> parse_postfix(ExpressionPtr base);
  Result<ExpressionPtr> parse_subscript(ExpressionPtr base);
  Result<ExpressionPtr> parse_filters_and_tests(ExpressionPtr base);
  Result<ExpressionPtr> parse_test(ExpressionPtr base, std::uint32_t offset);
  /// Sets depth; errors when the tree grows too deep.
  Result<ExpressionPtr> finish(ExpressionPtr node);
  ExpressionPtr make(Kind kind, std::uint32_t offset, std::string text = "");
  Result<ExpressionPtr> binary(std::uint32_t offset, std::string op, ExpressionPtr left,
                               ExpressionPtr right);

  TokenStream& tokens_;
  std::uint32_t depth_max_;
  std::uint32_t level_ = 0;
};

}  // namespace infos::text::jinja
