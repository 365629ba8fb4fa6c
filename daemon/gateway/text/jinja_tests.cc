// SPDX-License-Identifier: Apache-2.0
// Tests of the template language: what may follow `is`.
#include <map>

#include "daemon/gateway/text/jinja_runtime.h"
#include "daemon/gateway/text/jinja_text.h"

namespace infos::text::jinja {
namespace {

using Test = Result<bool> (*)(const Value& value, const Value* other);

bool iterable(const Value& value) {
  return value.list() || value.text() || value.dict() || value.is_undefined();
}

Result<bool> ordered(const Value& value, const Value* other, int low, int high) {
  const int result = INFOS_TRY(order(value, other ? *other : Value()));
  return result >= low && result <= high;
}

Result<bool> remainder_is(const Value& value, std::int64_t divisor, std::int64_t wanted) {
  const std::int64_t number = INFOS_TRY(want_integer("this test", value));
  if (divisor == 0) return Error{ErrorCode::invalid_argument, "division by zero"};
  if (divisor == -1) return wanted == 0;
  return (number % divisor != 0) == (wanted != 0);
}

const std::map<std::string_view, Test>& tests() {
  static const std::map<std::string_view, Test> kTests = {
      {"defined", [](const Value& v, const Value*) -> Result<bool> { return !v.is_undefined(); }},
      {"undefined", [](const Value& v, const Value*) -> Result<bool> { return v.is_undefined(); }},
      {"none", [](const Value& v, const Value*) -> Result<bool> { return v.is_none(); }},
      {"string", [](const Value& v, const Value*) -> Result<bool> { return v.text() != nullptr; }},
      {"number", [](const Value& v, const Value*) -> Result<bool> { return v.is_number(); }},
      {"integer",
       [](const Value& v, const Value*) -> Result<bool> {
         return v.as<std::int64_t>() != nullptr;
       }},
      {"float",
       [](const Value& v, const Value*) -> Result<bool> { return v.as<double>() != nullptr; }},
      {"boolean",
       [](const Value& v, const Value*) -> Result<bool> { return v.as<bool>() != nullptr; }},
      {"true",
       [](const Value& v, const Value*) -> Result<bool> { return v.as<bool>() && *v.as<bool>(); }},
      {"false",
       [](const Value& v, const Value*) -> Result<bool> { return v.as<bool>() && !*v.as<bool>(); }},
      {"mapping", [](const Value& v, const Value*) -> Result<bool> { return v.dict() != nullptr; }},
      {"sequence", [](const Value& v, const Value*) -> Result<bool> { return iterable(v); }},
      {"iterable", [](const Value& v, const Value*) -> Result<bool> { return iterable(v); }},
      {"callable",
       [](const Value& v, const Value*) -> Result<bool> {
         return v.as<const Statement*>() != nullptr;
       }},
      {"odd", [](const Value& v, const Value*) -> Result<bool> { return remainder_is(v, 2, 1); }},
      {"even", [](const Value& v, const Value*) -> Result<bool> { return remainder_is(v, 2, 0); }},
      {"lower",
       [](const Value& v, const Value*) -> Result<bool> {
         return v.text() && lower_case(*v.text()) == *v.text();
       }},
      {"upper",
       [](const Value& v, const Value*) -> Result<bool> {
         return v.text() && upper_case(*v.text()) == *v.text();
       }},
      {"divisibleby",
       [](const Value& v, const Value* o) -> Result<bool> {
         return remainder_is(v, INFOS_TRY(want_integer("divisibleby", *o)), 0);
       }},
      {"eq", [](const Value& v, const Value* o) -> Result<bool> { return equal(v, *o); }},
      {"ne", [](const Value& v, const Value* o) -> Result<bool> { return !equal(v, *o); }},
      {"sameas",
       [](const Value& v, const Value* o) -> Result<bool> {
         return v.data.index() == o->data.index() && equal(v, *o);
       }},
      {"in", [](const Value& v, const Value* o) -> Result<bool> { return contains(*o, v); }},
      {"lt", [](const Value& v, const Value* o) -> Result<bool> { return ordered(v, o, -1, -1); }},
      {"le", [](const Value& v, const Value* o) -> Result<bool> { return ordered(v, o, -1, 0); }},
      {"gt", [](const Value& v, const Value* o) -> Result<bool> { return ordered(v, o, 1, 1); }},
      {"ge", [](const Value& v, const Value* o) -> Result<bool> { return ordered(v, o, 0, 1); }},
  };
  return kTests;
}

std::string_view without_aliases(std::string_view name) {
  static const std::map<std::string_view, std::string_view> kAliases = {
      {"==", "eq"}, {"equalto", "eq"}, {"!=", "ne"},          {"<", "lt"}, {"lessthan", "lt"},
      {"<=", "le"}, {">", "gt"},       {"greaterthan", "gt"}, {">=", "ge"}};
  const auto found = kAliases.find(name);
  return found == kAliases.end() ? name : found->second;
}

bool wants_other(std::string_view name) {
  return name == "divisibleby" || name == "eq" || name == "ne" || name == "sameas" ||
         name == "in" || name == "lt" || name == "le" || name == "gt" || name == "ge";
}

}  // namespace

Result<bool> apply_test(std::string_view name, const Value& value, const Arguments& arguments) {
  name = without_aliases(name);
  const auto found = tests().find(name);
  if (found == tests().end()) {
    std::string known;
    for (const auto& [other, test] : tests()) known.append(known.empty() ? "" : ", ").append(other);
    return Error{ErrorCode::unsupported, "the test '" + std::string(name.substr(0, 40)) +
                                             "' is not supported; supported: " + known};
  }
  const std::size_t wanted = wants_other(name) ? 1 : 0;
  if (arguments.positional.size() != wanted || !arguments.named.empty())
    return Error{ErrorCode::invalid_argument,
                 "the test '" + std::string(name) + "' takes " + std::to_string(wanted) +
                     " arguments, found " +
                     std::to_string(arguments.positional.size() + arguments.named.size())};
  return found->second(value, wanted ? &arguments.positional[0] : nullptr);
}

}  // namespace infos::text::jinja
