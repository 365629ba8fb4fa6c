// SPDX-License-Identifier: Apache-2.0
// Quantities with units: Bytes, Duration, Time, Bandwidth. Parsing is strict ("16GiB", "300ms",
// "400Gb/s"), printing gives the shortest form that parses back to the same value.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "topology/base/result.h"

namespace infos {

/// A number of bytes, never negative.
struct Bytes {
  std::uint64_t value = 0;
  friend constexpr auto operator<=>(const Bytes&, const Bytes&) = default;
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.value + b.value}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.value - b.value}; }
  friend constexpr Bytes operator*(Bytes a, std::uint64_t n) { return {a.value * n}; }
};

/// A span of time. Units: ns.
struct Duration {
  std::int64_t ns = 0;
  friend constexpr auto operator<=>(const Duration&, const Duration&) = default;
  friend constexpr Duration operator+(Duration a, Duration b) { return {a.ns + b.ns}; }
  friend constexpr Duration operator-(Duration a, Duration b) { return {a.ns - b.ns}; }
  friend constexpr Duration operator*(Duration a, std::int64_t n) { return {a.ns * n}; }
  constexpr double seconds() const { return static_cast<double>(ns) * 1e-9; }
};
constexpr Duration nanoseconds(std::int64_t n) { return {n}; }
constexpr Duration microseconds(std::int64_t n) { return {n * 1'000}; }
constexpr Duration milliseconds(std::int64_t n) { return {n * 1'000'000}; }
constexpr Duration seconds(std::int64_t n) { return {n * 1'000'000'000}; }

/// A point on a monotonic clock. Units: ns since that clock's zero.
struct Time {
  std::int64_t ns = 0;
  friend constexpr auto operator<=>(const Time&, const Time&) = default;
  friend constexpr Time operator+(Time t, Duration d) { return {t.ns + d.ns}; }
  friend constexpr Time operator-(Time t, Duration d) { return {t.ns - d.ns}; }
  friend constexpr Duration operator-(Time a, Time b) { return {a.ns - b.ns}; }
};
/// Later than every event: "no deadline".
constexpr Time kNever{INT64_MAX};

/// A data rate. Units: bytes per second.
struct Bandwidth {
  double bytes_per_second = 0;
  friend constexpr auto operator<=>(const Bandwidth&, const Bandwidth&) = default;
};

/// Accepts an integer or decimal with B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (of
/// 1024). Errors: invalid_argument, naming the text and the units allowed.
Result<Bytes> parse_bytes(std::string_view text);
/// Accepts a decimal with ns, us, ms, s, m, h. Errors: as above.
Result<Duration> parse_duration(std::string_view text);
/// Accepts a decimal with b/s, kb/s, Mb/s, Gb/s, Tb/s (bits) or B/s, kB/s, MB/s, GB/s, TB/s.
/// Errors: as above.
Result<Bandwidth> parse_bandwidth(std::string_view text);

/// Exact: the largest unit in which the value is a whole number, e.g. "16GiB", "1500B".
std::string to_string(Bytes bytes);
/// Exact, e.g. "300ms", "1500us".
std::string to_string(Duration duration);
/// E.g. "400Gb/s".
std::string to_string(Bandwidth bandwidth);
/// Rounded for people: "15.3 GiB".
std::string to_human(Bytes bytes);

}  // namespace infos
