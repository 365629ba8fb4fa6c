// SPDX-License-Identifier: Apache-2.0
// YAML text as a tree of marked values: the only door to the YAML library. Bounds size, depth,
// count and documents, and refuses what a spec never needs (anchors, aliases, tags, tabs, control
// characters, keys that are not plain text). Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace infos {

struct YamlKey {
  std::string text;
  std::uint32_t line = 1;
  std::uint32_t column = 1;
};

struct YamlNode {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  bool quoted = false;
  std::uint32_t line = 1;
  std::uint32_t column = 1;
  std::string text;              ///< scalar
  std::vector<YamlNode> values;  ///< list items, or map values
  std::vector<YamlKey> keys;     ///< map: keys[i] belongs to values[i]
};

struct YamlProblem {
  std::uint32_t line = 1;
  std::uint32_t column = 1;
  std::string message;
};

struct YamlText {
  std::vector<YamlNode> documents;     ///< those before the first problem
  std::optional<YamlProblem> problem;  ///< what stopped the reading
};

YamlText read_yaml(std::string_view text);

/// One line of valid UTF-8: control characters become spaces, other bytes that are not text become
/// '?'.
std::string printable(std::string_view text);

}  // namespace infos
