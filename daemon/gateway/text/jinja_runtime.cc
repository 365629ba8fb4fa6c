// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/text/jinja_runtime.h"

#include <algorithm>

#include "daemon/gateway/text/utf8.h"

namespace infos::text::jinja {
namespace {

constexpr std::size_t kBytesPerStep = 256;

Error invalid(std::string message) { return {ErrorCode::invalid_argument, std::move(message)}; }

Value loop_attribute(const Loop& loop, const std::string& name) {
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto length = static_cast<std::int64_t>(loop.items->items.size());
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(length - index);
  if (name == "revindex0") return Value::integer(length - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == length);
  if (name == "length") return Value::integer(length);
  if (name == "depth") return Value::integer(static_cast<std::int64_t>(loop.level) + 1);
  if (name == "depth0") return Value::integer(static_cast<std::int64_t>(loop.level));
  if (name == "previtem" && index > 0) return loop.items->items[loop.index - 1];
  if (name == "nextitem" && index + 1 < length) return loop.items->items[loop.index + 1];
  return Value::undefined("loop." + name);
}

}  // namespace

Status Budget::charge(std::uint64_t steps) {
  if (steps > steps_) {
    steps_ = 0;
    return Error{ErrorCode::resource_exhausted, "the template takes too many steps"};
  }
  steps_ -= steps;
  return {};
}

Status Budget::charge_text(std::size_t bytes) {
  if (bytes > bytes_max_)
    return Error{ErrorCode::resource_exhausted,
                 "a text would have more than " + std::to_string(bytes_max_) + " bytes"};
  return charge(bytes / kBytesPerStep);
}

Result<std::vector<const Value*>> Arguments::bind(
    std::string_view what, std::initializer_list<std::string_view> parameters) const {
  if (positional.size() > parameters.size())
    return invalid(std::string(what) + " takes at most " + std::to_string(parameters.size()) +
                   " arguments, found " + std::to_string(positional.size()));
  std::vector<const Value*> out(parameters.size(), nullptr);
  for (std::size_t i = 0; i < positional.size(); ++i) out[i] = &positional[i];
  for (const auto& [name, value] : named) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end())
      return invalid(std::string(what) + " has no parameter '" + name.substr(0, 40) + "'");
    const auto index = static_cast<std::size_t>(found - parameters.begin());
    if (out[index]) return invalid(std::string(what) + " is given '" + name + "' twice");
    out[index] = &value;
  }
  return out;
}

Error undefined_error(const Value& value) {
  const auto* undefined = value.as<Undefined>();
  return invalid("'" + (undefined ? undefined->name.substr(0, 80) : std::string("value")) +
                 "' is undefined");
}

Result<std::string_view> want_text(std::string_view what, const Value& value) {
  if (const auto* text = value.text()) return std::string_view(*text);
  if (value.is_undefined()) return undefined_error(value);
  return invalid(std::string(what) + " wants a string, found " + value.kind());
}

Result<std::int64_t> want_integer(std::string_view what, const Value& value) {
  if (const auto* number = value.as<std::int64_t>()) return *number;
  if (const auto* flag = value.as<bool>()) return *flag ? 1 : 0;
  if (value.is_undefined()) return undefined_error(value);
  return invalid(std::string(what) + " wants an integer, found " + value.kind());
}

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::uint32_t length = decode_utf8(text, at).length;
    out.push_back(text.substr(at, length));
    at += length;
  }
  return out;
}

std::string_view strip_text(std::string_view text, Side side, const std::string_view* which) {
  const auto goes = [&](std::string_view character) {
    if (which) return which->find(character) != std::string_view::npos;
    const Decoded decoded = decode_utf8(character, 0);
    return decoded.valid &&
           (is_white_space(decoded.code) || (decoded.code >= 0x1C && decoded.code <= 0x1F));
  };
  while (side != Side::right && !text.empty()) {
    const std::string_view first = text.substr(0, decode_utf8(text, 0).length);
    if (!goes(first)) break;
    text.remove_prefix(first.size());
  }
  while (side != Side::left && !text.empty()) {
    std::size_t begin = text.size() - 1;  // the last character begins at most three bytes earlier
    for (std::size_t back = 1; back <= 4 && back <= text.size(); ++back) {
      const Decoded decoded = decode_utf8(text, text.size() - back);
      if (decoded.valid && decoded.length == back) begin = text.size() - back;
      if (decoded.valid) break;
    }
    if (!goes(text.substr(begin))) break;
    text = text.substr(0, begin);
  }
  return text;
}

Result<Value> attribute_of(const Value& value, const std::string& name) {
  if (value.is_undefined()) return undefined_error(value);
  if (const Dict* dict = value.dict()) {
    const Value* found = dict->find(name);
    return found ? *found : Value::undefined(name);
  }
  if (const auto* space = value.as<std::shared_ptr<Namespace>>()) {
    const auto found = (*space)->values.find(name);
    return found == (*space)->values.end() ? Value::undefined(name) : found->second;
  }
  if (const auto* loop = value.as<std::shared_ptr<const Loop>>())
    return loop_attribute(**loop, name);
  return Value::undefined(name);
}

Result<Value> item_of(const Value& value, const Value& key) {
  if (value.is_undefined()) return undefined_error(value);
  if (key.text())
    return value.list() || value.text() ? Value::undefined(*key.text())
                                        : attribute_of(value, *key.text());
  const auto* index = key.as<std::int64_t>();
  if (!index) return Value::undefined(to_repr(key).substr(0, 40));
  const auto wrap = [&](std::size_t size) {
    return *index < 0 ? *index + static_cast<std::int64_t>(size) : *index;
  };
  if (const List* list = value.list()) {
    const std::int64_t at = wrap(list->items.size());
    if (at >= 0 && at < static_cast<std::int64_t>(list->items.size()))
      return list->items[static_cast<std::size_t>(at)];
  } else if (const auto* text = value.text()) {
    const auto characters = characters_of(*text);
    const std::int64_t at = wrap(characters.size());
    if (at >= 0 && at < static_cast<std::int64_t>(characters.size()))
      return Value::string(std::string(characters[static_cast<std::size_t>(at)]));
  }
  return Value::undefined("element " + std::to_string(*index));
}

Result<std::shared_ptr<const List>> iterate(Budget& budget, const Value& value) {
  if (const auto* list = value.as<std::shared_ptr<const List>>()) return *list;
  std::vector<Value> items;
  if (const Dict* dict = value.dict()) {
    INFOS_TRY(budget.charge(dict->items.size()));
    for (const auto& [key, item] : dict->items) items.push_back(Value::string(key));
  } else if (const auto* text = value.text()) {
    INFOS_TRY(budget.charge(text->size()));
    for (const std::string_view character : characters_of(*text))
      items.push_back(Value::string(std::string(character)));
  } else if (!value.is_undefined()) {
    return invalid(std::string(value.kind()) + " cannot be looped over");
  }
  const Value list = INFOS_TRY(make_list(std::move(items)));
  return *list.as<std::shared_ptr<const List>>();
}

Result<bool> contains(const Value& container, const Value& item) {
  if (const auto* text = container.text()) {
    const std::string_view wanted = INFOS_TRY(want_text("'in' with a string", item));
    return text->find(wanted) != std::string::npos;
  }
  if (const List* list = container.list())
    return std::any_of(list->items.begin(), list->items.end(),
                       [&](const Value& other) { return equal(item, other); });
  if (const Dict* dict = container.dict())
    return item.text() && dict->find(*item.text()) != nullptr;
  if (container.is_undefined()) return false;
  return invalid("'in' wants a string, list or mapping, found " + std::string(container.kind()));
}

}  // namespace infos::text::jinja
