// SPDX-License-Identifier: Apache-2.0
// Typed reading of JSON values with errors that name the parameter, the value seen and the values
// allowed. Internal to the request parser: the only header here that knows Boost.JSON. Throws
// Refusal, caught in the parser's entry points.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/gateway/api_error.h"
#include "daemon/gateway/chat_template.h"
#include "daemon/gateway/gateway_options.h"
#include "topology/base/ids.h"

namespace infos::json_fields {

namespace json = boost::json;

/// Thrown inside the request parser, never out of it.
struct Refusal {
  ApiError error;
};
[[noreturn]] void refuse(std::string_view param, std::string message,
                         std::string_view code = "invalid_value");
/// Refuses with "`param` must be <allowed>, not <value>".
[[noreturn]] void refuse_type(std::string_view param, std::string_view allowed,
                              const json::value& seen);
/// The value in an error message: short, on one line.
std::string shown(const json::value& value);

bool as_bool(std::string_view param, const json::value& v);
std::string as_string(std::string_view param, const json::value& v);
/// Whole numbers, also when written as 5.0.
std::int64_t as_integer(std::string_view param, const json::value& v, std::int64_t low,
                        std::int64_t high);
double as_number(std::string_view param, const json::value& v, double low, double high);
const json::object& as_object(std::string_view param, const json::value& v);
const json::array& as_array(std::string_view param, const json::value& v, std::string_view allowed);
/// `[1, 2, 3]`.
std::vector<TokenId> as_tokens(std::string_view param, const json::value& v);
/// Chat messages with text content: strings or arrays of text parts.
std::vector<ChatMessage> as_messages(const json::value& v, const RequestLimits& limits);

/// The parsed body and the memory it lives in. Throws Refusal.
class Document {
 public:
  Document(std::string_view body, const RequestLimits& limits);
  ~Document();
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;
  const json::object& object() const;

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};
/// Runs `action`, turning what it throws into an error.
std::variant<std::monostate, ApiError> guarded(void (*action)(void*), void* context);

/// Parses a whole body into an object of at most limits.json_depth, in at most limits.json_bytes of
/// memory, and calls `read(object, T&)` on it. Refusals and what Boost.JSON throws come back as
/// errors.
template <typename T, typename Read>
ApiResult<T> read_body(std::string_view body, const RequestLimits& limits, Read read) {
  struct Context {
    std::string_view body;
    const RequestLimits& limits;
    Read& read;
    T out;
  } context{body, limits, read, T{}};
  const auto verdict = guarded(
      [](void* p) {
        auto& c = *static_cast<Context*>(p);
        const Document document(c.body, c.limits);
        c.read(document.object(), c.out);
      },
      &context);
  if (const auto* error = std::get_if<ApiError>(&verdict)) return *error;
  return std::move(context.out);
}

}  // namespace infos::json_fields
