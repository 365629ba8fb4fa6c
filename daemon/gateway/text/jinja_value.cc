// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/text/jinja_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "daemon/gateway/text/json_place.h"

namespace infos::text::jinja {
namespace {

using StringPtr = std::shared_ptr<const std::string>;
using ListPtr = std::shared_ptr<const List>;
using DictPtr = std::shared_ptr<const Dict>;

std::uint32_t depth_of(const Value& value) {
  if (const List* list = value.list()) return list->depth;
  if (const Dict* dict = value.dict()) return dict->depth;
  return 0;
}

template <typename Container>
Status check_item(const Value& item, Container& in) {
  in.depth = std::max(in.depth, depth_of(item) + 1);
  in.weight += weight_of(item);
  if (in.weight > kValueWeightMax)
    return Error{ErrorCode::resource_exhausted, "a list or mapping holds too much"};
  if (in.depth > kValueDepthMax)
    return Error{ErrorCode::resource_exhausted,
                 "lists and mappings are nested deeper than " + std::to_string(kValueDepthMax)};
  if (item.as<std::shared_ptr<Namespace>>() || item.as<std::shared_ptr<const Loop>>() ||
      item.as<const Statement*>())
    return Error{ErrorCode::invalid_argument,
                 std::string(item.kind()) + " cannot be put into a list or mapping"};
  return {};
}

/// As Python prints floats: shortest digits that read back, exponent below 1e-4 and from 1e16 on.
std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer{};
  const double size = std::fabs(value);
  const bool fixed = value == 0 || (size >= 1e-4 && size < 1e16);
  const auto format = fixed ? std::chars_format::fixed : std::chars_format::scientific;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format).ptr;
  std::string out(buffer.data(), end);
  if (fixed && out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string quoted(const std::string& text) {
  const char quote =
      text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      constexpr std::string_view kHex = "0123456789abcdef";
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + quote;
}

void json_string(const std::string& text, std::string& out) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          constexpr std::string_view kHex = "0123456789abcdef";
          out += "\\u00";
          out += kHex[static_cast<unsigned char>(c) >> 4];
          out += kHex[static_cast<unsigned char>(c) & 15];
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  Status write(const Value& value, int level) {
    if (const auto* text = value.text()) {
      json_string(*text, out);
    } else if (value.is_none()) {
      out += "null";
    } else if (const auto* flag = value.as<bool>()) {
      out += *flag ? "true" : "false";
    } else if (value.is_number()) {
      out += to_text(value);
    } else if (const List* list = value.list()) {
      return write_list(*list, level);
    } else if (const Dict* dict = value.dict()) {
      return write_dict(*dict, level);
    } else {
      return Error{ErrorCode::invalid_argument,
                   std::string("tojson: ") + value.kind() + " is not JSON"};
    }
    return {};
  }
  std::string out;

 private:
  void line(int level) {
    if (style_.indent < 0) return;
    out += '\n';
    out.append(static_cast<std::size_t>(style_.indent) * static_cast<std::size_t>(level), ' ');
  }
  void separate(bool first, int level) {
    if (!first) out += style_.indent < 0 ? ", " : ",";
    line(level);
  }
  Status write_list(const List& list, int level) {
    out += '[';
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      separate(i == 0, level + 1);
      INFOS_TRY(write(list.items[i], level + 1));
    }
    if (!list.items.empty()) line(level);
    out += ']';
    return {};
  }
  Status write_dict(const Dict& dict, int level) {
    std::vector<std::size_t> places;
    if (style_.sort_keys) {
      for (const auto& [key, place] : dict.index) places.push_back(place);
    } else {
      for (std::size_t i = 0; i < dict.items.size(); ++i) places.push_back(i);
    }
    out += '{';
    for (std::size_t i = 0; i < places.size(); ++i) {
      separate(i == 0, level + 1);
      json_string(dict.items[places[i]].first, out);
      out += ": ";
      INFOS_TRY(write(dict.items[places[i]].second, level + 1));
    }
    if (!places.empty()) line(level);
    out += '}';
    return {};
  }
  JsonStyle style_;
};

Result<Value> from_json(const boost::json::value& json) {
  switch (json.kind()) {
    case boost::json::kind::null:
      return Value();
    case boost::json::kind::bool_:
      return Value::boolean(json.get_bool());
    case boost::json::kind::int64:
      return Value::integer(json.get_int64());
    case boost::json::kind::uint64:
      return Value::of(static_cast<double>(json.get_uint64()));
    case boost::json::kind::double_:
      return Value::of(json.get_double());
    case boost::json::kind::string:
      return Value::string(std::string(json.get_string()));
    case boost::json::kind::array: {
      std::vector<Value> items;
      for (const auto& item : json.get_array()) items.push_back(INFOS_TRY(from_json(item)));
      return make_list(std::move(items));
    }
    case boost::json::kind::object: {
      std::vector<std::pair<std::string, Value>> items;
      for (const auto& [key, item] : json.get_object())
        items.emplace_back(std::string(key), INFOS_TRY(from_json(item)));
      return make_dict(std::move(items));
    }
  }
  return Value();
}

}  // namespace

const Value* Dict::find(std::string_view key) const {
  const auto found = index.find(key);
  return found == index.end() ? nullptr : &items[found->second].second;
}

const std::string* Value::text() const {
  const auto* pointer = as<StringPtr>();
  return pointer ? pointer->get() : nullptr;
}
const List* Value::list() const {
  const auto* pointer = as<ListPtr>();
  return pointer ? pointer->get() : nullptr;
}
const Dict* Value::dict() const {
  const auto* pointer = as<DictPtr>();
  return pointer ? pointer->get() : nullptr;
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (const auto* flag = as<bool>()) return *flag;
  if (const auto* number = as<std::int64_t>()) return *number != 0;
  if (const auto* number = as<double>()) return *number != 0;
  if (const auto* string = text()) return !string->empty();
  if (const List* items = list()) return !items->items.empty();
  if (const Dict* items = dict()) return !items->items.empty();
  return true;
}

const char* Value::kind() const {
  static constexpr std::array kNames = {"an undefined value",
                                        "none",
                                        "a boolean",
                                        "an integer",
                                        "a float",
                                        "a string",
                                        "a list",
                                        "a mapping",
                                        "a namespace",
                                        "a loop",
                                        "a macro"};
  return kNames[data.index()];
}

std::uint64_t weight_of(const Value& value) {
  if (const auto* text = value.text()) return 1 + text->size() / 64;
  if (const List* list = value.list()) return list->weight;
  if (const Dict* dict = value.dict()) return dict->weight;
  return 1;
}

Result<Value> make_list(std::vector<Value> items) {
  List list;
  for (const Value& item : items) INFOS_TRY(check_item(item, list));
  list.items = std::move(items);
  return Value::of(std::make_shared<const List>(std::move(list)));
}

Result<Value> make_dict(std::vector<std::pair<std::string, Value>> items) {
  Dict dict;
  for (auto& [key, item] : items) {
    INFOS_TRY(check_item(item, dict));
    const auto [place, fresh] = dict.index.try_emplace(key, dict.items.size());
    if (fresh) {
      dict.items.emplace_back(std::move(key), std::move(item));
    } else {
      dict.items[place->second].second = std::move(item);
    }
  }
  return Value::of(std::make_shared<const Dict>(std::move(dict)));
}

std::string to_text(const Value& value) {
  if (const auto* text = value.text()) return *text;
  return value.is_undefined() ? std::string() : to_repr(value);
}

std::string to_repr(const Value& value) {
  if (const auto* text = value.text()) return quoted(*text);
  if (const auto* flag = value.as<bool>()) return *flag ? "True" : "False";
  if (const auto* number = value.as<std::int64_t>()) return std::to_string(*number);
  if (const auto* number = value.as<double>()) return float_text(*number);
  if (const List* list = value.list()) {
    std::string out = "[";
    for (const Value& item : list->items)
      out.append(out.size() > 1 ? ", " : "").append(to_repr(item));
    return out + "]";
  }
  if (const Dict* dict = value.dict()) {
    std::string out = "{";
    for (const auto& [key, item] : dict->items)
      out.append(out.size() > 1 ? ", " : "").append(quoted(key) + ": " + to_repr(item));
    return out + "}";
  }
  if (value.is_undefined()) return "Undefined";
  return value.is_none() ? "None" : std::string("<") + value.kind() + ">";
}

Result<std::string> to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  INFOS_TRY(writer.write(value, 0));
  return std::move(writer.out);
}

double to_double(const Value& value) {
  if (const auto* flag = value.as<bool>()) return *flag ? 1 : 0;
  if (const auto* number = value.as<std::int64_t>()) return static_cast<double>(*number);
  if (const auto* number = value.as<double>()) return *number;
  return 0;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    const auto *x = a.as<std::int64_t>(), *y = b.as<std::int64_t>();
    return x && y ? *x == *y : to_double(a) == to_double(b);
  }
  if (a.data.index() != b.data.index()) return false;
  if (const auto* text = a.text()) return *text == *b.text();
  if (const List* list = a.list())
    return std::equal(list->items.begin(), list->items.end(), b.list()->items.begin(),
                      b.list()->items.end(), equal);
  if (const Dict* dict = a.dict()) {
    if (dict->items.size() != b.dict()->items.size()) return false;
    return std::all_of(dict->items.begin(), dict->items.end(), [&](const auto& item) {
      const Value* other = b.dict()->find(item.first);
      return other && equal(item.second, *other);
    });
  }
  if (const auto* macro = a.as<const Statement*>()) return *macro == *b.as<const Statement*>();
  return a.is_none() || a.is_undefined();
}

Result<int> order(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    const auto *x = a.as<std::int64_t>(), *y = b.as<std::int64_t>();
    if (x && y) return *x < *y ? -1 : *x > *y ? 1 : 0;
    return to_double(a) < to_double(b) ? -1 : to_double(a) > to_double(b) ? 1 : 0;
  }
  if (a.text() && b.text()) {
    const int result = a.text()->compare(*b.text());  // UTF-8 order is code point order
    return result < 0 ? -1 : result > 0 ? 1 : 0;
  }
  return Error{ErrorCode::invalid_argument,
               std::string(a.kind()) + " and " + b.kind() + " cannot be ordered"};
}

Result<Value> from_json_text(std::string_view text, const std::string& name) {
  const auto json = parse_json(text, name);
  if (!json.ok()) return Error{ErrorCode::invalid_argument, json.error().message};
  return from_json(*json);
}

}  // namespace infos::text::jinja
