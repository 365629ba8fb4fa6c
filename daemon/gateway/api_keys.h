// SPDX-License-Identifier: Apache-2.0
// The API keys of a file and whose they are. Keeps only SHA-256 digests, compares all of them in
// constant time. Immutable after load; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/base/result.h"

namespace infos {

class ApiKeys {
 public:
  /// No keys: everyone may ask.
  ApiKeys() = default;
  /// Reads lines `key [tenant]`; '#' begins a comment at the start of a line; blank lines are
  /// skipped. Errors: io; invalid_argument with the line number (never the key): too short, too
  /// many words, repeated, none at all.
  static Result<ApiKeys> load(const std::string& path);
  static Result<ApiKeys> parse(std::string_view text, std::string_view name);

  bool required() const { return !entries_.empty(); }
  /// The tenant ("default" when its line names none) of a key; nothing for an unknown key.
  std::optional<std::string> tenant(std::string_view key) const;

 private:
  using Digest = std::array<std::uint8_t, 32>;
  struct Entry {
    Digest digest;
    std::string tenant;
  };
  static Digest digest(std::string_view key);
  std::vector<Entry> entries_;
};

}  // namespace infos
