// SPDX-License-Identifier: Apache-2.0
// A value inside of a JSON document together with its path, so that every complaint says where and
// what was wanted. For the .cc files of this folder only. Borrows the document; any thread.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/base/result.h"

namespace infos::text {

class JsonPlace {
 public:
  JsonPlace(const boost::json::value& value, std::string path)
      : value_(&value), path_(std::move(path)) {}

  const boost::json::value& value() const { return *value_; }
  const std::string& path() const { return path_; }
  Error error(ErrorCode code, const std::string& what) const { return {code, path_ + ": " + what}; }
  Error corrupt(const std::string& what) const { return error(ErrorCode::corrupt, what); }
  /// "PATH: 'seen' is not supported; supported: known".
  Error unsupported(std::string_view seen, std::string_view known) const;

  bool is_null() const { return value_->is_null(); }
  bool is_object() const { return value_->is_object(); }
  bool is_array() const { return value_->is_array(); }
  bool is_string() const { return value_->is_string(); }

  /// Nothing when this is no object, or the member is not there or null.
  std::optional<JsonPlace> find(std::string_view name) const;
  /// Errors: corrupt, naming what is missing or of the wrong type.
  Result<JsonPlace> member(std::string_view name) const;
  Result<std::string_view> string() const;
  Result<std::int64_t> integer() const;
  Result<double> number() const;
  Result<std::vector<JsonPlace>> items() const;

  /// A member of that type, or `otherwise` when it is not there.
  Result<std::string_view> string_or(std::string_view name, std::string_view otherwise) const;
  enum class Flag { no, yes };
  Result<Flag> flag_or(std::string_view name, Flag otherwise) const;

 private:
  std::string kind() const;
  const boost::json::value* value_;
  std::string path_;
};

/// Errors: corrupt, with the name given and the offset. Nesting is bounded.
Result<boost::json::value> parse_json(std::string_view text, const std::string& name);

}  // namespace infos::text
