// SPDX-License-Identifier: Apache-2.0
// Cutting and casing of text as Python does it, for the template language. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace infos::text::jinja {

/// At most `limit` cuts, -1: no bound. `separator` is not empty.
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       std::int64_t limit);
std::vector<std::string_view> split_at_from_right(std::string_view text, std::string_view separator,
                                                  std::int64_t limit);
/// At runs of white space, none at the ends.
std::vector<std::string_view> split_at_space(std::string_view text, std::int64_t limit);

/// ASCII letters only.
std::string upper_case(std::string_view text);
std::string lower_case(std::string_view text);
/// The first letter of each word upper case, the rest lower case.
std::string title_case(std::string_view text);
/// The first letter upper case, the rest lower case.
std::string capital_case(std::string_view text);

}  // namespace infos::text::jinja
