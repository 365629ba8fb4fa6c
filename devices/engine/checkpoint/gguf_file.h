// SPDX-License-Identifier: Apache-2.0
// The GGUF container, versions 2 and 3, little endian: reads the metadata and the tensor directory
// out of a span and checks every bound. Everything it returns points into that span; nothing is
// copied. Never interprets a key other than general.alignment. Any thread. Source:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "devices/engine/checkpoint.h"
#include "topology/base/result.h"

namespace infos {

/// Value types of the container, with the numbers of the file format.
enum class GgufType : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64
};
const char* to_string(GgufType type);

/// One metadata value as it lies in the file: a scalar's bytes, a string's characters, or an
/// array's elements.
struct GgufValue {
  GgufType type = GgufType::u8;
  GgufType element = GgufType::u8;  ///< arrays
  std::uint64_t count = 0;          ///< arrays
  std::span<const std::byte> bytes;
};

struct GgufTensor {
  std::string_view name;
  DType dtype = DType::none;
  std::vector<std::int64_t> dims;  ///< row-major, outermost first: reversed from the file
  std::span<const std::byte> data;
};

/// A parsed container. The getters give nullopt for a missing key and an error that names the key
/// for a wrong type.
struct GgufFile {
  std::string label;  ///< how errors name the file
  std::uint32_t version = 0;
  std::uint64_t alignment = 32;
  std::map<std::string_view, GgufValue> metadata;
  std::vector<GgufTensor> tensors;  ///< in file order

  /// Any integer type, when the value is not negative.
  Result<std::optional<std::uint64_t>> get_unsigned(const std::string& key) const;
  /// Any integer or floating type.
  Result<std::optional<double>> get_number(const std::string& key) const;
  Result<std::optional<bool>> get_bool(const std::string& key) const;
  Result<std::optional<std::string_view>> get_string(const std::string& key) const;
  Result<std::optional<std::vector<std::string>>> get_strings(const std::string& key) const;
  /// An array of f32 or f64.
  Result<std::optional<std::vector<float>>> get_floats(const std::string& key) const;
  /// An array of any integer type whose values fit.
  Result<std::optional<std::vector<std::int64_t>>> get_integers(const std::string& key) const;
};

/// Bounds that hold before anything is allocated.
struct GgufLimits {
  std::uint64_t metadata_keys = 1 << 16;
  std::uint64_t tensors = 1 << 18;
  std::uint64_t key_bytes = 1 << 10;
  std::uint64_t string_bytes = 16 << 20;  ///< the longest real one is a chat template
  std::uint64_t array_elements =
      1 << 23;  ///< the longest real one is the merges of a 256 k vocabulary
  std::uint64_t array_nesting = 3;
};

/// Errors: corrupt or unsupported, naming the file, the field, the value seen and the values
/// allowed.
Result<GgufFile> parse_gguf(std::span<const std::byte> bytes, const std::string& label,
                            const GgufLimits& limits = {});

}  // namespace infos
