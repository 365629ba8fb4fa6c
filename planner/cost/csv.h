// SPDX-License-Identifier: Apache-2.0
// CsvReader: rows of a CSV text with a header line, columns by name. Plain fields only (no quotes).
// Pure; the text must outlive it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "topology/base/result.h"

namespace infos {

class CsvReader {
 public:
  /// Errors: invalid_argument: no header, or a column of `wanted` is missing.
  static Result<CsvReader> open(std::string_view name, std::string_view text,
                                const std::vector<std::string_view>& wanted);
  bool has(std::string_view column) const { return columns_.contains(column); }
  /// False at the end. A row has as many fields as the header; empty lines are skipped.
  /// Errors: invalid_argument, as "name:line: ...".
  Result<bool> next();
  /// Of the present row. Requires: has(column).
  std::string_view text(std::string_view column) const;
  /// Errors: invalid_argument, naming line, column and text.
  Result<double> number(std::string_view column) const;
  /// Likewise, and above zero.
  Result<double> positive(std::string_view column) const;
  std::uint64_t line() const { return line_; }
  Error error(const std::string& what) const;

 private:
  std::string name_;
  std::string_view rest_;
  std::map<std::string_view, std::size_t> columns_;
  std::vector<std::string_view> fields_;
  std::uint64_t line_ = 0;

  bool take_line();
};

}  // namespace infos
