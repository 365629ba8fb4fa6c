// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/bench_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <optional>

namespace infos::cli {
namespace {

namespace json = boost::json;

constexpr std::uint32_t kTokensMax = 1u << 24;
constexpr std::size_t kRowsMax = 10'000'000;
constexpr std::size_t kLineMax = 64u << 10;

constexpr std::array kWords = {
    "time",  "year",       "people", "way",   "day",    "man",     "thing",  "woman",   "life",
    "child", "world",      "school", "state", "family", "student", "group",  "country", "problem",
    "hand",  "part",       "place",  "case",  "week",   "company", "system", "program", "question",
    "work",  "government", "number", "night", "point",  "home",    "water",  "room",    "mother",
    "area",  "money",      "story",  "fact",  "month",  "lot",     "right"};

std::uint32_t draw(Rng& rng, const LengthRange& range) {
  return range.low +
         static_cast<std::uint32_t>(rng.below(std::uint64_t{range.high} - range.low + 1));
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

/// "2023-11-16 18:17:03.9799600" as seconds since an arbitrary day. Days are counted as in the
/// civil calendar.
std::optional<double> date_seconds(std::string_view text) {
  const auto part = [&](std::size_t at, std::size_t n) {
    return number(text.substr(std::min(at, text.size()), n));
  };
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || text[13] != ':' || text[16] != ':')
    return std::nullopt;
  const auto y = part(0, 4), mo = part(5, 2), d = part(8, 2), h = part(11, 2), mi = part(14, 2),
             s = part(17, std::string::npos);
  if (!y || !mo || !d || !h || !mi || !s) return std::nullopt;
  const double year = *mo <= 2 ? *y - 1 : *y;
  const double month = *mo <= 2 ? *mo + 9 : *mo - 3;
  const double days = 365 * year + std::floor(year / 4) - std::floor(year / 100) +
                      std::floor(year / 400) + std::floor((153 * month + 2) / 5) + *d;
  return days * 86400 + *h * 3600 + *mi * 60 + *s;
}

/// What a column holds, and how its numbers become seconds.
struct Column {
  enum class Role { arrival, prompt, output } role;
  double scale;
};
std::optional<Column> column_of(const std::string& name) {
  using Role = Column::Role;
  if (name == "timestamp") return Column{Role::arrival, 1e-3};
  if (name == "arrival_s" || name == "arrived_at") return Column{Role::arrival, 1};
  if (name == "arrival_time_ns") return Column{Role::arrival, 1e-9};
  for (const char* known :
       {"contexttokens", "input_length", "input_toks", "prompt_tokens", "num_prefill_tokens"})
    if (name == known) return Column{Role::prompt, 1};
  for (const char* known :
       {"generatedtokens", "output_length", "output_toks", "output_tokens", "num_decode_tokens"})
    if (name == known) return Column{Role::output, 1};
  return std::nullopt;
}

/// One row under construction.
struct Row {
  std::optional<double> arrival, prompt, output;
  /// Errors: invalid_argument.
  Status set(const Column& column, std::string_view text) {
    std::optional<double> value = number(text);
    if (value) *value *= column.scale;
    if (!value && column.role == Column::Role::arrival) value = date_seconds(text);
    if (!value)
      return Error{ErrorCode::invalid_argument,
                   fmt::format("'{}' is no number or date", text.substr(0, 40))};
    if (column.role != Column::Role::arrival && (*value < 0 || *value > kTokensMax))
      return Error{ErrorCode::invalid_argument,
                   fmt::format("'{}' tokens: want 0 to {}", text.substr(0, 40), kTokensMax)};
    (column.role == Column::Role::arrival  ? arrival
     : column.role == Column::Role::prompt ? prompt
                                           : output) = value;
    return {};
  }
  Status whole() const {
    if (arrival && prompt && output) return {};
    return Error{ErrorCode::invalid_argument, fmt::format("no {}", !arrival  ? "arrival"
                                                                   : !prompt ? "prompt tokens"
                                                                             : "output tokens")};
  }
};

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> out;
  while (true) {
    const std::size_t comma = line.find(',');
    out.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return out;
    line.remove_prefix(comma + 1);
  }
}

/// Rows of CSV (once the head line is read) or JSON lines.
class TraceReader {
 public:
  Status head(std::string_view line) {
    json_ = line.starts_with('{');
    if (json_) return {};
    for (const std::string_view name : split(line)) columns_.push_back(column_of(lower(name)));
    return {};
  }
  bool head_is_row() const { return json_; }
  Result<Row> row(std::string_view line) const { return json_ ? json_row(line) : csv_row(line); }

 private:
  Result<Row> csv_row(std::string_view line) const {
    Row row;
    const auto cells = split(line);
    for (std::size_t i = 0; i < cells.size() && i < columns_.size(); ++i)
      if (columns_[i]) INFOS_TRY(row.set(*columns_[i], cells[i]));
    INFOS_TRY(row.whole());
    return row;
  }
  static Result<Row> json_row(std::string_view line) {
    json::error_code failed;
    const json::value value = json::parse(line, failed);
    if (failed || !value.is_object())
      return Error{ErrorCode::invalid_argument, "not a JSON object"};
    Row row;
    for (const auto& [key, member] : value.as_object()) {
      const auto column = column_of(lower(std::string_view(key.data(), key.size())));
      if (!column) continue;
      INFOS_TRY(row.set(
          *column, member.is_string() ? std::string(member.as_string()) : json::serialize(member)));
    }
    INFOS_TRY(row.whole());
    return row;
  }
  bool json_ = false;
  std::vector<std::optional<Column>> columns_;
};

}  // namespace

Result<LengthRange> parse_lengths(const std::string& text) {
  const std::size_t colon = text.find(':');
  const auto whole = [](std::string_view word) -> std::optional<std::uint32_t> {
    std::uint32_t n = 0;
    const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), n);
    if (code != std::errc{} || end != word.data() + word.size() || n < 1 || n > kTokensMax)
      return std::nullopt;
    return n;
  };
  const auto low = whole(std::string_view(text).substr(0, colon));
  const auto high =
      colon == std::string::npos ? low : whole(std::string_view(text).substr(colon + 1));
  if (!low || !high || *low > *high)
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("'{}': want a number of tokens, or a range as in 64:512", text.substr(0, 64))};
  return LengthRange{*low, *high};
}

std::vector<PlannedRequest> generate_plan(const PlanOptions& options) {
  Rng rng(options.seed);
  std::vector<PlannedRequest> out;
  double at = 0;
  for (std::uint64_t i = 0; i < options.requests; ++i) {
    if (options.rate > 0) at += rng.exponential(1 / options.rate);
    out.push_back(
        {Duration{std::llround(at * 1e9)}, draw(rng, options.prompt), draw(rng, options.output)});
  }
  return out;
}

Result<std::vector<PlannedRequest>> read_trace(std::string_view text, const TraceOptions& options) {
  std::vector<PlannedRequest> out;
  TraceReader reader;
  std::optional<double> first;
  const std::size_t limit =
      options.requests == 0 ? kRowsMax : static_cast<std::size_t>(options.requests);
  for (std::size_t line_number = 1; !text.empty() && out.size() < limit; ++line_number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.size() > kLineMax)
      return Error{ErrorCode::invalid_argument,
                   fmt::format("line {}: longer than 64 KiB", line_number)};
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (line_number == 1) {
      INFOS_TRY(reader.head(line));
      if (!reader.head_is_row()) continue;
    }
    const Result<Row> row = reader.row(line);
    if (!row.ok())
      return Error{ErrorCode::invalid_argument,
                   fmt::format("line {}: {}", line_number, row.error().message)};
    if (!first) first = *row->arrival;
    const double at = std::clamp((*row->arrival - *first) / options.speed, 0.0, 1e9);
    // A request of no tokens is one of one: a server refuses an empty prompt.
    out.push_back({Duration{std::llround(at * 1e9)},
                   std::max(1U, static_cast<std::uint32_t>(*row->prompt)),
                   std::max(1U, static_cast<std::uint32_t>(*row->output))});
  }
  if (out.empty()) return Error{ErrorCode::invalid_argument, "the trace has no rows"};
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.at < b.at; });
  return out;
}

std::string make_prompt(Rng& rng, std::uint32_t tokens, const PromptShape& shape) {
  const double per_word = std::max(shape.tokens_per_word, 0.01);
  const auto words = static_cast<std::uint64_t>(std::max(1.0, std::round(tokens / per_word)));
  const auto shared =
      static_cast<std::uint64_t>(std::round(std::min(shape.shared_tokens, tokens) / per_word));
  Rng common(0x5eed);
  std::string out;
  for (std::uint64_t i = 0; i < words; ++i) {
    Rng& from = i < shared ? common : rng;
    out += (i == 0 ? "" : " ") + std::string(kWords[from.below(kWords.size())]);
  }
  return out;
}

}  // namespace infos::cli
