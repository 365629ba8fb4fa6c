// SPDX-License-Identifier: Apache-2.0
// The methods of strings, mappings, lists and loops that templates call, as Python has them.
// Letters outside of ASCII keep their case.
#include <algorithm>

#include "daemon/gateway/text/jinja_runtime.h"
#include "daemon/gateway/text/jinja_text.h"

namespace infos::text::jinja {
namespace {

Error no_method(const Value& value, std::string_view name, std::string_view known) {
  return {ErrorCode::unsupported, std::string(value.kind()) + " has no method '" +
                                      std::string(name.substr(0, 40)) +
                                      "'; supported: " + std::string(known)};
}

Value text_value(std::string_view text) { return Value::string(std::string(text)); }

Result<Value> strip(std::string_view text, Side side, const Arguments& arguments) {
  const auto bound = INFOS_TRY(arguments.bind("strip", {"chars"}));
  if (!bound[0] || bound[0]->is_none()) return text_value(strip_text(text, side, nullptr));
  const std::string_view which = INFOS_TRY(want_text("strip", *bound[0]));
  return text_value(strip_text(text, side, &which));
}

Result<Value> affix(std::string_view text, std::string_view name, const Arguments& arguments) {
  const auto bound = INFOS_TRY(arguments.bind(name, {"what"}));
  if (!bound[0]) return Error{ErrorCode::invalid_argument, std::string(name) + " wants a string"};
  const auto fits = [&](std::string_view what) {
    return name == "startswith" ? text.starts_with(what) : text.ends_with(what);
  };
  if (const List* list = bound[0]->list()) {
    for (const Value& item : list->items)
      if (fits(INFOS_TRY(want_text(name, item)))) return Value::boolean(true);
    return Value::boolean(false);
  }
  return Value::boolean(fits(INFOS_TRY(want_text(name, *bound[0]))));
}

Result<Value> split(Budget& budget, std::string_view text, std::string_view name,
                    const Arguments& arguments) {
  const auto bound = INFOS_TRY(arguments.bind(name, {"sep", "maxsplit"}));
  const std::int64_t limit = bound[1] ? INFOS_TRY(want_integer(name, *bound[1])) : -1;
  INFOS_TRY(budget.charge(text.size() / 8));
  std::vector<std::string_view> parts;
  if (!bound[0] || bound[0]->is_none()) {
    if (name == "rsplit" && limit >= 0)
      return Error{ErrorCode::unsupported, "rsplit with maxsplit wants a separator"};
    parts = split_at_space(text, limit);
  } else {
    const std::string_view separator = INFOS_TRY(want_text(name, *bound[0]));
    if (separator.empty())
      return Error{ErrorCode::invalid_argument, std::string(name) + ": the separator is empty"};
    parts = name == "split" ? split_at(text, separator, limit)
                            : split_at_from_right(text, separator, limit);
  }
  INFOS_TRY(budget.charge(parts.size()));
  std::vector<Value> out;
  for (const std::string_view part : parts) out.push_back(text_value(part));
  return make_list(std::move(out));
}

Result<Value> find(std::string_view text, std::string_view name, const Arguments& arguments) {
  const auto bound = INFOS_TRY(arguments.bind(name, {"what"}));
  const std::string_view what = INFOS_TRY(want_text(name, bound[0] ? *bound[0] : Value()));
  if (name == "count") {
    std::int64_t n = 0;
    if (what.empty())
      return Value::integer(static_cast<std::int64_t>(characters_of(text).size()) + 1);
    for (std::size_t at = text.find(what); at != std::string_view::npos;
         at = text.find(what, at + what.size()))
      ++n;
    return Value::integer(n);
  }
  const std::size_t at = name == "find" ? text.find(what) : text.rfind(what);
  if (at == std::string_view::npos) return Value::integer(-1);
  return Value::integer(static_cast<std::int64_t>(characters_of(text.substr(0, at)).size()));
}

Result<Value> remove_affix(std::string_view text, std::string_view name,
                           const Arguments& arguments) {
  const auto bound = INFOS_TRY(arguments.bind(name, {"what"}));
  const std::string_view what = INFOS_TRY(want_text(name, bound[0] ? *bound[0] : Value()));
  if (name == "removeprefix" && text.starts_with(what)) text.remove_prefix(what.size());
  if (name == "removesuffix" && text.ends_with(what)) text.remove_suffix(what.size());
  return text_value(text);
}

Result<Value> lines(std::string_view text, const Arguments& arguments) {
  INFOS_TRY(arguments.bind("splitlines", {}));
  std::vector<Value> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of("\r\n"), text.size());
    out.push_back(text_value(text.substr(0, end)));
    const std::size_t newline = end == text.size() ? 0 : text.compare(end, 2, "\r\n") == 0 ? 2 : 1;
    text.remove_prefix(end + newline);
  }
  return make_list(std::move(out));
}

bool all_characters(std::string_view text, std::string_view name) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    const bool digit = c >= '0' && c <= '9';
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (name == "isdigit") return digit;
    if (name == "isalpha") return letter;
    return name == "isalnum" ? digit || letter : c == ' ' || (c >= '\t' && c <= '\r');
  });
}

Result<Value> string_method(Budget& budget, const Value& value, std::string_view name,
                            const Arguments& arguments) {
  constexpr std::string_view kKnown =
      "strip, lstrip, rstrip, startswith, endswith, split, rsplit, splitlines, upper, lower, "
      "title, capitalize, replace, join, "
      "find, rfind, count, removeprefix, removesuffix, isdigit, isalpha, isalnum, isspace";
  const std::string_view text = *value.text();
  INFOS_TRY(budget.charge_text(text.size()));
  if (name == "strip") return strip(text, Side::both, arguments);
  if (name == "lstrip") return strip(text, Side::left, arguments);
  if (name == "rstrip") return strip(text, Side::right, arguments);
  if (name == "startswith" || name == "endswith") return affix(text, name, arguments);
  if (name == "split" || name == "rsplit") return split(budget, text, name, arguments);
  if (name == "splitlines") return lines(text, arguments);
  if (name == "find" || name == "rfind" || name == "count") return find(text, name, arguments);
  if (name == "removeprefix" || name == "removesuffix") return remove_affix(text, name, arguments);
  if (name == "upper" || name == "lower" || name == "title" || name == "capitalize" ||
      name == "replace")
    return apply_filter(budget, name, value, arguments);
  if (name == "join") {
    const auto bound = INFOS_TRY(arguments.bind(name, {"items"}));
    Arguments separator;
    separator.positional.push_back(value);
    return apply_filter(budget, "join", bound[0] ? *bound[0] : Value(), separator);
  }
  if (name == "isdigit" || name == "isalpha" || name == "isalnum" || name == "isspace") {
    INFOS_TRY(arguments.bind(name, {}));
    return Value::boolean(all_characters(text, name));
  }
  return no_method(value, name, kKnown);
}

Result<Value> dict_method(Budget& budget, const Value& value, std::string_view name,
                          const Arguments& arguments) {
  const Dict& dict = *value.dict();
  if (name == "get") {
    const auto bound = INFOS_TRY(arguments.bind(name, {"key", "default"}));
    const Value* found = bound[0] && bound[0]->text() ? dict.find(*bound[0]->text()) : nullptr;
    return found ? *found : bound[1] ? *bound[1] : Value();
  }
  if (name != "items" && name != "keys" && name != "values")
    return no_method(value, name, "get, items, keys, values");
  INFOS_TRY(arguments.bind(name, {}));
  INFOS_TRY(budget.charge(dict.items.size()));
  std::vector<Value> out;
  for (const auto& [key, item] : dict.items) {
    if (name == "items") {
      out.push_back(INFOS_TRY(make_list({Value::string(key), item})));
    } else {
      out.push_back(name == "keys" ? Value::string(key) : item);
    }
  }
  return make_list(std::move(out));
}

Result<Value> list_method(const Value& value, std::string_view name, const Arguments& arguments) {
  if (name != "index" && name != "count")
    return no_method(value, name, "index, count (lists cannot be changed here)");
  const auto bound = INFOS_TRY(arguments.bind(name, {"item"}));
  const Value wanted = bound[0] ? *bound[0] : Value();
  const auto& items = value.list()->items;
  std::int64_t n = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!equal(items[i], wanted)) continue;
    if (name == "index") return Value::integer(static_cast<std::int64_t>(i));
    ++n;
  }
  if (name == "index")
    return Error{ErrorCode::invalid_argument, "index: the item is not in the list"};
  return Value::integer(n);
}

}  // namespace

Result<Value> call_method(Budget& budget, const Value& value, std::string_view name,
                          const Arguments& arguments) {
  if (value.is_undefined()) return undefined_error(value);
  if (value.text()) return string_method(budget, value, name, arguments);
  if (value.dict()) return dict_method(budget, value, name, arguments);
  if (value.list()) {
    INFOS_TRY(budget.charge(weight_of(value) / 16));
    return list_method(value, name, arguments);
  }
  if (const auto* loop = value.as<std::shared_ptr<const Loop>>();
      loop && name == "cycle" && !arguments.positional.empty())
    return arguments.positional[(*loop)->index % arguments.positional.size()];
  return no_method(value, name, "none that a template may call");
}

}  // namespace infos::text::jinja
