// SPDX-License-Identifier: Apache-2.0
// The typed getters of GgufFile. Spans were bounds-checked by parse_gguf.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "devices/engine/checkpoint/gguf_file.h"

namespace infos {
namespace {

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// An integer of either sign, wide enough for all types.
struct Integer {
  std::uint64_t magnitude = 0;
  bool negative = false;
};

Integer from_signed(std::int64_t v) {
  return {v < 0 ? ~static_cast<std::uint64_t>(v) + 1 : static_cast<std::uint64_t>(v), v < 0};
}

std::optional<Integer> load_integer(GgufType type, const std::byte* at) {
  switch (type) {
    case GgufType::u8:
      return Integer{load<std::uint8_t>(at)};
    case GgufType::u16:
      return Integer{load<std::uint16_t>(at)};
    case GgufType::u32:
      return Integer{load<std::uint32_t>(at)};
    case GgufType::u64:
      return Integer{load<std::uint64_t>(at)};
    case GgufType::i8:
      return from_signed(load<std::int8_t>(at));
    case GgufType::i16:
      return from_signed(load<std::int16_t>(at));
    case GgufType::i32:
      return from_signed(load<std::int32_t>(at));
    case GgufType::i64:
      return from_signed(load<std::int64_t>(at));
    default:
      return std::nullopt;
  }
}

std::uint64_t element_bytes(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    default:
      return 8;
  }
}

Error wrong_type(const GgufFile& file, const std::string& key, const GgufValue& value,
                 const char* wanted) {
  const std::string seen = value.type == GgufType::array
                               ? fmt::format("array of {}", to_string(value.element))
                               : std::string(to_string(value.type));
  return {ErrorCode::corrupt,
          fmt::format("{}: {}: is of type {}: want {}", file.label, key, seen, wanted)};
}

const GgufValue* lookup(const GgufFile& file, const std::string& key) {
  const auto found = file.metadata.find(key);
  return found == file.metadata.end() ? nullptr : &found->second;
}

}  // namespace

const char* to_string(GgufType type) {
  constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                    "bool", "string", "array", "u64", "i64", "f64"};
  const auto index = static_cast<std::size_t>(type);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

Result<std::optional<std::uint64_t>> GgufFile::get_unsigned(const std::string& key) const {
  const auto* value = lookup(*this, key);
  if (!value) return std::optional<std::uint64_t>();
  const auto integer = load_integer(value->type, value->bytes.data());
  if (!integer) return wrong_type(*this, key, *value, "an integer");
  if (integer->negative)
    return Error{ErrorCode::corrupt,
                 fmt::format("{}: {}: is -{}: want 0 or more", label, key, integer->magnitude)};
  return std::optional(integer->magnitude);
}

Result<std::optional<double>> GgufFile::get_number(const std::string& key) const {
  const auto* value = lookup(*this, key);
  if (!value) return std::optional<double>();
  double number = 0;
  if (value->type == GgufType::f32) {
    number = load<float>(value->bytes.data());
  } else if (value->type == GgufType::f64) {
    number = load<double>(value->bytes.data());
  } else if (const auto integer = load_integer(value->type, value->bytes.data())) {
    number = static_cast<double>(integer->magnitude) * (integer->negative ? -1 : 1);
  } else {
    return wrong_type(*this, key, *value, "a number");
  }
  if (!std::isfinite(number))
    return Error{ErrorCode::corrupt,
                 fmt::format("{}: {}: is {}: want a finite number", label, key, number)};
  return std::optional(number);
}

Result<std::optional<bool>> GgufFile::get_bool(const std::string& key) const {
  const auto* value = lookup(*this, key);
  if (!value) return std::optional<bool>();
  if (value->type != GgufType::boolean) return wrong_type(*this, key, *value, "bool");
  return std::optional(value->bytes[0] != std::byte{0});
}

Result<std::optional<std::string_view>> GgufFile::get_string(const std::string& key) const {
  const auto* value = lookup(*this, key);
  if (!value) return std::optional<std::string_view>();
  if (value->type != GgufType::string) return wrong_type(*this, key, *value, "string");
  return std::optional(
      std::string_view(reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size()));
}

Result<std::optional<std::vector<std::string>>> GgufFile::get_strings(
    const std::string& key) const {
  const auto* value = lookup(*this, key);
  if (!value) return std::optional<std::vector<std::string>>();
  if (value->type != GgufType::array || value->element != GgufType::string)
    return wrong_type(*this, key, *value, "array of string");
  std::vector<std::string> out;
  out.reserve(value->count);
  const std::byte* at = value->bytes.data();
  for (std::uint64_t i = 0; i < value->count; ++i) {
    const auto length = load<std::uint64_t>(at);
    out.emplace_back(reinterpret_cast<const char*>(at + 8), length);
    at += 8 + length;
  }
  return std::optional(std::move(out));
}

Result<std::optional<std::vector<float>>> GgufFile::get_floats(const std::string& key) const {
  const auto* value = lookup(*this, key);
  if (!value) return std::optional<std::vector<float>>();
  if (value->type != GgufType::array ||
      (value->element != GgufType::f32 && value->element != GgufType::f64))
    return wrong_type(*this, key, *value, "array of f32");
  std::vector<float> out(value->count);
  for (std::uint64_t i = 0; i < value->count; ++i)
    out[i] = value->element == GgufType::f32
                 ? load<float>(value->bytes.data() + i * 4)
                 : static_cast<float>(load<double>(value->bytes.data() + i * 8));
  return std::optional(std::move(out));
}

Result<std::optional<std::vector<std::int64_t>>> GgufFile::get_integers(
    const std::string& key) const {
  const auto* value = lookup(*this, key);
  if (!value) return std::optional<std::vector<std::int64_t>>();
  if (value->type != GgufType::array) return wrong_type(*this, key, *value, "array of integers");
  std::vector<std::int64_t> out;
  out.reserve(value->count);
  for (std::uint64_t i = 0; i < value->count; ++i) {
    const auto integer =
        load_integer(value->element, value->bytes.data() + i * element_bytes(value->element));
    if (!integer) return wrong_type(*this, key, *value, "array of integers");
    if (integer->magnitude > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return Error{ErrorCode::corrupt,
                   fmt::format("{}: {}: element {} does not fit 64 bits", label, key, i)};
    const auto magnitude = static_cast<std::int64_t>(integer->magnitude);
    out.push_back(integer->negative ? -magnitude : magnitude);
  }
  return std::optional(std::move(out));
}

}  // namespace infos
