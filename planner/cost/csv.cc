// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/csv.h"

#include <charconv>
#include <cmath>

#include "topology/base/check.h"

namespace infos {
namespace {

constexpr std::size_t kShownMax = 40;  // of a wrong text

}  // namespace

/// Cuts the next line that is not empty into fields_. False at the end.
bool CsvReader::take_line() {
  while (!rest_.empty()) {
    const std::size_t end = rest_.find('\n');
    std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    ++line_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    fields_.clear();
    while (true) {
      const std::size_t comma = line.find(',');
      fields_.push_back(line.substr(0, comma));
      if (comma == std::string_view::npos) return true;
      line.remove_prefix(comma + 1);
    }
  }
  return false;
}

Error CsvReader::error(const std::string& what) const {
  return {ErrorCode::invalid_argument, name_ + ":" + std::to_string(line_) + ": " + what};
}

Result<CsvReader> CsvReader::open(std::string_view name, std::string_view text,
                                  const std::vector<std::string_view>& wanted) {
  CsvReader reader;
  reader.name_ = name;
  reader.rest_ = text;
  if (reader.rest_.starts_with("\xef\xbb\xbf")) reader.rest_.remove_prefix(3);
  if (!reader.take_line()) return reader.error("an empty table, want a header line");
  for (std::size_t i = 0; i < reader.fields_.size(); ++i)
    reader.columns_.emplace(reader.fields_[i], i);
  for (const std::string_view column : wanted)
    if (!reader.has(column)) return reader.error("no column '" + std::string(column) + "'");
  return reader;
}

Result<bool> CsvReader::next() {
  if (!take_line()) return false;
  if (fields_.size() != columns_.size())
    return error(std::to_string(fields_.size()) + " fields, the header has " +
                 std::to_string(columns_.size()));
  return true;
}

std::string_view CsvReader::text(std::string_view column) const {
  const auto found = columns_.find(column);
  INFOS_CHECK(found != columns_.end());
  return fields_[found->second];
}

Result<double> CsvReader::number(std::string_view column) const {
  const std::string_view word = text(column);
  double value = 0;
  const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (code != std::errc() || end != word.data() + word.size() || !std::isfinite(value))
    return error(std::string(column) + " '" + std::string(word.substr(0, kShownMax)) +
                 "': want a number");
  return value;
}

Result<double> CsvReader::positive(std::string_view column) const {
  const double value = INFOS_TRY(number(column));
  if (value <= 0)
    return error(std::string(column) + " '" + std::string(text(column).substr(0, kShownMax)) +
                 "': want a number above 0");
  return value;
}

}  // namespace infos
