// SPDX-License-Identifier: Apache-2.0
// The tree of a parsed template. Immutable after parsing; its depth is bounded, so walking and
// freeing it may recurse.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/gateway/text/jinja_value.h"

namespace infos::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Argument {
  std::string name;  ///< empty: by position
  ExpressionPtr value;
};

struct Expression {
  enum class Kind {
    constant,   ///< constant
    name,       ///< text
    list,       ///< parts
    dict,       ///< parts: key, value, key, value, ...
    attribute,  ///< parts[0] . text
    subscript,  ///< parts[0] [ parts[1] ]
    slice,      ///< parts[0] [ parts[1] : parts[2] : parts[3] ], absent parts are null
    call,       ///< parts[0] ( arguments )
    filter,     ///< parts[0] | text ( arguments )
    test,       ///< parts[0] is text ( arguments )
    unary,      ///< text: not, -, +
    binary,     ///< text: + - * / // % ** and or
    concat,     ///< parts joined as text
    compare,    ///< parts[0] operators[0] parts[1] operators[1] parts[2] ...
    choice,     ///< parts[0] if parts[1] else parts[2], parts[2] may be null
  } kind = Kind::constant;
  std::uint32_t offset = 0;
  std::uint32_t depth = 1;
  Value constant;
  std::string text;
  std::vector<std::string> operators;
  std::vector<ExpressionPtr> parts;
  std::vector<Argument> arguments;
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

struct Statement {
  enum class Kind {
    text,           ///< text
    output,         ///< value
    branch,         ///< conditions[i] -> blocks[i]; one more block is the else
    loop,           ///< for targets in value if conditions[0]: blocks[0], else blocks[1]
    set,            ///< targets = value
    set_attribute,  ///< targets[0] . targets[1] = value
    set_block,      ///< targets[0] = what blocks[0] puts out
    macro,          ///< text(parameters): blocks[0]
    leave,          ///< break
    next,           ///< continue
  } kind = Kind::text;
  std::uint32_t offset = 0;
  std::string text;
  std::vector<std::string> targets;
  ExpressionPtr value;
  std::vector<ExpressionPtr> conditions;
  std::vector<Block> blocks;
  std::vector<Argument> parameters;  ///< of a macro, with defaults
};

struct Template {
  std::string source;
  Block body;
};

struct ParseLimits {
  std::uint32_t depth = 64;
};

/// Errors: invalid_argument with line:column; unsupported, naming the construct; resource_exhausted
/// at a limit.
Result<Template> parse(std::string_view text, const ParseLimits& limits);

}  // namespace infos::text::jinja
