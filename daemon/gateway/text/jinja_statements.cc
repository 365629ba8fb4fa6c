// SPDX-License-Identifier: Apache-2.0
// Parses the statements of a template; expressions are jinja_parser's.
#include <set>

#include "daemon/gateway/text/jinja_ast.h"
#include "daemon/gateway/text/jinja_parser.h"

namespace infos::text::jinja {
namespace {

using Kind = Statement::Kind;
using Commas = ExpressionParser::Commas;

constexpr std::string_view kTags = "if, for, set, macro, break, continue, raw, generation";

class StatementParser {
 public:
  StatementParser(std::string_view source, std::vector<Token> tokens, std::uint32_t depth_max)
      : tokens_(source, std::move(tokens)),
        expressions_(tokens_, depth_max),
        depth_max_(depth_max) {}

  Result<Block> parse_template() {
    Block body = INFOS_TRY(parse_block({}));
    if (!tokens_.is(Token::Kind::end))
      return tokens_.error(ErrorCode::invalid_argument, "found " + tokens_.seen() + ", want a tag");
    return body;
  }

 private:
  using StatementPtr = std::unique_ptr<Statement>;

  StatementPtr make(Kind kind, std::uint32_t offset) {
    auto out = std::make_unique<Statement>();
    out->kind = kind;
    out->offset = offset;
    return out;
  }

  /// Statements up to a tag whose name is in `ends`, which is left at its name.
  Result<Block> parse_block(const std::set<std::string, std::less<>>& ends) {
    if (++level_ > depth_max_)
      return tokens_.error(ErrorCode::resource_exhausted,
                           "statements are nested deeper than " + std::to_string(depth_max_));
    Block out;
    const std::uint32_t begin = tokens_.peek().offset;
    while (true) {
      if (tokens_.is(Token::Kind::end)) {
        if (ends.empty()) break;
        return tokens_.error_at(
            begin, ErrorCode::invalid_argument,
            "the block that begins here is not closed, want '" + *ends.rbegin() + "'");
      }
      if (tokens_.is(Token::Kind::text)) {
        StatementPtr text = make(Kind::text, tokens_.peek().offset);
        text->text = tokens_.take().text;
        out.push_back(std::move(text));
      } else if (tokens_.is(Token::Kind::output_begin)) {
        StatementPtr output = make(Kind::output, tokens_.take().offset);
        output->value = INFOS_TRY(expressions_.parse(Commas::yes));
        INFOS_TRY(expect_end(Token::Kind::output_end, "'}}'"));
        out.push_back(std::move(output));
      } else if (tokens_.is(Token::Kind::block_begin)) {
        tokens_.take();
        if (tokens_.is(Token::Kind::name) && ends.contains(tokens_.peek().text)) break;
        INFOS_TRY(parse_tag(out));
      } else {
        return tokens_.error(ErrorCode::invalid_argument,
                             "found " + tokens_.seen() + ", want a tag");
      }
    }
    --level_;
    return out;
  }

  Status expect_end(Token::Kind kind, std::string_view name) {
    if (tokens_.is(kind)) {
      tokens_.take();
      return {};
    }
    return tokens_.error(ErrorCode::invalid_argument,
                         "found " + tokens_.seen() + ", want " + std::string(name));
  }
  Status expect_block_end() { return expect_end(Token::Kind::block_end, "'%}'"); }
  Status close(std::string_view name) {
    INFOS_TRY(tokens_.expect_name(name));
    return expect_block_end();
  }

  Status parse_tag(Block& out) {
    const std::uint32_t offset = tokens_.peek().offset;
    const std::string name = INFOS_TRY(tokens_.take_name("the name of a tag"));
    if (name == "if") return parse_if(offset, out);
    if (name == "for") return parse_for(offset, out);
    if (name == "set") return parse_set(offset, out);
    if (name == "macro") return parse_macro(offset, out);
    if (name == "generation") return parse_generation(out);
    if (name == "break" || name == "continue") {
      if (loops_ == 0)
        return tokens_.error_at(offset, ErrorCode::invalid_argument,
                                "'" + name + "' outside of a loop");
      out.push_back(make(name == "break" ? Kind::leave : Kind::next, offset));
      return expect_block_end();
    }
    return tokens_.error_at(
        offset, ErrorCode::unsupported,
        "the tag '" + name.substr(0, 40) + "' is not supported; supported: " + std::string(kTags));
  }

  Status parse_if(std::uint32_t offset, Block& out) {
    StatementPtr node = make(Kind::branch, offset);
    while (true) {
      node->conditions.push_back(INFOS_TRY(expressions_.parse(Commas::no)));
      INFOS_TRY(expect_block_end());
      node->blocks.push_back(INFOS_TRY(parse_block({"elif", "else", "endif"})));
      if (!tokens_.accept_name("elif")) break;
    }
    if (tokens_.accept_name("else")) {
      INFOS_TRY(expect_block_end());
      node->blocks.push_back(INFOS_TRY(parse_block({"endif"})));
    }
    INFOS_TRY(close("endif"));
    out.push_back(std::move(node));
    return {};
  }

  Result<std::vector<std::string>> parse_targets() {
    std::vector<std::string> out;
    const bool bracket = tokens_.accept_op("(");
    do {
      out.push_back(INFOS_TRY(tokens_.take_name("the name of a variable")));
    } while (tokens_.accept_op(","));
    if (bracket) INFOS_TRY(tokens_.expect_op(")"));
    return out;
  }

  Status parse_for(std::uint32_t offset, Block& out) {
    StatementPtr node = make(Kind::loop, offset);
    node->targets = INFOS_TRY(parse_targets());
    INFOS_TRY(tokens_.expect_name("in"));
    node->value = INFOS_TRY(expressions_.parse_without_choice());
    if (tokens_.accept_name("if"))
      node->conditions.push_back(INFOS_TRY(expressions_.parse(Commas::no)));
    if (tokens_.is_name("recursive"))
      return tokens_.error(ErrorCode::unsupported, "'recursive' loops are not supported");
    INFOS_TRY(expect_block_end());
    ++loops_;
    node->blocks.push_back(INFOS_TRY(parse_block({"else", "endfor"})));
    --loops_;
    if (tokens_.accept_name("else")) {
      INFOS_TRY(expect_block_end());
      node->blocks.push_back(INFOS_TRY(parse_block({"endfor"})));
    }
    INFOS_TRY(close("endfor"));
    out.push_back(std::move(node));
    return {};
  }

  Status parse_set(std::uint32_t offset, Block& out) {
    StatementPtr node = make(Kind::set, offset);
    node->targets = INFOS_TRY(parse_targets());
    if (node->targets.size() == 1 && tokens_.accept_op(".")) {
      node->kind = Kind::set_attribute;
      node->targets.push_back(INFOS_TRY(tokens_.take_name("the name of an attribute")));
    }
    if (tokens_.accept_op("=")) {
      node->value = INFOS_TRY(expressions_.parse(Commas::yes));
      INFOS_TRY(expect_block_end());
    } else if (node->kind == Kind::set && node->targets.size() == 1) {
      if (tokens_.is_op("|"))
        return tokens_.error(ErrorCode::unsupported, "a filter on a 'set' block is not supported");
      node->kind = Kind::set_block;
      INFOS_TRY(expect_block_end());
      node->blocks.push_back(INFOS_TRY(parse_block({"endset"})));
      INFOS_TRY(close("endset"));
    } else {
      return tokens_.error(ErrorCode::invalid_argument, "found " + tokens_.seen() + ", want '='");
    }
    out.push_back(std::move(node));
    return {};
  }

  Status parse_macro(std::uint32_t offset, Block& out) {
    StatementPtr node = make(Kind::macro, offset);
    node->text = INFOS_TRY(tokens_.take_name("the name of a macro"));
    INFOS_TRY(tokens_.expect_op("("));
    while (!tokens_.is_op(")")) {
      Argument parameter;
      parameter.name = INFOS_TRY(tokens_.take_name("the name of a parameter"));
      if (tokens_.accept_op("=")) parameter.value = INFOS_TRY(expressions_.parse(Commas::no));
      node->parameters.push_back(std::move(parameter));
      if (!tokens_.accept_op(",")) break;
    }
    INFOS_TRY(tokens_.expect_op(")"));
    INFOS_TRY(expect_block_end());
    const std::uint32_t outer_loops = std::exchange(loops_, 0);
    node->blocks.push_back(INFOS_TRY(parse_block({"endmacro"})));
    loops_ = outer_loops;
    tokens_.take();
    if (tokens_.is(Token::Kind::name)) tokens_.take();  // endmacro may repeat the name
    INFOS_TRY(expect_block_end());
    out.push_back(std::move(node));
    return {};
  }

  /// Marks what the assistant wrote, for training; means nothing here.
  Status parse_generation(Block& out) {
    INFOS_TRY(expect_block_end());
    Block inner = INFOS_TRY(parse_block({"endgeneration"}));
    INFOS_TRY(close("endgeneration"));
    for (auto& statement : inner) out.push_back(std::move(statement));
    return {};
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  std::uint32_t depth_max_;
  std::uint32_t level_ = 0;
  std::uint32_t loops_ = 0;
};

}  // namespace

Result<Template> parse(std::string_view text, const ParseLimits& limits) {
  Template out;
  out.source = normalise_newlines(text);
  std::vector<Token> tokens = INFOS_TRY(tokenise(out.source));
  out.body =
      INFOS_TRY(StatementParser(out.source, std::move(tokens), limits.depth).parse_template());
  return out;
}

}  // namespace infos::text::jinja
