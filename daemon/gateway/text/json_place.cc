// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/text/json_place.h"

namespace infos::text {
namespace {

constexpr std::size_t kDepthMax = 64;

}  // namespace

Error JsonPlace::unsupported(std::string_view seen, std::string_view known) const {
  return error(ErrorCode::unsupported, "'" + std::string(seen.substr(0, 64)) +
                                           "' is not supported; supported: " + std::string(known));
}

std::string JsonPlace::kind() const {
  if (value_->is_number()) return "a number";
  if (value_->is_bool()) return "true or false";
  if (value_->is_string()) return "a string";
  if (value_->is_array()) return "an array";
  return value_->is_object() ? "an object" : "null";
}

std::optional<JsonPlace> JsonPlace::find(std::string_view name) const {
  const auto* object = value_->if_object();
  if (!object) return std::nullopt;
  const auto* found = object->if_contains(name);
  if (!found || found->is_null()) return std::nullopt;
  return JsonPlace(*found, path_ + "." + std::string(name));
}

Result<JsonPlace> JsonPlace::member(std::string_view name) const {
  if (!is_object()) return corrupt("found " + kind() + ", want an object");
  if (auto found = find(name)) return *found;
  return corrupt("member '" + std::string(name) + "' is missing");
}

Result<std::string_view> JsonPlace::string() const {
  if (!is_string()) return corrupt("found " + kind() + ", want a string");
  return std::string_view(value_->get_string());
}

Result<std::int64_t> JsonPlace::integer() const {
  if (value_->is_int64()) return value_->get_int64();
  if (value_->is_uint64()) return corrupt("the number is too large");
  return corrupt("found " + kind() + ", want a whole number");
}

Result<double> JsonPlace::number() const {
  if (!value_->is_number()) return corrupt("found " + kind() + ", want a number");
  boost::json::error_code ec;
  const double out = value_->to_number<double>(ec);
  if (ec) return corrupt("the number cannot be read");
  return out;
}

Result<std::vector<JsonPlace>> JsonPlace::items() const {
  if (!is_array()) return corrupt("found " + kind() + ", want an array");
  std::vector<JsonPlace> out;
  const auto& array = value_->get_array();
  out.reserve(array.size());
  for (std::size_t i = 0; i < array.size(); ++i)
    out.emplace_back(array[i], path_ + "[" + std::to_string(i) + "]");
  return out;
}

Result<std::string_view> JsonPlace::string_or(std::string_view name,
                                              std::string_view otherwise) const {
  const auto found = find(name);
  if (!found) return otherwise;
  return found->string();
}

Result<JsonPlace::Flag> JsonPlace::flag_or(std::string_view name, Flag otherwise) const {
  const auto found = find(name);
  if (!found) return otherwise;
  if (!found->value().is_bool())
    return found->corrupt("found " + found->kind() + ", want true or false");
  return found->value().get_bool() ? Flag::yes : Flag::no;
}

Result<boost::json::value> parse_json(std::string_view text, const std::string& name) {
  boost::json::error_code ec;
  boost::json::parse_options options;
  options.max_depth = kDepthMax;
  boost::json::parser parser({}, options);
  std::size_t used = 0;
  try {
    used = parser.write(text.data(), text.size(), ec);
    if (!ec) return parser.release();
  } catch (
      const std::exception& e) {  // a string or array above Boost.JSON's own limits, or no memory
    return Error{ErrorCode::corrupt, name + ": " + e.what()};
  }
  return Error{ErrorCode::corrupt,
               name + ": not JSON at offset " + std::to_string(used) + ": " + ec.message()};
}

}  // namespace infos::text
