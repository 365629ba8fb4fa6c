// SPDX-License-Identifier: Apache-2.0
// JSON from outside, read strictly: bounded in size, depth and number of values before anything is
// built, duplicate keys refused, and fields taken out with errors that name file and key. Private
// to this folder's .cc files.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/base/result.h"

namespace infos {

struct JsonLimits {
  std::size_t bytes = 8 << 20;
  std::size_t depth = 16;
  std::size_t values = 1 << 20;  ///< scalars, arrays and objects
};

/// Errors: corrupt, naming `label`, where in the text and what.
Result<boost::json::value> parse_json(std::string_view text, const std::string& label,
                                      const JsonLimits& limits);

/// The fields of one JSON object. A getter gives nullopt for a missing or null field and an error
/// for a wrong type.
class JsonFields {
 public:
  /// `place` is the file, and the keys that lead to the object. Requires: `object` outlives this.
  JsonFields(const boost::json::object& object, std::string place)
      : object_(&object), place_(std::move(place)) {}
  /// Errors: corrupt, when the value is no object.
  static Result<JsonFields> of(const boost::json::value& value, const std::string& place);

  /// Where the value of `key` stands, for JsonFields::of.
  std::string place_of(std::string_view key) const { return place_ + ": " + std::string(key); }
  Error error(ErrorCode code, std::string_view key, const std::string& what) const;
  const boost::json::value* find(std::string_view key) const;  ///< null when missing or null
  Result<std::optional<double>> number(std::string_view key) const;
  Result<std::optional<std::uint32_t>> count(std::string_view key) const;
  Result<std::uint32_t> need_count(std::string_view key) const;
  Result<std::optional<bool>> flag(std::string_view key) const;
  Result<std::optional<std::string>> text(std::string_view key) const;
  Result<std::optional<JsonFields>> object(std::string_view key) const;
  /// One integer or a list of them, each from 0 to 2^31 - 1.
  Result<std::vector<std::int32_t>> ids(std::string_view key) const;

 private:
  const boost::json::object* object_;
  std::string place_;
};

}  // namespace infos
