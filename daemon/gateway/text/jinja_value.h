// SPDX-License-Identifier: Apache-2.0
// The values of the template language: what Python would call None, bool, int, float, str, list and
// dict, plus namespaces, loops and macros. Containers are shared and never change, except
// namespaces, which no container may hold: so values are trees of bounded depth. One render on one
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "topology/base/result.h"

namespace infos::text::jinja {

struct Value;
struct Statement;

constexpr std::uint32_t kValueDepthMax = 64;
constexpr std::uint64_t kValueWeightMax = 4'000'000;

struct Undefined {
  std::string name;
};
struct None {};

struct List {
  std::vector<Value> items;
  std::uint32_t depth = 1;   ///< levels of containers, this one included
  std::uint64_t weight = 1;  ///< see weight_of
};

/// Keeps the order of insertion; keys are strings.
struct Dict {
  std::vector<std::pair<std::string, Value>> items;
  std::map<std::string, std::size_t, std::less<>> index;
  std::uint32_t depth = 1;
  std::uint64_t weight = 1;
  const Value* find(std::string_view key) const;
};

struct Namespace {
  std::map<std::string, Value, std::less<>> values;
};

struct Loop {
  std::shared_ptr<const List> items;
  std::size_t index = 0;
  std::size_t level = 0;  ///< nesting, 0 outermost
};

struct Value {
  std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
               std::shared_ptr<const Loop>, const Statement*>
      data;

  Value() : data(None{}) {}
  template <typename T>
  static Value of(T value) {
    Value out;
    out.data = std::move(value);
    return out;
  }
  static Value string(std::string text) {
    return of(std::make_shared<const std::string>(std::move(text)));
  }
  static Value boolean(bool value) { return of(value); }
  static Value integer(std::int64_t value) { return of(value); }
  static Value undefined(std::string name) { return of(Undefined{std::move(name)}); }

  template <typename T>
  const T* as() const {
    return std::get_if<T>(&data);
  }
  /// Null when this is no string, list or dict.
  const std::string* text() const;
  const List* list() const;
  const Dict* dict() const;
  bool is_undefined() const { return as<Undefined>() != nullptr; }
  bool is_none() const { return as<None>() != nullptr; }
  bool is_number() const { return as<std::int64_t>() || as<double>() || as<bool>(); }
  bool truthy() const;
  /// "a string", "a list", ...: for messages.
  const char* kind() const;
};

/// What printing or comparing it costs: values in the tree below, and 64 bytes of text are one.
/// Shared parts count each time.
std::uint64_t weight_of(const Value& value);

/// Errors: resource_exhausted when too deep or too heavy; invalid_argument when an item is a
/// namespace, loop or macro.
Result<Value> make_list(std::vector<Value> items);
/// A later equal key replaces the earlier value. Errors: as above.
Result<Value> make_dict(std::vector<std::pair<std::string, Value>> items);

/// As Python's str(): what `{{ x }}` prints. Undefined prints nothing.
std::string to_text(const Value& value);
/// As Python's repr().
std::string to_repr(const Value& value);

struct JsonStyle {
  int indent = -1;  ///< -1: on one line, as Python's json.dumps
  bool sort_keys = false;
};
/// Errors: invalid_argument when the value holds what JSON has not.
Result<std::string> to_json(const Value& value, const JsonStyle& style);

bool equal(const Value& a, const Value& b);
/// -1, 0 or 1. Errors: invalid_argument when the two cannot be ordered.
Result<int> order(const Value& a, const Value& b);

/// 0 when the value is no number.
double to_double(const Value& value);

/// A JSON document as a value. Errors: invalid_argument.
Result<Value> from_json_text(std::string_view text, const std::string& name);

}  // namespace infos::text::jinja
