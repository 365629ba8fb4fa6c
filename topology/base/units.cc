// SPDX-License-Identifier: Apache-2.0
#include "topology/base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <span>

namespace infos {
namespace {

struct Unit {
  std::string_view name;
  double scale;
};

constexpr std::array kByteUnits = {Unit{"TiB", 1099511627776.0},
                                   Unit{"GiB", 1073741824.0},
                                   Unit{"MiB", 1048576.0},
                                   Unit{"KiB", 1024.0},
                                   Unit{"TB", 1e12},
                                   Unit{"GB", 1e9},
                                   Unit{"MB", 1e6},
                                   Unit{"kB", 1e3},
                                   Unit{"B", 1.0}};
constexpr std::array kTimeUnits = {Unit{"h", 3.6e12}, Unit{"m", 6e10}, Unit{"s", 1e9},
                                   Unit{"ms", 1e6},   Unit{"us", 1e3}, Unit{"ns", 1.0}};
constexpr std::array kRateUnits = {
    Unit{"Tb/s", 1.25e11}, Unit{"Gb/s", 1.25e8}, Unit{"Mb/s", 1.25e5}, Unit{"kb/s", 125.0},
    Unit{"b/s", 0.125},    Unit{"TB/s", 1e12},   Unit{"GB/s", 1e9},    Unit{"MB/s", 1e6},
    Unit{"kB/s", 1e3},     Unit{"B/s", 1.0}};

Error bad_quantity(std::string_view text, std::string_view what, std::span<const Unit> units) {
  std::string allowed;
  for (const Unit& unit : units) allowed += (allowed.empty() ? "" : ", ") + std::string(unit.name);
  return {ErrorCode::invalid_argument,
          fmt::format("'{}' is not a {}: want a number >= 0 and one of {}", text.substr(0, 64),
                      what, allowed)};
}

/// The number in base units. Errors: invalid_argument.
Result<double> parse_quantity(std::string_view text, std::string_view what,
                              std::span<const Unit> units) {
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(number) || number < 0)
    return bad_quantity(text, what, units);
  const std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
  for (const Unit& unit : units)
    if (suffix == unit.name) return number * unit.scale;
  return bad_quantity(text, what, units);
}

/// The largest unit in which `value` is whole.
std::string print_whole(std::uint64_t value, std::span<const Unit> units) {
  if (value == 0) return fmt::format("0{}", units.back().name);
  for (const Unit& unit : units) {
    const auto scale = static_cast<std::uint64_t>(unit.scale);
    if (value % scale == 0) return fmt::format("{}{}", value / scale, unit.name);
  }
  return {};
}

}  // namespace

Result<Bytes> parse_bytes(std::string_view text) {
  const double bytes = INFOS_TRY(parse_quantity(text, "size", kByteUnits));
  if (bytes >= 9.2e18) return bad_quantity(text, "size below 8 EiB", kByteUnits);
  return Bytes{static_cast<std::uint64_t>(std::llround(bytes))};
}

Result<Duration> parse_duration(std::string_view text) {
  const double ns = INFOS_TRY(parse_quantity(text, "duration", kTimeUnits));
  if (ns >= 9.2e18) return bad_quantity(text, "duration below 292 years", kTimeUnits);
  return Duration{std::llround(ns)};
}

Result<Bandwidth> parse_bandwidth(std::string_view text) {
  return Bandwidth{INFOS_TRY(parse_quantity(text, "bandwidth", kRateUnits))};
}

std::string to_string(Bytes bytes) { return print_whole(bytes.value, kByteUnits); }

std::string to_string(Duration duration) {
  if (duration.ns < 0)
    return "-" + print_whole(0 - static_cast<std::uint64_t>(duration.ns), kTimeUnits);
  return print_whole(static_cast<std::uint64_t>(duration.ns), kTimeUnits);
}

std::string to_string(Bandwidth bandwidth) {
  const double rate = bandwidth.bytes_per_second;
  for (const Unit& unit : kRateUnits) {
    const double n = rate / unit.scale;
    if (n >= 1.0 && fmt::format("{}", n).size() <= 6) return fmt::format("{}{}", n, unit.name);
  }
  return fmt::format("{}B/s", rate);
}

std::string to_human(Bytes bytes) {
  const auto value = static_cast<double>(bytes.value);
  for (const Unit& unit : kByteUnits)
    if (unit.name.size() == 3 && value >= unit.scale)
      return fmt::format("{:.1f} {}", value / unit.scale, unit.name);
  return fmt::format("{} B", bytes.value);
}

}  // namespace infos
