// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/json_fields.h"

#include <boost/json/memory_resource.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include <charconv>
#include <cmath>
#include <new>
#include <optional>

namespace infos::json_fields {
namespace {

// Hands out at most `budget` bytes that are in use at once; a JSON text of "[[],[]..." would take
// 20 times its size.
class BudgetResource final : public json::memory_resource {
 public:
  explicit BudgetResource(std::size_t budget) : left_(budget) {}

 private:
  // Boost.JSON 1.81 does not always give back with the alignment it asked for; none is above the
  // default.
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    if (bytes > left_ || align > __STDCPP_DEFAULT_NEW_ALIGNMENT__) throw std::bad_alloc();
    left_ -= bytes;
    return ::operator new(bytes);
  }
  void do_deallocate(void* p, std::size_t bytes, std::size_t) override {
    left_ += bytes;
    ::operator delete(p);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::size_t left_;
};

ApiError error_of(int status, std::string message, std::string_view code,
                  std::string_view param = {}) {
  ApiError e;
  e.status = status;
  e.code = code;
  e.param = param;
  e.message = std::move(message);
  return e;
}

/// As people write it: 0.01, not the 1E-2 of the JSON library.
std::string number_text(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace

void refuse(std::string_view param, std::string message, std::string_view code) {
  throw Refusal{error_of(400, std::move(message), code, param)};
}

std::string shown(const json::value& value) {
  if (value.is_double()) return number_text(value.get_double());
  if (value.is_object()) return "an object";
  if (value.is_array()) return value.as_array().empty() ? "[]" : "an array";
  std::string text = json::serialize(value);
  if (text.size() > 80) text = text.substr(0, 80) + "...";
  return text;
}

void refuse_type(std::string_view param, std::string_view allowed, const json::value& seen) {
  refuse(param, "'" + std::string(param) + "' must be " + std::string(allowed) + ", not " +
                    shown(seen) + ".");
}

bool as_bool(std::string_view param, const json::value& v) {
  if (!v.is_bool()) refuse_type(param, "true or false", v);
  return v.get_bool();
}

std::string as_string(std::string_view param, const json::value& v) {
  if (!v.is_string()) refuse_type(param, "a string", v);
  return std::string(v.get_string());
}

std::int64_t as_integer(std::string_view param, const json::value& v, std::int64_t low,
                        std::int64_t high) {
  std::optional<std::int64_t> n;
  if (v.is_int64()) n = v.get_int64();
  // JavaScript and some generators write whole numbers as 5.0.
  if (v.is_double() && std::trunc(v.get_double()) == v.get_double() &&
      std::abs(v.get_double()) <= 9007199254740992.0) {
    n = static_cast<std::int64_t>(v.get_double());
  }
  if (!n || *n < low || *n > high) {
    refuse_type(param, "an integer from " + std::to_string(low) + " to " + std::to_string(high), v);
  }
  return *n;
}

double as_number(std::string_view param, const json::value& v, double low, double high) {
  std::optional<double> d;
  if (v.is_double()) d = v.get_double();
  if (v.is_int64()) d = static_cast<double>(v.get_int64());
  if (v.is_uint64()) d = static_cast<double>(v.get_uint64());
  if (!d || !(*d >= low) || !(*d <= high)) {
    refuse_type(param, "a number from " + number_text(low) + " to " + number_text(high), v);
  }
  return *d;
}

const json::object& as_object(std::string_view param, const json::value& v) {
  if (!v.is_object()) refuse_type(param, "an object", v);
  return v.get_object();
}

const json::array& as_array(std::string_view param, const json::value& v,
                            std::string_view allowed) {
  if (!v.is_array()) refuse_type(param, allowed, v);
  return v.get_array();
}

std::vector<TokenId> as_tokens(std::string_view param, const json::value& v) {
  const json::array& array = as_array(param, v, "an array of token ids");
  std::vector<TokenId> tokens;
  tokens.reserve(array.size());
  for (const json::value& t : array)
    tokens.push_back(static_cast<TokenId>(as_integer(param, t, 0, INT32_MAX)));
  return tokens;
}

namespace {

std::string text_of_content(const std::string& param, const json::value& v) {
  if (v.is_string()) return std::string(v.get_string());
  const json::array& parts = as_array(param, v, "a string or an array of text parts");
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string where = param + "[" + std::to_string(i) + "]";
    const json::object& part = as_object(where, parts[i]);
    const json::value* type = part.if_contains("type");
    if (!type) refuse(where + ".type", "'" + where + ".type' is missing; it must be \"text\".");
    if (!type->is_string() || (type->get_string() != "text" && type->get_string() != "refusal")) {
      refuse(where + ".type",
             "Content parts of type " + shown(*type) + " are not served here; only \"text\" is.",
             "unsupported_value");
    }
    const json::value* words = part.if_contains(type->get_string());
    if (!words) refuse(where, "'" + where + "' has no '" + std::string(type->get_string()) + "'.");
    text += as_string(where + "." + std::string(type->get_string()), *words);
  }
  return text;
}

ChatMessage as_message(const std::string& where, const json::value& v) {
  const json::object& object = as_object(where, v);
  ChatMessage message;
  const json::value* role = object.if_contains("role");
  if (!role)
    refuse(where + ".role", "'" + where + ".role' is missing.", "missing_required_parameter");
  message.role = as_string(where + ".role", *role);
  if (message.role == "developer") message.role = "system";  // the newer name of the same role
  if (message.role != "system" && message.role != "user" && message.role != "assistant" &&
      message.role != "tool") {
    refuse_type(where + ".role", "one of system, developer, user, assistant, tool", *role);
  }
  const json::value* content = object.if_contains("content");
  if (const json::value* calls = object.if_contains("tool_calls")) {
    if (!calls->is_null() && !(calls->is_array() && calls->get_array().empty())) {
      refuse(where + ".tool_calls", "Tool calls are not served here.", "unsupported_parameter");
    }
  }
  if (content && !content->is_null()) {
    message.content = text_of_content(where + ".content", *content);
  } else if (message.role != "assistant") {
    refuse(where + ".content", "'" + where + ".content' is missing.", "missing_required_parameter");
  }
  if (const json::value* name = object.if_contains("name"); name && !name->is_null()) {
    message.name = as_string(where + ".name", *name);
  }
  return message;
}

}  // namespace

std::vector<ChatMessage> as_messages(const json::value& v, const RequestLimits& limits) {
  const json::array& array = as_array("messages", v, "an array of messages");
  if (array.empty()) refuse("messages", "'messages' is empty; it must hold at least one message.");
  if (array.size() > limits.messages) {
    refuse("messages", "'messages' holds " + std::to_string(array.size()) + " messages; at most " +
                           std::to_string(limits.messages) + " are allowed.");
  }
  std::vector<ChatMessage> messages;
  messages.reserve(array.size());
  for (std::size_t i = 0; i < array.size(); ++i) {
    messages.push_back(as_message("messages[" + std::to_string(i) + "]", array[i]));
  }
  return messages;
}

struct Document::Memory {
  explicit Memory(std::size_t budget) : resource(budget) {}
  BudgetResource resource;
  json::value root;
};

Document::Document(std::string_view body, const RequestLimits& limits) : memory_(nullptr) {
  auto memory = std::make_unique<Memory>(limits.json_bytes);
  json::parse_options options;
  options.max_depth = limits.json_depth;
  boost::system::error_code ec;
  json::value parsed =
      json::parse(json::string_view(body.data(), body.size()), ec, &memory->resource, options);
  if (ec) {
    const bool deep = ec == json::error::too_deep;
    throw Refusal{error_of(400,
                           deep ? "The request body is nested deeper than " +
                                      std::to_string(limits.json_depth) + " levels."
                                : "The request body is not valid JSON: " + ec.message() + ".",
                           "invalid_json")};
  }
  if (!parsed.is_object())
    throw Refusal{error_of(
        400, "The request body must be a JSON object, not " + shown(parsed) + ".", "invalid_json")};
  // Same storage: a move, not a copy.
  std::destroy_at(&memory->root);
  std::construct_at(&memory->root, std::move(parsed));
  memory_ = std::move(memory);
}

Document::~Document() = default;
const json::object& Document::object() const { return memory_->root.get_object(); }

std::variant<std::monostate, ApiError> guarded(void (*action)(void*), void* context) {
  try {
    action(context);
    return std::monostate{};
  } catch (Refusal& refusal) {
    return std::move(refusal.error);
  } catch (const std::bad_alloc&) {
    return error_of(413, "The request body's JSON has too many values.", "request_too_large");
  } catch (const std::exception& e) {
    return error_of(400, std::string("The request body cannot be read: ") + e.what() + ".",
                    "invalid_json");
  }
}

}  // namespace infos::json_fields
