// SPDX-License-Identifier: Apache-2.0
// Filters and tests of the template language, as Jinja 3 has them. Letters outside of ASCII keep
// their case.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "daemon/gateway/text/jinja_runtime.h"
#include "daemon/gateway/text/jinja_text.h"

namespace infos::text::jinja {
namespace {

using Bound = std::vector<const Value*>;

struct Call {
  Budget& budget;
  const Value& value;
  const Arguments& arguments;
};
using Filter = Result<Value> (*)(const Call&);

Error invalid(std::string message) { return {ErrorCode::invalid_argument, std::move(message)}; }

/// Filters of strings print what is no string first.
Result<std::string> text_of(const Call& call) {
  if (call.value.is_undefined()) return std::string();
  INFOS_TRY(call.budget.charge_text(weight_of(call.value) * 64));
  return to_text(call.value);
}

Result<Value> trim(const Call& call) {
  const Bound bound = INFOS_TRY(call.arguments.bind("trim", {"chars"}));
  const std::string text = INFOS_TRY(text_of(call));
  if (!bound[0] || bound[0]->is_none())
    return Value::string(std::string(strip_text(text, Side::both, nullptr)));
  const std::string_view which = INFOS_TRY(want_text("trim", *bound[0]));
  return Value::string(std::string(strip_text(text, Side::both, &which)));
}

Result<Value> length(const Call& call) {
  INFOS_TRY(call.arguments.bind("length", {}));
  const auto count = [](std::size_t n) { return Value::integer(static_cast<std::int64_t>(n)); };
  if (const auto* text = call.value.text()) return count(characters_of(*text).size());
  if (const List* list = call.value.list()) return count(list->items.size());
  if (const Dict* dict = call.value.dict()) return count(dict->items.size());
  if (call.value.is_undefined()) return count(0);
  return invalid(std::string("length: ") + call.value.kind() + " has no length");
}

Result<Value> join(const Call& call) {
  const Bound bound = INFOS_TRY(call.arguments.bind("join", {"d", "attribute"}));
  const std::string separator = bound[0] ? to_text(*bound[0]) : "";
  const auto items = INFOS_TRY(iterate(call.budget, call.value));
  std::string out;
  for (std::size_t i = 0; i < items->items.size(); ++i) {
    Value item = items->items[i];
    if (bound[1])
      item = INFOS_TRY(attribute_of(item, std::string(INFOS_TRY(want_text("join", *bound[1])))));
    INFOS_TRY(call.budget.charge(1 + weight_of(item)));
    const std::string text = to_text(item);
    INFOS_TRY(call.budget.charge_text(out.size() + separator.size() + text.size() >
                                              call.budget.bytes_max()
                                          ? call.budget.bytes_max() + 1
                                          : separator.size() + text.size()));
    if (i > 0) out += separator;
    out += text;
  }
  return Value::string(std::move(out));
}

Result<Value> default_value(const Call& call) {
  const Bound bound = INFOS_TRY(call.arguments.bind("default", {"default_value", "boolean"}));
  const bool also_false = bound[1] && bound[1]->truthy();
  if (call.value.is_undefined() || (also_false && !call.value.truthy()))
    return bound[0] ? *bound[0] : Value::string("");
  return call.value;
}

Result<Value> tojson(const Call& call) {
  const Bound bound =
      INFOS_TRY(call.arguments.bind("tojson", {"indent", "ensure_ascii", "sort_keys"}));
  JsonStyle style;
  if (bound[0] && !bound[0]->is_none()) {
    const std::int64_t indent = INFOS_TRY(want_integer("tojson", *bound[0]));
    if (indent < 0 || indent > 16)
      return invalid("tojson: indent " + std::to_string(indent) + ", want 0 to 16");
    style.indent = static_cast<int>(indent);
  }
  if (bound[1] && bound[1]->truthy())
    return Error{ErrorCode::unsupported, "tojson with ensure_ascii is not supported"};
  style.sort_keys = bound[2] && bound[2]->truthy();
  INFOS_TRY(call.budget.charge_text(weight_of(call.value) * 64));
  return Value::string(INFOS_TRY(to_json(call.value, style)));
}

template <std::string (*Change)(std::string_view)>
Result<Value> change_case(const Call& call) {
  INFOS_TRY(call.arguments.bind("this filter", {}));
  return Value::string(Change(INFOS_TRY(text_of(call))));
}

Result<Value> replace(const Call& call) {
  const Bound bound = INFOS_TRY(call.arguments.bind("replace", {"old", "new", "count"}));
  if (!bound[0] || !bound[1]) return invalid("replace wants two strings");
  const std::string text = INFOS_TRY(text_of(call));
  const std::string_view from = INFOS_TRY(want_text("replace", *bound[0]));
  const std::string_view to = INFOS_TRY(want_text("replace", *bound[1]));
  const std::int64_t limit =
      bound[2] && !bound[2]->is_none() ? INFOS_TRY(want_integer("replace", *bound[2])) : -1;
  if (from.empty()) return invalid("replace: the text to replace is empty");
  const auto parts = split_at(text, from, limit);
  INFOS_TRY(call.budget.charge(parts.size()));
  INFOS_TRY(call.budget.charge_text(text.size() + (parts.size() - 1) * to.size()));
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) out.append(i == 0 ? "" : to).append(parts[i]);
  return Value::string(std::move(out));
}

Result<Value> first_or_last(const Call& call, bool first) {
  const auto items = INFOS_TRY(iterate(call.budget, call.value));
  if (items->items.empty()) return Value::undefined(first ? "first element" : "last element");
  return first ? items->items.front() : items->items.back();
}
Result<Value> first(const Call& call) { return first_or_last(call, true); }
Result<Value> last(const Call& call) { return first_or_last(call, false); }

Result<Value> to_list(const Call& call) {
  return Value::of(INFOS_TRY(iterate(call.budget, call.value)));
}

Result<Value> to_string(const Call& call) { return Value::string(INFOS_TRY(text_of(call))); }

Result<Value> to_number(const Call& call, bool whole) {
  const Bound bound = INFOS_TRY(call.arguments.bind(whole ? "int" : "float", {"default"}));
  double number = to_double(call.value);
  if (const auto* value = call.value.as<std::int64_t>(); value && whole)
    return Value::integer(*value);
  if (call.value.text()) {
    const std::string_view text = strip_text(*call.value.text(), Side::both, nullptr);
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (code != std::errc{} || end != text.data() + text.size())
      return bound[0] ? *bound[0] : whole ? Value::integer(0) : Value::of(0.0);
  } else if (!call.value.is_number()) {
    return bound[0] ? *bound[0] : whole ? Value::integer(0) : Value::of(0.0);
  }
  if (!whole) return Value::of(number);
  if (!(std::fabs(number) < 9e18)) return invalid("int: the number is out of range");
  return Value::integer(static_cast<std::int64_t>(number));
}
Result<Value> to_int(const Call& call) { return to_number(call, true); }
Result<Value> to_float(const Call& call) { return to_number(call, false); }

Result<Value> absolute(const Call& call) {
  if (const auto* number = call.value.as<std::int64_t>(); number && *number != INT64_MIN)
    return Value::integer(*number < 0 ? -*number : *number);
  if (!call.value.is_number())
    return invalid(std::string("abs wants a number, found ") + call.value.kind());
  return Value::of(std::fabs(to_double(call.value)));
}

Result<Value> items(const Call& call) {
  if (call.value.is_undefined()) return make_list({});
  return call_method(call.budget, call.value, "items", Arguments{});
}

Result<Value> same(const Call& call) { return call.value; }

Result<Value> reverse(const Call& call) {
  if (const auto* text = call.value.text()) {
    INFOS_TRY(call.budget.charge_text(text->size()));
    std::string out;
    const auto characters = characters_of(*text);
    for (auto it = characters.rbegin(); it != characters.rend(); ++it) out += *it;
    return Value::string(std::move(out));
  }
  const auto list = INFOS_TRY(iterate(call.budget, call.value));
  INFOS_TRY(call.budget.charge(list->items.size()));
  return make_list({list->items.rbegin(), list->items.rend()});
}

/// The value of `attribute` ("a.b") of an item, or the item.
Result<Value> key_of(const Value& item, const Value* attribute) {
  if (!attribute || attribute->is_none()) return item;
  Value out = item;
  for (const std::string_view part :
       split_at(INFOS_TRY(want_text("attribute", *attribute)), ".", -1))
    out = INFOS_TRY(attribute_of(out, std::string(part)));
  return out;
}

Result<Value> sort_pairs(const Call& call, std::vector<std::pair<Value, Value>> keyed,
                         bool descending) {
  std::uint64_t weight = 1;
  for (const auto& [key, item] : keyed) weight = std::max(weight, weight_of(key));
  INFOS_TRY(call.budget.charge(keyed.size() * 20 * weight));
  for (std::size_t i = 1; i < keyed.size(); ++i) INFOS_TRY(order(keyed[0].first, keyed[i].first));
  const auto before = [](const auto& a, const auto& b) {
    const auto result =
        order(a.first, b.first);  // all were seen to be comparable with the first: of one kind
    return result.ok() && *result < 0;
  };
  std::stable_sort(keyed.begin(), keyed.end(), before);
  if (descending) std::reverse(keyed.begin(), keyed.end());
  std::vector<Value> out;
  for (auto& [key, item] : keyed) out.push_back(std::move(item));
  return make_list(std::move(out));
}

Value folded(const Value& key, const Value* case_sensitive) {
  return key.text() && !(case_sensitive && case_sensitive->truthy())
             ? Value::string(lower_case(*key.text()))
             : key;
}

Result<Value> sort(const Call& call) {
  const Bound bound =
      INFOS_TRY(call.arguments.bind("sort", {"reverse", "case_sensitive", "attribute"}));
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : INFOS_TRY(iterate(call.budget, call.value))->items)
    keyed.emplace_back(folded(INFOS_TRY(key_of(item, bound[2])), bound[1]), item);
  return sort_pairs(call, std::move(keyed), bound[0] && bound[0]->truthy());
}

Result<Value> dictsort(const Call& call) {
  const Bound bound =
      INFOS_TRY(call.arguments.bind("dictsort", {"case_sensitive", "by", "reverse"}));
  const std::string_view by = bound[1] ? INFOS_TRY(want_text("dictsort", *bound[1])) : "key";
  if (!call.value.dict())
    return invalid(std::string("dictsort wants a mapping, found ") + call.value.kind());
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, item] : call.value.dict()->items)
    keyed.emplace_back(folded(by == "value" ? item : Value::string(key), bound[0]),
                       INFOS_TRY(make_list({Value::string(key), item})));
  return sort_pairs(call, std::move(keyed), bound[2] && bound[2]->truthy());
}

Result<Value> unique(const Call& call) {
  const Bound bound = INFOS_TRY(call.arguments.bind("unique", {"case_sensitive", "attribute"}));
  std::vector<Value> keys, out;
  for (const Value& item : INFOS_TRY(iterate(call.budget, call.value))->items) {
    const Value key = folded(INFOS_TRY(key_of(item, bound[1])), bound[0]);
    INFOS_TRY(call.budget.charge(keys.size() + weight_of(key)));
    if (std::any_of(keys.begin(), keys.end(),
                    [&](const Value& other) { return equal(key, other); }))
      continue;
    keys.push_back(key);
    out.push_back(item);
  }
  return make_list(std::move(out));
}

Result<Value> indent(const Call& call) {
  const Bound bound = INFOS_TRY(call.arguments.bind("indent", {"width", "first", "blank"}));
  std::string margin(4, ' ');
  if (bound[0]) {
    const std::int64_t width = bound[0]->text() ? 0 : INFOS_TRY(want_integer("indent", *bound[0]));
    if (width < 0 || width > 64)
      return invalid("indent: width " + std::to_string(width) + ", want 0 to 64");
    margin =
        bound[0]->text() ? *bound[0]->text() : std::string(static_cast<std::size_t>(width), ' ');
  }
  const std::string text = INFOS_TRY(text_of(call));
  const auto lines = split_at(text, "\n", -1);
  INFOS_TRY(call.budget.charge_text(text.size() + lines.size() * margin.size()));
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    const bool wanted = i == 0 ? bound[1] && bound[1]->truthy()
                               : !lines[i].empty() || (bound[2] && bound[2]->truthy());
    if (wanted) out += margin;
    out += lines[i];
  }
  return Value::string(std::move(out));
}

Result<Value> extreme(const Call& call, int sign) {
  const Bound bound =
      INFOS_TRY(call.arguments.bind("min and max", {"case_sensitive", "attribute"}));
  const auto list = INFOS_TRY(iterate(call.budget, call.value));
  INFOS_TRY(call.budget.charge(weight_of(call.value)));
  if (list->items.empty()) return Value::undefined("element of an empty list");
  Value best = list->items[0];
  for (const Value& item : list->items)
    if (INFOS_TRY(order(folded(INFOS_TRY(key_of(item, bound[1])), bound[0]),
                        folded(INFOS_TRY(key_of(best, bound[1])), bound[0]))) *
            sign >
        0)
      best = item;
  return best;
}
Result<Value> minimum(const Call& call) { return extreme(call, -1); }
Result<Value> maximum(const Call& call) { return extreme(call, 1); }

Result<Value> map(const Call& call) {
  const auto list = INFOS_TRY(iterate(call.budget, call.value));
  std::vector<Value> out;
  Arguments rest = call.arguments;
  const bool by_attribute = rest.positional.empty();
  Bound bound;
  if (by_attribute) {
    bound = INFOS_TRY(call.arguments.bind("map", {"", "attribute", "default"}));
    if (!bound[1]) return invalid("map wants a filter or attribute=");
  } else {
    rest.positional.erase(rest.positional.begin());
  }
  for (const Value& item : list->items) {
    INFOS_TRY(call.budget.charge(1));
    if (!by_attribute) {
      out.push_back(INFOS_TRY(apply_filter(
          call.budget, INFOS_TRY(want_text("map", call.arguments.positional[0])), item, rest)));
      continue;
    }
    Value found = INFOS_TRY(key_of(item, bound[1]));
    out.push_back(found.is_undefined() && bound[2] ? *bound[2] : std::move(found));
  }
  return make_list(std::move(out));
}

/// select, reject, selectattr, rejectattr.
Result<Value> choose(const Call& call, bool by_attribute, bool keep) {
  const auto list = INFOS_TRY(iterate(call.budget, call.value));
  Arguments rest = call.arguments;
  Value attribute;
  if (by_attribute) {
    if (rest.positional.empty())
      return invalid("selectattr and rejectattr want the name of an attribute");
    attribute = rest.positional[0];
    rest.positional.erase(rest.positional.begin());
  }
  std::string test;
  if (!rest.positional.empty()) {
    test = std::string(INFOS_TRY(want_text("the name of a test", rest.positional[0])));
    rest.positional.erase(rest.positional.begin());
  }
  std::vector<Value> out;
  for (const Value& item : list->items) {
    INFOS_TRY(call.budget.charge(1 + weight_of(item) / 16));
    const Value key = INFOS_TRY(key_of(item, by_attribute ? &attribute : nullptr));
    const bool passes = test.empty() ? key.truthy() : INFOS_TRY(apply_test(test, key, rest));
    if (passes == keep) out.push_back(item);
  }
  return make_list(std::move(out));
}
Result<Value> select(const Call& call) { return choose(call, false, true); }
Result<Value> reject(const Call& call) { return choose(call, false, false); }
Result<Value> selectattr(const Call& call) { return choose(call, true, true); }
Result<Value> rejectattr(const Call& call) { return choose(call, true, false); }

const std::map<std::string_view, Filter>& filters() {
  static const std::map<std::string_view, Filter> kFilters = {
      {"abs", absolute},
      {"capitalize", change_case<capital_case>},
      {"count", length},
      {"d", default_value},
      {"default", default_value},
      {"dictsort", dictsort},
      {"first", first},
      {"float", to_float},
      {"indent", indent},
      {"int", to_int},
      {"items", items},
      {"join", join},
      {"last", last},
      {"length", length},
      {"list", to_list},
      {"lower", change_case<lower_case>},
      {"map", map},
      {"max", maximum},
      {"min", minimum},
      {"reject", reject},
      {"rejectattr", rejectattr},
      {"replace", replace},
      {"reverse", reverse},
      {"safe", same},
      {"select", select},
      {"selectattr", selectattr},
      {"sort", sort},
      {"string", to_string},
      {"title", change_case<title_case>},
      {"tojson", tojson},
      {"trim", trim},
      {"unique", unique},
      {"upper", change_case<upper_case>}};
  return kFilters;
}

}  // namespace

Result<Value> apply_filter(Budget& budget, std::string_view name, const Value& value,
                           const Arguments& arguments) {
  const auto found = filters().find(name);
  if (found != filters().end()) {
    INFOS_TRY(budget.charge(1));
    return found->second({budget, value, arguments});
  }
  std::string known;
  for (const auto& [other, filter] : filters())
    known.append(known.empty() ? "" : ", ").append(other);
  return Error{ErrorCode::unsupported, "the filter '" + std::string(name.substr(0, 40)) +
                                           "' is not supported; supported: " + known};
}

}  // namespace infos::text::jinja
