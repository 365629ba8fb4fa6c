// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/json_read.h"

#include <fmt/format.h>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/parse.hpp>
#include <cmath>
#include <limits>
#include <unordered_set>

namespace infos {
namespace {

namespace json = boost::json;

/// A pass over the text that builds nothing but the keys of the objects still open.
class Scan {
 public:
  static constexpr std::size_t max_object_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_array_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_key_size = 1 << 16;
  static constexpr std::size_t max_string_size = std::numeric_limits<std::size_t>::max();

  explicit Scan(std::size_t values) : values_left_(values) {}

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code& code) {
    keys_.emplace_back();
    return count(code);
  }
  bool on_object_end(std::size_t, json::error_code&) {
    keys_.pop_back();
    return true;
  }
  bool on_array_begin(json::error_code& code) { return count(code); }
  bool on_array_end(std::size_t, json::error_code&) { return true; }
  bool on_key_part(json::string_view part, std::size_t, json::error_code&) {
    key_.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, std::size_t, json::error_code& code) {
    key_.append(part.data(), part.size());
    if (!keys_.back().insert(key_).second) {
      problem_ = fmt::format("the key \"{}\" appears twice", key_);
      code = json::error::exception;
      return false;
    }
    key_.clear();
    return true;
  }
  bool on_string_part(json::string_view, std::size_t, json::error_code&) { return true; }
  bool on_string(json::string_view, std::size_t, json::error_code& code) { return count(code); }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(std::int64_t, json::string_view, json::error_code& code) { return count(code); }
  bool on_uint64(std::uint64_t, json::string_view, json::error_code& code) { return count(code); }
  bool on_double(double, json::string_view, json::error_code& code) { return count(code); }
  bool on_bool(bool, json::error_code& code) { return count(code); }
  bool on_null(json::error_code& code) { return count(code); }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

  const std::string& problem() const { return problem_; }

 private:
  bool count(json::error_code& code) {
    if (values_left_ == 0) {
      problem_ = "holds too many values";
      code = json::error::exception;
      return false;
    }
    --values_left_;
    return true;
  }

  std::size_t values_left_;
  std::vector<std::unordered_set<std::string>> keys_;
  std::string key_;
  std::string problem_;
};

const char* kind_name(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a bool";
    case json::kind::int64:
    case json::kind::uint64:
      return "an integer";
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
  }
  return "unknown";
}

/// An integer that is not negative and at most `limit`, also when written as 32.0.
std::optional<std::uint64_t> whole(const json::value& value, std::uint64_t limit) {
  if (value.is_int64() && value.get_int64() >= 0 &&
      static_cast<std::uint64_t>(value.get_int64()) <= limit)
    return static_cast<std::uint64_t>(value.get_int64());
  if (value.is_uint64() && value.get_uint64() <= limit) return value.get_uint64();
  if (value.is_double()) {
    const double d = value.get_double();
    if (d >= 0 && d <= static_cast<double>(limit) && d == std::floor(d))
      return static_cast<std::uint64_t>(d);
  }
  return std::nullopt;
}

constexpr std::uint64_t kIdMax = std::numeric_limits<std::int32_t>::max();

}  // namespace

Result<json::value> parse_json(std::string_view text, const std::string& label,
                               const JsonLimits& limits) {
  if (text.size() > limits.bytes)
    return Error{ErrorCode::corrupt, fmt::format("{}: has {} bytes: want at most {}", label,
                                                 text.size(), limits.bytes)};
  try {
    json::parse_options options;
    options.max_depth = limits.depth;
    json::basic_parser<Scan> scan(options, limits.values);
    json::error_code code;
    const std::size_t used = scan.write_some(false, text.data(), text.size(), code);
    if (!scan.handler().problem().empty())
      return Error{ErrorCode::corrupt,
                   fmt::format("{}: byte {}: {}", label, used, scan.handler().problem())};
    if (!code && text.find_first_not_of(" \t\r\n", used) != std::string_view::npos)
      code = json::error::extra_data;
    if (code)
      return Error{ErrorCode::corrupt,
                   fmt::format("{}: byte {}: not JSON: {}", label, used, code.message())};
    return json::parse(json::string_view(text.data(), text.size()), {}, options);
  } catch (const std::exception& e) {
    return Error{ErrorCode::corrupt, fmt::format("{}: not JSON: {}", label, e.what())};
  }
}

Result<JsonFields> JsonFields::of(const json::value& value, const std::string& place) {
  if (!value.is_object())
    return Error{ErrorCode::corrupt,
                 fmt::format("{}: is {}: want an object", place, kind_name(value))};
  return JsonFields(value.get_object(), place);
}

Error JsonFields::error(ErrorCode code, std::string_view key, const std::string& what) const {
  return {code, fmt::format("{}: {}: {}", place_, key, what)};
}

const json::value* JsonFields::find(std::string_view key) const {
  const auto* value = object_->if_contains(json::string_view(key.data(), key.size()));
  return value && !value->is_null() ? value : nullptr;
}

Result<std::optional<double>> JsonFields::number(std::string_view key) const {
  const auto* value = find(key);
  if (!value) return std::optional<double>();
  if (!value->is_number())
    return error(ErrorCode::corrupt, key, fmt::format("is {}: want a number", kind_name(*value)));
  const double seen = value->to_number<double>();
  if (!std::isfinite(seen)) return error(ErrorCode::corrupt, key, "want a finite number");
  return std::optional(seen);
}

Result<std::optional<std::uint32_t>> JsonFields::count(std::string_view key) const {
  const auto* value = find(key);
  if (!value) return std::optional<std::uint32_t>();
  if (const auto seen = whole(*value, UINT32_MAX))
    return std::optional(static_cast<std::uint32_t>(*seen));
  if (!value->is_number())
    return error(ErrorCode::corrupt, key, fmt::format("is {}: want an integer", kind_name(*value)));
  return error(
      ErrorCode::corrupt, key,
      fmt::format("is {}: want an integer from 0 to {}", value->to_number<double>(), UINT32_MAX));
}

Result<std::uint32_t> JsonFields::need_count(std::string_view key) const {
  const auto seen = INFOS_TRY(count(key));
  if (!seen) return error(ErrorCode::corrupt, key, "the key is missing");
  return *seen;
}

Result<std::optional<bool>> JsonFields::flag(std::string_view key) const {
  const auto* value = find(key);
  if (!value) return std::optional<bool>();
  if (!value->is_bool())
    return error(ErrorCode::corrupt, key, fmt::format("is {}: want a bool", kind_name(*value)));
  return std::optional(value->get_bool());
}

Result<std::optional<std::string>> JsonFields::text(std::string_view key) const {
  const auto* value = find(key);
  if (!value) return std::optional<std::string>();
  if (!value->is_string())
    return error(ErrorCode::corrupt, key, fmt::format("is {}: want a string", kind_name(*value)));
  const auto& seen = value->get_string();
  return std::optional(std::string(seen.data(), seen.size()));
}

Result<std::optional<JsonFields>> JsonFields::object(std::string_view key) const {
  const auto* value = find(key);
  if (!value) return std::optional<JsonFields>();
  return std::optional(INFOS_TRY(of(*value, fmt::format("{}: {}", place_, key))));
}

Result<std::vector<std::int32_t>> JsonFields::ids(std::string_view key) const {
  std::vector<std::int32_t> out;
  const auto* value = find(key);
  if (!value) return out;
  const auto add = [&](const json::value& item) {
    const auto seen = whole(item, kIdMax);
    if (seen) out.push_back(static_cast<std::int32_t>(*seen));
    return seen.has_value();
  };
  bool good = true;
  if (value->is_array())
    for (const auto& item : value->get_array()) good = good && add(item);
  else
    good = add(*value);
  if (!good)
    return error(ErrorCode::corrupt, key,
                 "want a token id, or a list of them, each from 0 to 2147483647");
  return out;
}

}  // namespace infos
